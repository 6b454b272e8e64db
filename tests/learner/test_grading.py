"""From rewards to advantages and weights: every estimator on paper, and everyone who is left out."""

from collections.abc import Mapping, Sequence
from math import isfinite, sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.algo import ObjectiveSettings
from oncurve.algo.advantage_settings import NEEDS_NO_GROUP
from oncurve.learner.minibatch import GradedRollout, Judgement, Member, grade
from oncurve.types import Completion, FinishReason, Group, Sampling, Status, Task, Verdict

Rewards = Sequence[Sequence[float | None]]


def completion(tokens: Sequence[int], *, index: int = 0, is_truncated: bool = False) -> Completion:
    return Completion(
        task_id="t",
        index=index,
        prompt_ids=(1,),
        token_ids=tuple(tokens),
        old_logprobs=(-1.0,) * len(tokens),
        policy_version=0,
        finish_reason=FinishReason.LENGTH if is_truncated else FinishReason.STOP,
        sampling=Sampling(temperature=1.0, max_tokens=9),
        text="",
    )


def verdict(reward: float | None, components: Mapping[str, float | None]) -> Verdict:
    if reward is None:
        return Verdict(status=Status.NO_VERDICT, reward=None, cause="timeout", components=components)
    return Verdict(status=Status.CORRECT if reward > 0 else Status.WRONG, reward=reward, components=components)


def groups_of(
    rewards: Rewards,
    lengths: Sequence[Sequence[int]] | None = None,
    *,
    truncated: Sequence[tuple[int, int]] = (),
    components: Sequence[Sequence[Mapping[str, float | None]]] | None = None,
) -> list[Group]:
    """Completions of these lengths (2 where not given), no two of them alike."""
    groups = []
    for p, row in enumerate(rewards):
        completions, verdicts = [], []
        for g, reward in enumerate(row):
            size = 2 if lengths is None else lengths[p][g]
            completions.append(completion([10 + g] * size, index=g, is_truncated=(p, g) in truncated))
            verdicts.append(verdict(reward, {} if components is None else components[p][g]))
        task = Task(id=f"t{p}", prompt="", gold="", kind="test", verifier="test")
        groups.append(Group(task=task, completions=tuple(completions), verdicts=tuple(verdicts)))
    return groups


def objective_of(estimator: str, **changes: object) -> ObjectiveSettings:
    numbers = {key: changes.pop(key) for key in list(changes) if key not in ObjectiveSettings.model_fields}
    return ObjectiveSettings(
        **{"zero_variance": "keep", "advantage": {"estimator": estimator, **numbers}, **changes}  # type: ignore[arg-type]
    )


def steps_of(graded: GradedRollout, count: int = 1) -> list[list[Member]]:
    return list(graded.minibatches(count, max_tokens=9))


def flat(rows: Sequence[Sequence[float]]) -> list[float]:
    return [value for row in rows for value in row]


ROOT = sqrt(3) / 4
"""The population std of (1, 0, 0, 0) and of (1, 1, 1, 0)."""
PAPER: dict[str, tuple[dict[str, object], Rewards, Sequence[Sequence[int]] | None, list[float]]] = {
    # mean 1/4, std sqrt(3)/4
    "group_zscore": ({"std_eps": 0.0}, [[1, 0, 0, 0]], None, [0.75 / ROOT, *[-0.25 / ROOT] * 3]),
    "group_mean": ({}, [[1, 0, 0, 0], [2, 0]], None, [0.75, *[-0.25] * 3, 1, -1]),
    # the others of the 1 have mean 0, those of a 0 have 1/2
    "rloo": ({}, [[1, 0, 0]], None, [1, -0.5, -0.5]),
    # b = (1 * 1 + 2 * 1) / 6
    "length_weighted": ({}, [[1, 0, 1]], [[1, 3, 2]], [0.5, -0.5, 0.5]),
    # c = .5, -.5, 0, 0 over the std of 1, 0, 1, 1
    "batch_std": ({"std_eps": 0.0}, [[1, 0], [1, 1]], None, [0.5 / ROOT, -0.5 / ROOT, 0, 0]),
    "batch_loo": ({}, [[1], [0], [0]], None, [1, -0.5, -0.5]),
    # others of the group 3/4, other groups' means 1/4: 1 - (0 + 2/3 / 4), 0 - (1/2 * 3/4 + 2/3 / 4), ...
    "shrink": (
        {"shrinkage": 0.25},
        [[1, 0, 0], [1, 1, 0]],
        None,
        [5 / 6, *[-13 / 24] * 2, *[13 / 24] * 2, -5 / 6],
    ),
    # returns 1 | 0 0 0 over tokens: mean 1/4
    "reinforce_pp": ({}, [[1], [0]], [[1], [3]], [0.75 / ROOT, -0.25 / ROOT]),
    # c = .5 (2 tokens), -.5 (6), 0 (8): mean -1/8, var 1/8 - 1/64 = 7/64
    "reinforce_pp_baseline": (
        {},
        [[1, 0], [1, 1]],
        [[2, 6], [4, 4]],
        [5 / sqrt(7), -3 / sqrt(7), 1 / sqrt(7), 1 / sqrt(7)],
    ),
    "maxrl": ({"std_eps": 0.0}, [[1, 0, 0, 0], [0, 0]], None, [3, -1, -1, -1, 0, 0]),
    # one virtual 1 beside three 0
    "ngrpo": ({"std_eps": 0.0}, [[0, 0, 0]], None, [-0.25 / ROOT] * 3),
    # half of the pairs hold the 1: sd 1/2; a wrong one: 1/2 - 2/3
    "pass_at_k": ({"k": 2, "std_eps": 0.0}, [[1, 0, 0, 0]], None, [1, *[-1 / 3] * 3]),
    # 3 of 6 pairs hold the 1, each with a lead of 1
    "pkpo": ({"k": 2}, [[1, 0, 0, 0]], None, [0.5, 0, 0, 0]),
    # std sqrt(1/6)
    "top_gap": ({"std_eps": 0.0}, [[1, 0.5, 0]], None, [0.5 * sqrt(6), 0, 0]),
    # so steep that p = 1/4 weighs 1.5, and 1 - p = 3/4, the midpoint, 0.95
    "difficulty": (
        {"std_eps": 0.0, "difficulty": {"slope": 1000.0}},
        [[1, 0, 0, 0]],
        None,
        [1.5 * 0.75 / ROOT, *[-0.95 * 0.25 / ROOT] * 3],
    ),
    "raft": ({"threshold": 0.5}, [[1, 0, 0.5], [0.2]], None, [1, 0, 1, 0]),
}


@pytest.mark.parametrize("estimator", PAPER)
def test_every_estimator_of_completions_reaches_the_update_as_on_paper(estimator):
    numbers, rewards, lengths, expected = PAPER[estimator]
    graded = grade(groups_of(rewards, lengths), objective_of(estimator, **numbers))
    assert flat(graded.rows()) == pytest.approx(expected, abs=1e-9)
    assert [len(row) for row in graded.rows()] == [len(row) for row in rewards]
    sizes = flat(lengths) if lengths else [2] * len(expected)
    assert [row.tolist() for row in graded.advantages] == [
        [pytest.approx(gain, abs=1e-9)] * size for gain, size in zip(expected, sizes, strict=True)
    ]


def test_gdpo_reaches_the_update_as_on_paper():
    # z of answer +1 -1 | 0 0, of format -1 +1 | +1 -1; a = z1 + z2 / 2 = .5 -.5 | .5 -.5: mean 0, std 1/2.
    parts = [[{"a": 1.0, "f": 0.0}, {"a": 0.0, "f": 1.0}], [{"a": 1.0, "f": 1.0}, {"a": 1.0, "f": 0.0}]]
    groups = groups_of([[1, 0.5], [1.5, 1]], components=parts)
    judgement = Judgement(component_weights={"a": 1.0, "f": 0.5})
    graded = grade(groups, objective_of("gdpo", std_eps=0.0), judgement)
    assert flat(graded.rows()) == pytest.approx([1, -1, 1, -1])
    swapped = grade(groups, objective_of("gdpo", std_eps=0.0), Judgement(component_weights={"a": 0.5, "f": 1.0}))
    assert flat(swapped.rows()) == pytest.approx([a / sqrt(0.625) for a in (-0.5, 0.5, 1, -1)])  # var (.25 + 1) / 2
    with pytest.raises(ValueError, match="component"):
        grade(groups, objective_of("gdpo"))


def test_gae_reaches_the_update_as_on_paper():
    # r = 0 0 1, V = .5 .6 .8, lam 1/2: deltas .1 .2 .2, A = .1 + .15 .3 .2; the record holds their mean.
    values = {0: torch.tensor([0.5, 0.6, 0.8]), 2: torch.tensor([0.4])}
    graded = grade(groups_of([[1, None], [0]], [[3, 2], [1]]), objective_of("gae", lam=0.5), Judgement(values=values))
    assert [row.tolist() for row in graded.advantages] == [
        pytest.approx([0.25, 0.3, 0.2], abs=1e-6),
        [0.0, 0.0],
        pytest.approx([-0.4], abs=1e-6),
    ]
    assert flat(graded.rows()) == pytest.approx([0.25, 0.0, -0.4], abs=1e-6)
    assert {i: row.tolist() for i, row in graded.returns.items()} == {
        0: pytest.approx([0.75, 0.9, 1.0], abs=1e-6),
        2: pytest.approx([0.0], abs=1e-6),
    }


ALL = [*PAPER, "gdpo", "gae"]


def graded_with(
    estimator: str, rewards: Rewards, lengths: Sequence[Sequence[int]] | None = None, **more: object
) -> GradedRollout:
    """Under an estimator of any kind; values 1/4 everywhere, and components that say what the reward says."""
    truncated = more.pop("truncated", ())
    numbers = {"k": 2} if estimator in ("pass_at_k", "pkpo") else {}
    parts = [[{} if r is None else {"a": r, "f": 1.0 - r} for r in row] for row in rewards]
    groups = groups_of(rewards, lengths, truncated=truncated, components=parts)  # type: ignore[arg-type]
    done = [c for group in groups for c in group.completions]
    values = {i: torch.full((len(c.token_ids),), 0.25) for i, c in enumerate(done) if c.token_ids}
    judgement = Judgement(
        component_weights={"a": 1.0, "f": 0.5} if estimator == "gdpo" else {},
        values=values if estimator == "gae" else None,
    )
    return grade(groups, objective_of(estimator, **numbers, **more), judgement)


BITS = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=4), min_size=1, max_size=3)


@pytest.mark.parametrize("estimator", ALL)
def test_a_completion_without_verdict_changes_nobody_elses_advantage_and_is_not_trained(estimator):
    @settings(max_examples=30)
    @given(BITS, st.integers(0, 2), st.integers(0, 4))
    def check(rewards: list[list[float]], group: int, place: int) -> None:
        p, g = group % len(rewards), place % (len(rewards[group % len(rewards)]) + 1)
        without = graded_with(estimator, rewards)
        row = [*rewards[p][:g], None, *rewards[p][g:]]
        given_too = graded_with(estimator, [*rewards[:p], row, *rewards[p + 1 :]])
        rows = [list(row) for row in given_too.rows()]
        assert rows[p].pop(g) == 0.0
        assert flat(rows) == pytest.approx(flat(without.rows()), abs=1e-9)
        for step in steps_of(given_too):
            assert [
                m.weight for m in step if m.completion.index == g and m.index == sum(map(len, rewards[:p])) + g
            ] == [0.0]

    check()


@pytest.mark.parametrize("estimator", ALL)
def test_a_rollout_without_verdicts_has_nothing_to_train_and_nothing_but_zeros(estimator):
    graded = graded_with(estimator, [[None, None], [None, None, None]])
    assert steps_of(graded) == []
    assert graded.is_dropped.tolist() == [True, True]
    assert flat(graded.rows()) == [0.0] * 5


@pytest.mark.parametrize("estimator", ALL)
def test_where_every_completion_is_truncated_and_masked_nothing_is_trained(estimator):
    everyone = [(p, g) for p in range(2) for g in range(3)]
    graded = graded_with(estimator, [[1, 0, 0], [1, 1, 0]], truncated=everyone, mask_truncated=True)
    assert steps_of(graded) == []
    assert all(isfinite(gain) for gain in flat(graded.rows()))
    assert graded.is_dropped.tolist() == [False, False]


@pytest.mark.parametrize("finish", [{}, {"clip": 0.5}])
@pytest.mark.parametrize("estimator", ALL)
def test_a_masked_completion_counts_in_the_statistics_and_an_empty_one_too(estimator, finish):
    # The second is truncated, the last is empty: both are graded, neither is trained, both count as sequences.
    rewards, lengths = [[1, 0, 0, 1], [1, 0]], [[2, 3, 1, 0], [2, 2]]
    graded = graded_with(
        estimator,
        rewards,
        lengths,
        truncated=[(0, 1)],
        mask_truncated=True,
        aggregation="seq-mean-token-sum",
        **finish,
    )
    [step] = steps_of(graded)
    weights = [member.weight for member in step]
    chosen = [0, 2, 4, 5] if estimator != "raft" else [0, 4]
    assert weights == [pytest.approx(1 / 6) if i in chosen else 0.0 for i in range(6)]
    assert all(isfinite(gain) for gain in flat(graded.rows()))
    assert [len(row) for row in graded.advantages] == [2, 3, 1, 0, 2, 2]


@pytest.mark.parametrize("estimator", ALL)
def test_a_group_of_one_is_trained_only_where_the_baseline_comes_from_elsewhere(estimator):
    graded = graded_with(estimator, [[1], [0], [1]])
    stands_alone = estimator in NEEDS_NO_GROUP
    assert graded.is_dropped.tolist() == [not stands_alone] * 3
    assert not graded.is_silent.any()
    expected = {
        "batch_loo": [0.5, -1, 0.5],
        "raft": [1, 0, 1],
        "reinforce_pp": [1 / sqrt(2), -sqrt(2), 1 / sqrt(2)],  # mean 2/3, std sqrt(2)/3
        "gae": [0.75, -0.25, 0.75],
    }
    assert flat(graded.rows()) == pytest.approx(expected.get(estimator, [0] * 3), abs=1e-6)
    assert [len(step) for step in steps_of(graded)] == ([3] if stands_alone else [])


def test_one_scored_member_is_dropped_and_counts_nowhere():
    graded = graded_with("group_mean", [[1, None, None], [1, 0]], aggregation="seq-mean-token-sum")
    assert graded.is_dropped.tolist() == [True, False]
    [step] = steps_of(graded)
    assert [(member.index, member.weight) for member in step] == [(3, 0.5), (4, 0.5)]
    assert graded.rows()[0] == (0.0, 0.0, 0.0)


SILENT = [[1, 1], [1, 0, 0]]


@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        ("keep", [1 / 5] * 5),
        ("skip", [1 / 3] * 3),
        ("resample", [1 / 3] * 3),
        ("rescale", [1 / 5 * 5 / 3] * 5),  # B = 5, M = 2
    ],
)
def test_weights_with_a_silent_group(kind, weights):
    graded = graded_with("group_mean", SILENT, zero_variance=kind, aggregation="seq-mean-token-sum")
    [step] = steps_of(graded)
    assert [member.weight for member in step] == pytest.approx(weights)
    assert graded.is_silent.tolist() == [True, False]
    assert graded.rows()[0] == (0.0, 0.0)


@pytest.mark.parametrize(
    ("aggregation", "weights"),
    [  # lengths 2 3 | 1 1 4, the last one unscored: 7 tokens, 5 sequences, 2 prompts
        ("seq-mean-token-mean", [1 / 10, 1 / 15, 1 / 5, 1 / 5, 0]),
        ("token-mean", [1 / 7, 1 / 7, 1 / 7, 1 / 7, 0]),
        ("seq-mean-token-sum", [1 / 5, 1 / 5, 1 / 5, 1 / 5, 0]),
        ("constant", [1 / 45, 1 / 45, 1 / 45, 1 / 45, 0]),
        ("prompt-mean", [1 / 10, 1 / 10, 1 / 4, 1 / 4, 0]),
    ],
)
def test_weights_of_unequal_groups(aggregation, weights):
    lengths = [[2, 3], [1, 1, 4]]
    graded = graded_with("rloo", [[1, 0], [1, 0, None]], lengths, aggregation=aggregation)
    [step] = steps_of(graded)
    assert [member.weight for member in step] == pytest.approx(weights)


def test_rescaling_looks_at_each_step_alone_and_at_no_dropped_group():
    rewards = [[1, 1], [1, 0, 0], [1, None], [0, 0], [1, 0]]
    graded = graded_with("group_mean", rewards, zero_variance="rescale", aggregation="seq-mean-token-sum")
    first, second = steps_of(graded, 2)
    assert [member.weight for member in first] == pytest.approx([1 / 3] * 5)  # 1/5 * 5/3
    assert [member.weight for member in second] == pytest.approx([1 / 2] * 4)  # 1/4 * 4/2
    everyone_silent = graded_with("group_mean", [[1, 1]], zero_variance="rescale", aggregation="seq-mean-token-sum")
    assert [member.weight for member in steps_of(everyone_silent)[0]] == [0.5, 0.5]


def test_groups_are_split_in_order_and_a_step_in_which_nobody_is_trained_is_left_out():
    truncated = [(1, 0), (1, 1)]
    graded = graded_with("rloo", [[1, 0], [1, 0], [0, 1]], truncated=truncated, mask_truncated=True)
    assert [[m.index for m in step] for step in steps_of(graded, 3)] == [[0, 1], [4, 5]]
    assert [[m.index for m in step] for step in steps_of(graded, 2)] == [[0, 1], [2, 3, 4, 5]]
    assert len(steps_of(graded, 9)) == 2


def test_silence_is_judged_by_the_task_metric_and_by_those_who_have_both():
    parts = [[{"a": 1.0}, {"a": 1.0}, {"a": None}], [{"a": 1.0}, {"a": 0.0}, {}]]
    groups = groups_of([[1.0, 0.9, 0.8], [0.5, 0.5, 0.5]], components=parts)
    graded = grade(groups, objective_of("group_mean", zero_variance="skip"), Judgement(primary="a"))
    assert graded.is_silent.tolist() == [True, False]
    assert graded.rows()[0] == (0.0, 0.0, 0.0)
    by_reward = grade(groups, objective_of("group_mean", zero_variance="skip"))
    assert by_reward.is_silent.tolist() == [False, True]
    assert by_reward.rows()[0] == pytest.approx((0.1, 0.0, -0.1))


def test_a_missing_component_makes_gdpo_pass_a_completion_over():
    full = [[{"a": 1.0, "f": 0.0}, {"a": 0.0, "f": 1.0}], [{"a": 1.0, "f": 1.0}, {"a": 0.0, "f": 0.0}]]
    judgement = Judgement(component_weights={"a": 1.0, "f": 0.5})
    expected = grade(groups_of([[1, 0], [1, 0]], components=full), objective_of("gdpo"), judgement)
    for hole in ({"a": 1.0, "f": None}, {"a": 1.0}, {}):
        parts = [[*full[0], hole], full[1]]
        objective = objective_of("gdpo", aggregation="token-mean")
        graded = grade(groups_of([[1, 0, 1], [1, 0]], components=parts), objective, judgement)
        assert graded.rows()[0][2] == 0.0
        assert flat([graded.rows()[0][:2], graded.rows()[1]]) == pytest.approx(flat(expected.rows()))
        [step] = steps_of(graded)
        assert [member.weight for member in step] == [1 / 8, 1 / 8, 0.0, 1 / 8, 1 / 8]  # 8 tokens: none of its own
    alone = grade(groups_of([[1, 1]], components=[[full[0][0], {"a": 1.0}]]), objective_of("gdpo"), judgement)
    assert alone.is_dropped.tolist() == [True]
    other = grade(groups_of([[1, 0]], components=[[{}, {}]]), objective_of("rloo"), judgement)
    assert other.rows() == [(1.0, -1.0)]  # an estimator that looks at no component misses none


def same_tokens(group: Group, *members: int) -> Group:
    """These members say what the first of them says."""
    first = group.completions[members[0]].token_ids
    done = [completion(first, index=i) if i in members else given_as for i, given_as in enumerate(group.completions)]
    return Group(task=group.task, completions=tuple(done), verdicts=group.verdicts)


def test_raft_learns_an_answer_once_a_group():
    [group, other] = groups_of([[1, 0, 1, 1], [1, 0]])
    graded = grade([same_tokens(group, 0, 3), other], objective_of("raft", aggregation="token-mean"))
    assert graded.rows() == [(1.0, 0.0, 1.0, 0.0), (1.0, 0.0)]  # the same words under another prompt are no repetition
    [step] = steps_of(graded)
    assert [member.weight for member in step] == pytest.approx([1 / 6, 0, 1 / 6, 0, 1 / 6, 0])


def test_raft_takes_no_answer_for_repeated_that_had_no_verdict_before():
    [group] = groups_of([[None, 0, 1]])
    assert grade([same_tokens(group, 0, 2)], objective_of("raft")).rows() == [(0.0, 0.0, 1.0)]


def test_raft_limits_how_many_of_a_group_are_imitated():
    groups = groups_of([[0.5, 1, 1, 0.7]])
    assert grade(groups, objective_of("raft", threshold=0.5, max_per_group=2)).rows() == [(1.0, 1.0, 0.0, 0.0)]
    assert grade(groups, objective_of("raft", threshold=0.5, best_of_group=True)).rows() == [(0.0, 1.0, 0.0, 0.0)]
    assert grade(groups, objective_of("raft", threshold=2.0)).rows() == [(0.0,) * 4]
    assert steps_of(grade(groups, objective_of("raft", threshold=2.0))) == []


def test_whitening_counts_trained_tokens_and_the_clip_comes_last():
    # A = .5 on 1 token, -.5 on 3: mean -1/4, std sqrt(3)/4. The truncated third and the silent group count nowhere.
    rewards, lengths = [[1, 0, 0.5], [1, 1]], [[1, 3, 5], [2, 2]]
    more = {"truncated": [(0, 2)], "mask_truncated": True, "zero_variance": "skip"}
    found = graded_with("group_mean", rewards, lengths, whiten=True, **more)
    assert flat(found.rows()) == pytest.approx([0.75 / ROOT, -0.25 / ROOT, 0, 0, 0], abs=1e-6)
    clipped = graded_with("group_mean", rewards, lengths, whiten=True, clip=1.0, **more)
    assert flat(clipped.rows()) == pytest.approx([1, -0.25 / ROOT, 0, 0, 0], abs=1e-6)
    kept = graded_with("group_mean", rewards, lengths, whiten=True, **{**more, "zero_variance": "keep"})
    assert kept.rows()[1][0] == pytest.approx(0.125 / sqrt(1 / 8 - 1 / 64))  # 8 tokens: mean -1/8, mean square 1/8
    sample = graded_with("group_mean", rewards, lengths, whiten=True, ddof=1, **more)
    assert sample.rows()[0][0] == pytest.approx(0.75 / 0.5, abs=1e-6)  # var 3/4 / 3


def test_whitening_of_tokens_passes_masked_ones_over():
    # V = 1/4: A = 3/4 on 1 token, -1/4 on 3; the truncated one is not trained, yet the critic hears of it.
    found = graded_with("gae", [[1, 0, 1]], [[1, 3, 2]], truncated=[(0, 2)], mask_truncated=True, whiten=True, lam=1.0)
    assert found.rows()[0][0] == pytest.approx(0.75 / ROOT, abs=1e-6)
    assert found.rows()[0][1] == pytest.approx(-0.25 / ROOT, abs=1e-6)
    assert [member.weight > 0 for member in steps_of(found)[0]] == [True, True, False]
    assert sorted(found.returns) == [0, 1, 2]


def test_a_penalty_is_subtracted_before_the_baseline_and_never_decides_silence():
    penalties = {0: torch.tensor([0.1, 0.2]), 1: torch.tensor([0.1, 0.0]), 2: torch.zeros(2), 3: torch.ones(2)}
    objective = objective_of("rloo", zero_variance="skip", kl_coef=1.0, kl_estimator="k1", kl_placement="reward")
    graded = grade(groups_of([[1, 0], [1, 1]]), objective, Judgement(penalties=penalties))
    assert flat(graded.rows()) == pytest.approx([0.7 + 0.1, -0.1 - 0.7, 0, 0])
    assert graded.is_silent.tolist() == [False, True]


def test_a_penalty_of_tokens_stands_where_it_arose():
    # Rewards of the tokens: -.1, 1 - .2 | 0: rewards to go .7 .8 | 0; mean .5.
    penalties = {0: torch.tensor([0.1, 0.2]), 1: torch.tensor([0.0])}
    objective = objective_of("reinforce_pp", kl_coef=1.0, kl_estimator="k1", kl_placement="reward")
    graded = grade(groups_of([[1, 0]], [[2, 1]]), objective, Judgement(penalties=penalties))
    std = sqrt((0.04 + 0.09 + 0.25) / 3)
    assert flat([row.tolist() for row in graded.advantages]) == pytest.approx([0.2 / std, 0.3 / std, -0.5 / std])
    assert graded.rows()[0][0] == pytest.approx(0.25 / std)


def test_one_token_is_too_little_to_whiten_with_a_sample_std():
    for estimator in ("reinforce_pp", "reinforce_pp_baseline"):
        rewards = [[1, None]] if estimator == "reinforce_pp" else [[1, 0]]
        graded = graded_with(estimator, rewards, [[1, 0]], ddof=1)
        assert flat(graded.rows()) == [0.0, 0.0]
