"""Length against error, on groups small enough for paper."""

import random

import pytest

from oncurve.icl.traces import TraceResult, TraceSettings, compare_traces
from oncurve.report import Rollout
from oncurve.types import FinishReason, RunError, Status


def rollout(tokens: int, *, is_right: bool | None, step: int = 0, group: int = 0, task: str = "a", cut: bool = False):
    status = Status.NO_VERDICT if is_right is None else Status.CORRECT if is_right else Status.WRONG
    return Rollout(
        step=step,
        group=group,
        task_id=task,
        kind="sum",
        prompt="?",
        gold="1",
        index=0,
        text="x" * tokens,
        prompt_ids=(1,),
        token_ids=(7,) * tokens,
        old_logprobs=(0.0,) * tokens,
        policy_version=step,
        finish_reason=FinishReason.LENGTH if cut else FinishReason.STOP,
        status=status,
        reward=None if is_right is None else float(is_right),
        components={},
        evidence="",
        cause="crash" if is_right is None else None,
        advantage=0.0,
    )


def simpson() -> list[Rollout]:
    """Ten easy tasks with short traces, ten hard ones with long traces; within each, the longer attempts are right."""
    found = []
    for number in range(10):
        easy = [(10, False), (12, True), (14, True), (16, True)]
        hard = [(80, False), (84, False), (88, False), (96, True)]
        for group, members in ((2 * number, easy), (2 * number + 1, hard)):
            found += [rollout(n, is_right=right, group=group, task=f"t{group}") for n, right in members]
    return found


def test_difficulty_does_not_count():
    every = compare_traces(simpson()).every
    # Ranks 1 2 3 4 against errors: easy ranks 4 2 2 2, hard 3 3 3 1, both with correlation -sqrt(3/5).
    assert every.within_spearman.value == pytest.approx(-((3 / 5) ** 0.5))
    assert every.within_spearman.sign == -1
    assert every.pooled_spearman > 0.1
    assert (every.num_groups, every.num_telling_groups, every.num_tasks) == (20, 20, 20)
    assert every.mean_error == 0.5


def test_the_parts_by_length():
    every = compare_traces(simpson(), TraceSettings(num_bins=2)).every
    # Shorter half: easy 1/2 - 1/4, hard 1 - 3/4, so 1/4 above the mean; the longer half 1/4 below.
    assert [part.error.value for part in every.bins] == [0.75, 0.25]
    assert [part.mean_tokens for part in every.bins] == [(10 + 12 + 80 + 84) / 4, (14 + 16 + 88 + 96) / 4]
    assert every.bins[0].error.interval == (0.75, 0.75)  # every task says the same


def test_the_error_of_a_trace_twice_as_long():
    # log2 lengths -1 and 1 from their mean, errors 1 and 0: slope -1/2 a doubling.
    rows = [rollout(8, is_right=False), rollout(32, is_right=True)]
    every = compare_traces(rows).every
    assert every.error_per_doubling.value == pytest.approx(-0.5)
    assert every.error_per_doubling.interval is None  # one task
    assert every.error_per_doubling.sign == 0


def test_groups_without_a_difference_say_nothing():
    rows = [
        *(rollout(5, is_right=right, group=0) for right in (True, False)),
        *(rollout(n, is_right=True, group=1, task="b") for n in (3, 9)),
    ]
    every = compare_traces(rows).every
    assert (every.num_groups, every.num_telling_groups) == (2, 0)
    assert every.within_spearman is None
    assert every.error_per_doubling is None


def test_truncated_completions_stand_apart_and_unscored_ones_are_counted():
    rows = [
        rollout(4, is_right=False),
        rollout(6, is_right=True),
        rollout(64, is_right=False, cut=True),
        rollout(64, is_right=False, cut=True),
        rollout(9, is_right=None),
    ]
    found = compare_traces(rows)
    assert (found.num_without_verdict, found.num_truncated) == (1, 2)
    assert (found.every.num_completions, found.finished.num_completions) == (4, 2)
    assert found.every.within_spearman.value > 0 > found.finished.within_spearman.value
    assert compare_traces(rows[2:4]).finished is None


def test_groups_of_the_same_task_count_as_one_cluster():
    dice = random.Random(0)
    rows = [
        rollout(dice.randrange(5, 50), is_right=dice.random() < 0.5, step=step, group=0, task=f"t{step % 4}")
        for step in range(40)
        for _ in range(8)
    ]
    few = compare_traces(rows).every
    apart = compare_traces(
        [rollout(len(r.token_ids), is_right=r.status is Status.CORRECT, step=r.step, task=f"s{r.step}") for r in rows]
    ).every
    assert (few.num_tasks, apart.num_tasks) == (4, 40)
    assert few.within_spearman.value == pytest.approx(apart.within_spearman.value)
    assert few.within_spearman.interval != apart.within_spearman.interval


def test_without_an_effect_the_interval_holds_zero():
    held = 0
    for seed in range(40):
        dice = random.Random(seed)
        rows = [
            rollout(dice.randrange(5, 50), is_right=dice.random() < 0.5, group=group, task=f"t{group}")
            for group in range(30)
            for _ in range(6)
        ]
        held += compare_traces(rows, TraceSettings(resamples=300)).every.within_spearman.sign == 0
    assert 33 <= held <= 40  # 38 expected of 40, standard deviation 1.4


def test_training_in_parts():
    rows = [rollout(10 + step, is_right=step % 2 == 0, step=step) for step in range(25)]
    parts = compare_traces(rows).training
    assert len(parts) == 10
    assert (parts[0].first_step, parts[-1].last_step) == (0, 24)
    assert parts[0].mean_tokens == 10.5  # steps 0 and 1
    assert parts[0].mean_error == 0.5
    assert [before.last_step + 1 for before in parts[:-1]] == [after.first_step for after in parts[1:]]


def test_settings_do_something():
    rows = simpson()
    assert len(compare_traces(rows, TraceSettings(num_bins=4)).every.bins) == 4
    dice = random.Random(3)
    noisy = [
        rollout(dice.randrange(5, 50), is_right=dice.random() < 0.5, group=g, task=f"t{g}")
        for g in range(9)
        for _ in range(5)
    ]
    intervals = {
        compare_traces(noisy, TraceSettings(seed=seed, resamples=resamples)).every.within_spearman.interval
        for seed, resamples in ((0, 200), (1, 200), (0, 300))
    }
    assert len(intervals) == 3


def test_without_verdicts_there_is_nothing_to_compare():
    with pytest.raises(ValueError, match="no completion of this run has a verdict"):
        compare_traces([rollout(4, is_right=None)])


def test_a_result_survives_its_file(tmp_path):
    found = compare_traces(simpson(), run="r")
    found.write(tmp_path / "traces.json")
    assert TraceResult.read(tmp_path / "traces.json") == found
    assert TraceResult.read_if_there(tmp_path / "none.json") is None
    (tmp_path / "traces.json").write_text("{}")
    with pytest.raises(RunError, match="is not a TraceResult of this version"):
        TraceResult.read(tmp_path / "traces.json")
