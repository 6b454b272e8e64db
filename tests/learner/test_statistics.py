"""Statistics of a rollout, from numbers small enough for paper."""

from dataclasses import replace

import pytest

from oncurve.learner import rollout_metrics
from oncurve.types import Completion, FinishReason, Group, Sampling, Status, Verdict
from tests.learner.build import group_of


def completion_of(length: int, *, is_truncated: bool = False) -> Completion:
    return Completion(
        task_id="t",
        index=0,
        prompt_ids=(5, 6),
        token_ids=tuple(range(1, length + 1)),
        old_logprobs=(-1.0,) * length,
        policy_version=0,
        finish_reason=FinishReason.LENGTH if is_truncated else FinishReason.STOP,
        sampling=Sampling(),
        text="",
    )


def groups_of(*rows: list[float | None]) -> list[Group]:
    return [group_of(f"t{i}", [completion_of(1 + j) for j in range(len(row))], row) for i, row in enumerate(rows)]


def test_rewards_over_scored_completions_only():
    metrics = rollout_metrics(groups_of([1.0, 0.0, None], [1.0, 1.0, 1.0], [None, None, 0.5]))
    assert metrics["reward/mean"] == pytest.approx(4.5 / 6)
    assert metrics["reward/group_std"] == pytest.approx((0.5 + 0.0) / 2)  # the third group has one scored member
    assert metrics["reward/no_verdict_frac"] == pytest.approx(3 / 9)


def test_group_shares_add_up_to_one():
    metrics = rollout_metrics(groups_of([1.0, 0.0], [1.0, None], [0.0, 0.0], [None, None], [0.0, 1.0]))
    shares = {name: metrics[f"groups/{name}"] for name in ("all_right", "mixed", "all_wrong", "no_verdict")}
    assert shares == pytest.approx({"all_right": 0.2, "mixed": 0.4, "all_wrong": 0.2, "no_verdict": 0.2})
    assert metrics["completions/correct"] == 3.0  # one in each of the groups with a reward of 1


def test_each_component_is_summarised_on_its_own():
    def verdict(answer: float, tags: float | None) -> Verdict:
        return Verdict(status=Status.CORRECT, reward=answer, components={"answer": answer, "tags": tags})

    group = replace(groups_of([1.0, 1.0])[0], verdicts=(verdict(1.0, 0.25), verdict(0.0, None)))
    metrics = rollout_metrics([group])
    assert metrics["component/answer/mean"] == 0.5
    assert metrics["component/answer/group_std"] == 0.5
    assert metrics["component/tags/mean"] == 0.25
    assert "component/tags/group_std" not in metrics  # one value has no spread


def test_lengths_and_tokens():
    lengths = [1, 2, 3, 10]
    completions = [completion_of(length, is_truncated=length == 10) for length in lengths]
    metrics = rollout_metrics([group_of("t", completions, [1.0, 0.0, 0.0, 0.0])], [[3.0, 2.0, 1.0, -6.0]])
    assert metrics["length/mean"] == 4.0
    assert metrics["length/p50"] == 2.5
    assert metrics["length/p90"] == pytest.approx(3 + 0.7 * 7)
    assert metrics["length/max"] == 10.0
    assert metrics["length/truncated_frac"] == 0.25
    assert metrics["length/advantage_correlation"] == pytest.approx(-1.0)  # A = 4 - length
    assert metrics["tokens/completion"] == 16.0
    assert metrics["tokens/prompt"] == 8.0


def test_nothing_scored_leaves_the_mean_out():
    metrics = rollout_metrics(groups_of([None, None]))
    assert "reward/mean" not in metrics
    assert metrics["groups/no_verdict"] == 1.0


def test_an_empty_rollout_is_refused():
    with pytest.raises(ValueError, match="without completions"):
        rollout_metrics([])
