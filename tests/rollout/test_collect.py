"""Groups, their book-keeping, and the choice of groups that carry a signal.

The judge below is a rule on the first token, so that the expected verdicts can be computed from the completions.
"""

import math
from collections.abc import Sequence

import pytest
from pydantic import ValidationError

from oncurve.model import fresh_embedded_policy
from oncurve.rollout import Collector, Rollout, RolloutSettings, TorchEngine, collect_informative, is_informative
from oncurve.types import Completion, FinishReason, Group, Message, Sampling, Status, Task, Verdict
from oncurve.verify import Item

SAMPLING = Sampling(max_tokens=6)


def task(name: str, prompt: str = "1+2=") -> Task:
    return Task(id=name, prompt=prompt, gold="3", kind="sum", verifier="answer")


def verdict(value: float | None) -> Verdict:
    if value is None:
        return Verdict(status=Status.NO_VERDICT, reward=None, cause="timeout", components={"answer": None})
    status = Status.CORRECT if value == 1.0 else Status.WRONG
    return Verdict(status=status, reward=value, components={"answer": value})


class FirstTokenIsEven:
    """Right when the first sampled id is even."""

    def score(self, items: Sequence[Item]) -> list[Verdict]:
        return [verdict(1.0 - item.token_ids[0] % 2) for item in items]


def collector(judge=None, *, seed: int = 1, **settings) -> Collector:
    policy = fresh_embedded_policy(0)
    engine = TorchEngine(policy, max_rows=64)
    chosen = RolloutSettings(group_size=3, sampling=SAMPLING, **settings)
    return Collector(policy, engine, judge or FirstTokenIsEven(), chosen, seed=seed)


def test_every_task_gets_its_group_with_verdicts_in_place():
    tasks = [task("a", "1+2="), task("b", "7-4=")]
    rollout = collector().collect(tasks, policy_version=5)
    assert [group.task for group in rollout.groups] == tasks
    encode = fresh_embedded_policy(0).encode_prompt
    for group in rollout.groups:
        assert [completion.index for completion in group.completions] == [0, 1, 2]
        for completion, found in zip(group.completions, group.verdicts, strict=True):
            assert completion.task_id == group.task.id
            assert completion.prompt_ids == encode(group.task.prompt)
            assert completion.policy_version == 5
            assert completion.sampling == SAMPLING
            assert found == verdict(1.0 - completion.token_ids[0] % 2)
    assert rollout.seconds_rollout > rollout.seconds_verify > 0


def test_the_judge_sees_task_text_ids_and_truncation():
    seen: list[Item] = []

    class Watching(FirstTokenIsEven):
        def score(self, items):
            seen.extend(items)
            return super().score(items)

    rollout = collector(Watching()).collect([task("a"), task("b")], policy_version=0)
    completions = [completion for group in rollout.groups for completion in group.completions]
    assert seen == [
        Item(
            task=task(completion.task_id),
            text=completion.text,
            token_ids=completion.token_ids,
            is_truncated=completion.is_truncated,
        )
        for completion in completions
    ]


def tokens(rollout: Rollout) -> list[tuple[int, ...]]:
    return [completion.token_ids for group in rollout.groups for completion in group.completions]


def test_streams_are_named_by_seed_step_round_task_and_index():
    base = tokens(collector().collect([task("a")], policy_version=3))
    assert len(set(base)) == 3
    assert tokens(collector().collect([task("a")], policy_version=3)) == base
    assert tokens(collector().collect([task("b"), task("a")], policy_version=3))[3:] == base
    assert tokens(collector().collect([task("a")], policy_version=9, step=3)) == base
    for other in (
        collector(seed=2).collect([task("a")], policy_version=3),
        collector().collect([task("a")], policy_version=4),
        collector().collect([task("a")], policy_version=3, round_index=1),
        collector().collect([task("b")], policy_version=3),
    ):
        assert not set(tokens(other)) & set(base)


def test_a_judge_that_returns_too_few_is_refused():
    class Lazy(FirstTokenIsEven):
        def score(self, items):
            return super().score(items)[:-1]

    with pytest.raises(ValueError, match="6 completions were scored, but 5 verdicts came back"):
        collector(Lazy()).collect([task("a"), task("b")], policy_version=0)


def test_a_task_that_comes_twice_is_refused():
    with pytest.raises(ValueError, match=r"task a comes twice in one rollout.*same random numbers"):
        collector().collect([task("a"), task("b"), task("a")], policy_version=0)


def test_no_tasks_give_an_empty_rollout():
    rollout = collector().collect([], policy_version=0)
    assert rollout.groups == ()
    assert rollout.metrics() == {}
    assert rollout.accepted_frac == 1.0


def group(name: str, values: list[float | None], texts: str = "abcdefgh") -> Group:
    completions = tuple(
        Completion(
            task_id=name,
            index=index,
            prompt_ids=(1, 2),
            token_ids=(3,) * (index + 1),
            old_logprobs=(-1.0,) * (index + 1),
            policy_version=0,
            finish_reason=FinishReason.STOP,
            sampling=SAMPLING,
            text=texts[index],
        )
        for index in range(len(values))
    )
    return Group(task=task(name), completions=completions, verdicts=tuple(map(verdict, values)))


def test_metrics_describe_everything_sampled():
    # Trained on: 3 completions of 1 + 2 + 3 tokens. Set aside: 2 of 1 + 2 tokens, with one text twice.
    rollout = Rollout(
        groups=(group("a", [1.0, 0.0, 0.0]),),
        set_aside=(group("b", [1.0, 1.0], texts="xx"),),
        num_rounds=2,
        seconds_rollout=0.5,
        parts={"prefill": 0.125, "decode": 0.25},
        seconds_verify=0.25,
        seconds_verify_busy=0.375,
    )
    assert rollout.metrics() == pytest.approx(
        {
            "tokens/completion": 9.0,
            "tokens/prompt": 4.0,
            "completions/distinct_frac": 4 / 5,
            "groups/accepted_frac": 1 / 2,
            "groups/rounds": 2.0,
            "seconds/rollout": 0.5,
            "seconds/rollout/prefill": 0.125,
            "seconds/rollout/decode": 0.25,
            "seconds/verify": 0.25,
            "seconds/verify_busy": 0.375,
            "tokens_per_second/rollout": 18.0,
        }
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 0.0, 0.0], True),
        ([1.0, 1.0, 1.0], False),
        ([1.0, None, 0.0], True),
        ([1.0, None, None], False),
        ([None, None], False),
        ([0.5, 0.5 + 1e-7], False),
        ([0.5, 0.5 + 1e-5], True),
    ],
)
def test_a_group_is_informative_when_two_scored_members_differ(values, expected):
    assert is_informative(group("a", values), primary="answer", tolerance=1e-6) is expected


def test_a_difference_of_exactly_the_tolerance_counts_as_equal():
    assert not is_informative(group("a", [0.0, 0.5]), primary="answer", tolerance=0.5)
    assert is_informative(group("a", [0.0, 0.5]), primary="answer", tolerance=0.25)


def test_the_task_metric_decides_and_not_the_reward():
    shaped = [
        Verdict(status=Status.CORRECT, reward=reward, components={"answer": 1.0, "length": reward})
        for reward in (0.25, 0.75)
    ]
    two = group("a", [1.0, 1.0])
    two = Group(task=two.task, completions=two.completions, verdicts=tuple(shaped))
    assert not is_informative(two, primary="answer", tolerance=1e-6)
    assert is_informative(two, primary="length", tolerance=1e-6)


class Source:
    """Tasks named by their pass rate, handed out in order; a group of rate r has that share of right completions."""

    def __init__(self, rates: list[float]) -> None:
        self.left = [task(f"{place}:{rate}") for place, rate in enumerate(rates)]
        self.calls: list[tuple[int, int]] = []

    def take(self, num_tasks: int) -> list[Task]:
        taken, self.left = self.left[:num_tasks], self.left[num_tasks:]
        return taken

    def collect(self, tasks: Sequence[Task], round_index: int) -> Rollout:
        self.calls.append((len(tasks), round_index))
        groups = [
            group(one.id, [1.0 if i < 4 * float(one.id.split(":")[1]) else 0.0 for i in range(4)]) for one in tasks
        ]
        return Rollout(
            groups=tuple(groups),
            seconds_rollout=2.0,
            parts={"decode": 1.25},
            seconds_verify=1.0,
            seconds_verify_busy=1.5,
        )


def resample(source: Source, *, extra_rounds: int) -> Rollout:
    return collect_informative(source.collect, source.take, num_prompts=3, extra_rounds=extra_rounds, primary="answer")


def names(groups: Sequence[Group]) -> list[str]:
    return [one.task.id for one in groups]


def test_resampling_replaces_groups_without_signal_until_enough_have_one():
    source = Source([0.0, 0.5, 1.0, 1.0, 0.25, 0.75, 0.5])
    rollout = resample(source, extra_rounds=5)
    # Round 0 keeps one of three, round 1 takes the two missing and keeps one, round 2 takes the last one.
    assert source.calls == [(3, 0), (2, 1), (1, 2)]
    assert names(rollout.groups) == ["1:0.5", "4:0.25", "5:0.75"]
    assert names(rollout.set_aside) == ["0:0.0", "2:1.0", "3:1.0"]
    assert rollout.accepted_frac == 0.5
    assert rollout.num_rounds == 3
    assert (rollout.seconds_rollout, rollout.seconds_verify, rollout.seconds_verify_busy) == (6.0, 3.0, 4.5)
    assert rollout.parts == {"decode": 3.75}


@pytest.mark.parametrize(("extra_rounds", "num_rounds"), [(0, 1), (2, 3)])
def test_the_budget_of_rounds_ends_it_with_fewer_groups(extra_rounds, num_rounds):
    rollout = resample(Source([0.5] + [0.0] * 20), extra_rounds=extra_rounds)
    assert names(rollout.groups) == ["0:0.5"]
    assert rollout.num_rounds == num_rounds
    assert rollout.accepted_frac == pytest.approx(1 / (3 + 2 * extra_rounds))


def test_resampling_needs_a_goal():
    with pytest.raises(ValueError, match="num_prompts must be at least 1, got 0"):
        collect_informative(lambda *_: None, lambda _: [], num_prompts=0, extra_rounds=1, primary="answer")


def test_a_group_of_one_and_greedy_rollouts_are_refused_with_the_reason():
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        RolloutSettings(group_size=0)
    with pytest.raises(ValidationError, match=r"temperature must be above 0.*same\s+text"):
        RolloutSettings(sampling=Sampling(temperature=0))
    assert math.isclose(RolloutSettings(group_size=2).sampling.temperature, 1.0)


def test_chat_prompts_go_through_the_policy():
    policy = fresh_embedded_policy(0)
    policy.tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}="
    chat = Task(id="c", prompt=(Message(role="user", content="1+2"),), gold="3", kind="sum", verifier="answer")
    settings = RolloutSettings(group_size=2, sampling=SAMPLING)
    made = Collector(policy, TorchEngine(policy, max_rows=4), FirstTokenIsEven(), settings, seed=0)
    (only,) = made.collect([chat], policy_version=0).groups
    assert only.completions[0].prompt_ids == policy.encode_prompt("1+2=")
