"""The arithmetic of a comparison, from run folders written by hand: two arms, two seeds, four tasks."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from oncurve.config import ComparisonPlan, PlannedRun, dump_config, load_comparison
from oncurve.report import RunFolder
from oncurve.report.arms import CurvePoint, Paired
from oncurve.train.arms_result import accuracy_of, compare_arms, lead_of
from oncurve.types import RunError

FILE = """
tokens = 20
seeds = [0, 1]
output = "{output}"
[arms.a]
objective.preset = "ppo"
[arms.b]
method = "dpo"
"""
ONLINE = {"tokens/completion": 10.0, "tokens/trained": 8.0, "completions/correct": 3.0}


PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "comparison.md"


def examination(step: int, greedy: str, sampled: str | None = None) -> dict[str, Any]:
    return {
        "step": step,
        "greedy": greedy.count("1") / len(greedy),
        "num_tasks": len(greedy),
        "num_samples": 2,
        "task_digest": "same",
        "greedy_correct": greedy,
        "sampled_correct": sampled,
    }


def record(run: PlannedRun, steps: Sequence[dict[str, float]], evaluations: Sequence[dict[str, Any]]) -> RunFolder:
    folder = RunFolder.create(
        run.folder,
        config_toml=dump_config(run.config),
        environment={"starting_weights": "w0"},
        formula=f"minimise L of {run.name}",
    )
    for step, row in enumerate(steps):
        folder.append_metrics({"step": step, "memory/peak_bytes": 100.0 + run.seed + step, **row})
    for found in evaluations:
        folder.append_evaluation(found["step"], found)
    checkpoint = run.folder / "checkpoints" / "step_000002"
    checkpoint.mkdir()
    learner: dict[str, Any] = {"optimizer": {"masters": {"w": torch.zeros(3, 2), "b": torch.zeros(3)}}}
    if run.arm == "a":
        learner["critic"] = {"optimizer": {"masters": {"v": torch.zeros(5)}}}
    torch.save({"learner": learner}, checkpoint / "state.pt")
    return folder


@pytest.fixture
def plan(tmp_path: Path) -> ComparisonPlan:
    """Seconds: a step of a takes 1.5, the collection 2, a step of b 1. So a ends at 3 and b at 4."""
    file = tmp_path / "compare.toml"
    file.write_text(FILE.format(output=tmp_path / "out"))
    plan = load_comparison(file)
    a0, collect0, b0, a1, collect1, b1 = plan.runs
    online = [ONLINE | {"seconds/rollout": 1.0, "seconds/update": 0.5}] * 2
    record(a0, online, [examination(0, "1000"), examination(1, "1100"), examination(2, "1110", "2 2 0 0")])
    record(a1, online, [examination(0, "1000"), examination(1, "1000"), examination(2, "1100", "1 1 0 0")])
    for run in (collect0, collect1):
        record(run, [{**ONLINE, "seconds/rollout": 0.75, "seconds/verify": 0.25, "tokens/trained": 0.0}] * 2, [])
    pairs = [{"tokens/completion": 7.0, "seconds/update": 0.75, "seconds/reference": 0.25}] * 2
    record(b0, pairs, [examination(0, "1000"), examination(1, "1100"), examination(2, "1111", "2 2 1 1")])
    record(b1, pairs, [examination(0, "1000"), examination(1, "1001"), examination(2, "1101", "2 2 1 1")])
    return plan


def test_accuracy_at_equal_tokens_is_that_after_the_budget(plan: ComparisonPlan) -> None:
    a, b = compare_arms(plan).arms
    assert (a.greedy.mean, a.greedy.seeds) == (0.625, (0.75, 0.5))  # 1110 and 1100
    assert (b.greedy.mean, b.greedy.seeds) == (0.875, (1.0, 0.75))  # 1111 and 1101
    # Task means of a: 1, 1, 1/2, 0. SE = sqrt(0.6875 / 12) = 0.239, t(3) = 3.18: wider than all shares.
    assert a.greedy.interval == (0.0, 1.0)
    assert a.greedy.against_first is None
    # Only the last task differs: either sign moves the mean as far.
    assert b.greedy.against_first == Paired(difference=0.25, p=1.0)
    assert (a.start, b.start) == (0.25, 0.25)


def test_sampled_accuracy_is_tested_task_by_task_on_means_over_seeds(plan: ComparisonPlan) -> None:
    a, b = compare_arms(plan).arms
    assert (a.pass_at_1.mean, b.pass_at_1.mean) == (0.375, 0.75)
    # Means of a: 3/4, 3/4, 0, 0; of b: 1, 1, 1/2, 1/2. All four differences are positive: 2 of 16 sign patterns.
    assert b.pass_at_1.against_first == Paired(difference=0.375, p=0.125)


def test_equal_time_is_that_of_the_shortest_arm_and_the_collection_counts(plan: ComparisonPlan) -> None:
    found = compare_arms(plan)
    a, b = found.arms
    assert found.shortest_seconds == 3.0
    assert a.in_time == a.greedy  # the shortest arm is measured at its own end
    assert b.in_time.seeds == (0.5, 0.5)  # after one step: 2 + 1 seconds, 1100 and 1001
    assert b.in_time.against_first is not None
    assert b.in_time.against_first.difference == 0.5 - 0.625


def test_who_is_ahead_differs_between_tokens_and_time(plan: ComparisonPlan) -> None:
    found = compare_arms(plan)
    assert (found.at_equal_tokens.best, found.at_equal_tokens.second) == ("b", "a")
    assert (found.at_equal_time.best, found.at_equal_time.second) == ("a", "b")
    assert found.at_equal_time.paired.difference == 0.125


def test_costs_are_means_over_seeds_with_the_collection_and_memory_is_the_most(plan: ComparisonPlan) -> None:
    a, b = compare_arms(plan).arms
    assert (a.costs.seconds, a.costs.rollout_tokens, a.costs.trained_tokens) == (
        {"rollout": 2.0, "update": 1.0},
        20,
        16,
    )
    assert (a.costs.correct, a.costs.held_out_gained) == (6, 2)  # gained 2 and 1: 1.5, which rounds to 2
    assert b.costs.seconds == {"rollout": 1.5, "verify": 0.5, "reference": 0.5, "update": 1.5}
    assert (b.costs.rollout_tokens, b.costs.trained_tokens, b.costs.steps) == (20, 14, 2)
    assert a.costs.peak_bytes == 102  # seed 1, second step


def test_a_curve_holds_the_examinations_that_all_seeds_share(plan: ComparisonPlan) -> None:
    a, b = compare_arms(plan).arms
    assert a.curve == (
        CurvePoint(tokens=0.0, seconds=0.0, mean=0.25, low=0.25, high=0.25),
        CurvePoint(tokens=10.0, seconds=1.5, mean=0.375, low=0.25, high=0.5),
        CurvePoint(tokens=20.0, seconds=3.0, mean=0.625, low=0.5, high=0.75),
    )
    # The offline arm stays where it started while it samples.
    assert [(point.tokens, point.seconds) for point in b.curve] == [(0.0, 0.0), (20.0, 2.0), (20.0, 3.0), (20.0, 4.0)]
    assert [point.mean for point in b.curve] == [0.25, 0.25, 0.5, 0.875]


def test_an_arm_is_described_by_what_it_is(plan: ComparisonPlan) -> None:
    a, b = compare_arms(plan).arms
    assert (a.is_online, a.baseline, a.constraint) == (True, "critic, lam 1", "clip 0.2/0.2")
    assert (b.is_online, b.baseline, b.constraint) == (
        *(False, "the rejected one of the pair", "reference in the loss, beta 0.1"),
    )
    assert (a.trained_parameters, a.critic_parameters, b.critic_parameters) == (9, 5, 0)
    assert a.formula == "minimise L of a-seed0"


def test_other_tasks_or_other_weights_are_no_comparison(plan: ComparisonPlan) -> None:
    folder = RunFolder.open(plan.runs[0].folder)
    folder.append_evaluation(2, examination(2, "1110", "2 2 0 0") | {"task_digest": "other"})
    with pytest.raises(RunError, match="examined on different tasks"):
        compare_arms(plan)
    folder.append_evaluation(2, examination(2, "1110", "2 2 0 0"))
    (plan.runs[0].folder / "environment.json").write_text('{"starting_weights": "w1"}')
    with pytest.raises(RunError, match=r"started from different weights .*a-seed0 w1, collect-seed0 w0"):
        compare_arms(plan)


def test_a_run_without_its_end_or_its_answers_is_named(plan: ComparisonPlan) -> None:
    folder = RunFolder.open(plan.runs[3].folder)
    older = {name: value for name, value in examination(1, "1000").items() if name != "greedy_correct"}
    folder.append_evaluation(1, older)
    with pytest.raises(RunError, match="a-seed1 holds examinations without the answers of single tasks"):
        compare_arms(plan)
    (plan.runs[3].folder / "eval" / "step_2.json").unlink()
    with pytest.raises(RunError, match="a-seed1 is not finished"):
        compare_arms(plan)


def test_of_equal_arms_the_earlier_leads() -> None:
    scores = {"x": [(1.0, 0.0)], "y": [(0.0, 1.0)], "z": [(0.0, 0.0)]}
    lead = lead_of(scores)
    assert (lead.best, lead.second, lead.paired.difference) == ("x", "y", 0.0)
    assert accuracy_of("z", scores).against_first == Paired(difference=-0.5, p=1.0)


def test_the_code_on_the_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), {})
