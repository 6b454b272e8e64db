"""Why tokens have no policy gradient, counted by hand on groups of known lengths."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch

from oncurve.algo import ObjectiveSettings
from oncurve.learner import Learner, LearnerSettings
from oncurve.learner.minibatch import grade
from oncurve.learner.zero_gradient import NONZERO, REASONS, count_by_reason
from oncurve.types import Completion, FinishReason, Group
from tests.learner.build import SAMPLING, group_of, tiny_policy

Shift = Mapping[int, float]
"""Added to the log-prob recorded for a token, by its place: the ratio there becomes exp(-shift)."""


def completion(index: int, length: int, *, is_truncated: bool = False) -> Completion:
    ids = tuple(7 + (11 * index + 5 * place) % 40 for place in range(length))
    return Completion(
        task_id="t",
        index=index,
        prompt_ids=(5, 6),
        token_ids=ids,
        old_logprobs=(0.0,) * length,
        policy_version=0,
        finish_reason=FinishReason.LENGTH if is_truncated else FinishReason.STOP,
        sampling=SAMPLING,
        text="",
    )


def group(
    lengths: Sequence[int], rewards: Sequence[float | None], shifts: Mapping[int, Shift] | None = None, cut: int = -1
) -> Group:
    """A group whose recorded log-probs are those of the policy, but for the shifts; member ``cut`` is truncated."""
    found = [completion(index, length, is_truncated=index == cut) for index, length in enumerate(lengths)]
    bare = group_of("t", found, [1.0, *[0.0] * (len(found) - 1)])
    probe = learner_of(ObjectiveSettings(loss="reinforce", zero_variance="keep")).gradient([bare])
    shifted = []
    for index, one in enumerate(found):
        extra = (shifts or {}).get(index, {})
        old = [value + extra.get(place, 0.0) for place, value in enumerate(probe.logprobs[index].tolist())]
        shifted.append(replace(one, old_logprobs=tuple(old)))
    return group_of("t", shifted, rewards)


def learner_of(objective: ObjectiveSettings) -> Learner:
    corrects = objective.correction.mode != "none"
    settings = LearnerSettings(max_logprob_gap=1e6, old_logprobs="auto" if corrects else "sampler")
    return Learner(tiny_policy(), settings, objective, sampling=SAMPLING)


def counts(groups: Sequence[Group], **objective: object) -> dict[str, int]:
    """The counts other than 0."""
    settings = ObjectiveSettings(**{"advantage": {"estimator": "group_mean"}, **objective})
    probe = learner_of(settings).gradient(groups)
    found = count_by_reason(probe.graded, probe)
    assert found.keys() == {NONZERO, *REASONS}
    assert sum(found.values()) == sum(len(done.token_ids) for one in groups for done in one.completions)
    return {name: count for name, count in found.items() if count}


@pytest.mark.parametrize("zero_variance", ["skip", "keep", "rescale"])
def test_tokens_of_an_equal_group_teach_nothing_wherever_they_count(zero_variance: str) -> None:
    groups = [group([2, 3], [1.0, 0.0]), group([4, 5], [1.0, 1.0])]
    assert counts(groups, zero_variance=zero_variance) == {"nonzero": 5, "equal_group": 9}


def test_an_estimator_that_learns_from_an_equal_group_does() -> None:
    groups = [group([2, 3], [1.0, 0.0]), group([4, 5], [0.0, 0.0])]
    assert counts(groups, advantage={"estimator": "ngrpo"}, zero_variance="keep") == {"nonzero": 14}


def test_without_a_verdict_nothing_is_learned_nor_from_a_group_with_only_one() -> None:
    groups = [group([2, 3, 4], [1.0, 0.0, None]), group([5, 6], [1.0, None])]
    assert counts(groups) == {"nonzero": 5, "no_verdict": 4 + 5 + 6}


def test_truncated_completions_are_left_out_only_when_they_are_masked() -> None:
    groups = [group([2, 3], [1.0, 0.0], cut=1), group([4, 5], [0.0, 0.0], cut=0)]
    assert counts(groups) == {"nonzero": 5, "equal_group": 9}
    assert counts(groups, mask_truncated=True) == {"nonzero": 2, "truncated": 3, "equal_group": 9}


def test_what_raft_does_not_select_is_named_so() -> None:
    groups = [group([2, 3], [1.0, 0.0]), group([4, 5], [0.0, 0.0])]
    found = counts(groups, loss="reinforce", advantage={"estimator": "raft"}, zero_variance="keep")
    assert found == {"nonzero": 2, "not_selected": 3 + 4 + 5}


def test_a_reward_at_the_baseline_is_no_equal_group() -> None:
    assert counts([group([2, 3, 4], [1.0, 0.5, 0.0])]) == {"nonzero": 6, "no_advantage": 3}


def test_the_clip_takes_the_gradient_on_one_side_for_each_sign() -> None:
    # ratios: e^0.25 = 1.28 > 1 + 0.2, e^-0.25 = 0.78 < 1 - 0.2; A > 0 is clipped above, A < 0 below
    shifts = {0: {0: -0.25, 1: 0.25}, 1: {0: -0.25, 1: 0.25}}
    groups = [group([4, 3], [1.0, 0.0], shifts)]
    assert counts(groups) == {"nonzero": 5, "clipped": 2}
    assert counts([*groups, group([2, 2], [1.0, 1.0])]) == {"nonzero": 5, "clipped": 2, "equal_group": 4}
    assert counts(groups, clip_high=0.3) == {"nonzero": 6, "clipped": 1}
    assert counts(groups, loss="cispo") == {"nonzero": 7}
    # the completion's ratio is exp(mean log-ratio): e^(0.5 / 2) for two of the four tokens shifted by 0.5
    groups = [group([4, 3], [1.0, 0.0], {0: {0: -0.5, 1: -0.5}})]
    assert counts(groups, loss="gspo") == {"nonzero": 3, "clipped": 4}


def test_a_clamped_ratio_counts_as_clipped_under_a_loss_without_a_band() -> None:
    groups = [group([4, 3], [1.0, 0.0], {0: {0: -25.0}})]
    assert counts(groups, loss="sapo") == {"nonzero": 6, "clipped": 1}


def test_a_correction_of_weight_0_is_told_from_a_clip() -> None:
    # recomputed ratios are 1, so nothing is clipped; the sampler's are e^1 = 2.7 > 2 at one token
    groups = [group([4, 3], [1.0, 0.0], {0: {0: -1.0}})]
    assert counts(groups, correction={"mode": "token_mask"}) == {"nonzero": 6, "correction": 1}
    assert counts(groups, correction={"mode": "seq_mask"}) == {"nonzero": 3, "correction": 4}
    assert counts(groups, correction={"mode": "token_truncate"}) == {"nonzero": 7}


def test_a_bad_completion_that_the_policy_has_left_is_named_divergence() -> None:
    # mean recorded - policy log-prob of the second: (0.3 + 0 + 0) / 3 = 0.1 > 0.05; its first token is clipped anyway
    groups = [group([4, 3], [1.0, 0.0], {1: {0: 0.3}})]
    assert counts(groups, max_divergence=0.05) == {"nonzero": 4, "clipped": 1, "divergence": 2}
    assert counts(groups, max_divergence=0.2) == {"nonzero": 6, "clipped": 1}


def test_the_entropy_filter_keeps_its_share() -> None:
    # of 5 tokens with distinct entropies 0.4 are kept: the quantile 0.6 lies between the third and the fourth
    groups = [group([3, 2], [1.0, 0.0])]
    assert counts(groups, token_filter={"mode": "high_entropy", "frac": 0.4}) == {"nonzero": 2, "filter": 3}


def test_where_nothing_is_trained_every_token_has_a_reason() -> None:
    groups = [group([2, 3], [1.0, 1.0]), group([4, 5], [None, 0.0])]
    found = count_by_reason(grade(groups, ObjectiveSettings()), None)
    assert {name: count for name, count in found.items() if count} == {"equal_group": 5, "no_verdict": 9}


def test_the_coefficients_are_those_of_the_real_gradient() -> None:
    """sum of coefficient * gradient of the log-prob, one token at a time, is the gradient of the step."""
    groups = [group([2, 3], [1.0, 0.0], {0: {0: -0.1}})]
    settings = ObjectiveSettings(advantage={"estimator": "group_mean"})
    learner = learner_of(settings)
    probe = learner.gradient(groups)
    (weight,) = {member.weight for member in probe.members if member.index == 0}
    assert weight == 1 / (2 * 2)  # seq-mean-token-mean, B = 2, L = 2
    model = learner.policy.model
    ratios = [0.1, 0.0]  # log-ratios of the two tokens of the good completion, A = 0.5
    expected = torch.zeros_like(next(model.parameters()))
    for member, weights in zip(sorted(probe.members, key=lambda one: one.index), (1 / 4, 1 / 6), strict=True):
        done = member.completion
        ids = torch.tensor([[*done.prompt_ids, *done.token_ids]])
        table = torch.log_softmax(model(input_ids=ids).logits[0] / SAMPLING.temperature, -1)
        for place, token in enumerate(done.token_ids):
            factor = -0.5 * torch.tensor(ratios[place]).exp() if member.index == 0 else 0.5
            (found,) = torch.autograd.grad(table[1 + place, token], next(model.parameters()), retain_graph=True)
            expected += weights * factor * found
    name = next(name for name, _ in model.named_parameters())
    torch.testing.assert_close(probe.gradient[name], expected, rtol=1e-4, atol=1e-6)
    assert count_by_reason(probe.graded, probe)["nonzero"] == 5
