"""A real comparison of two arms, one of them offline: run, kept, stopped, killed with SIGKILL, continued."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from oncurve.config import ComparisonPlan, PlannedRun, load_comparison, load_config
from oncurve.report import read_evaluations, read_metrics
from oncurve.train.arms import RunProgress, is_finished, refuse_other_run, run_arms
from oncurve.train.arms_result import compare_arms
from oncurve.types import ConfigError, RunError
from tests.processes import processes_with, wait_until

FILE = """
tokens = 500
seeds = [0]
output = "{output}"
[settings]
threads = 1
checkpoint_every = 1
tasks.num_held_out = 8
evaluation = {{ num_tasks = 8, num_samples = 2, k = 2, every = 1 }}
rollout = {{ num_prompts = 3, group_size = 4, sampling = {{ max_tokens = 40 }} }}
[arms.grpo]
objective.preset = "grpo"
[arms.dpo]
method = "dpo"
dpo = {{ batch_size = 2, passes = 1 }}
"""


def write_plan(folder: Path, *words: str) -> ComparisonPlan:
    file = folder / "compare.toml"
    file.write_text(FILE.format(output=folder / "out"))
    return load_comparison(file, words)


def make(runs: Sequence[PlannedRun]) -> list[RunProgress]:
    return list(run_arms(runs, tick_s=0.2))


def answers(runs: Sequence[PlannedRun]) -> dict[str, list[object]]:
    """All that a clock did not measure and the comparison is made of."""
    return {run.name: [*map(_untimed, read_metrics(run.folder)), *read_evaluations(run.folder)] for run in runs}


def _untimed(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in row if not name.startswith(("seconds/", "tokens_per_second/", "memory/"))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[ComparisonPlan, list[RunProgress]]:
    """A comparison that nobody interrupted."""
    plan = write_plan(tmp_path_factory.mktemp("whole"))
    return plan, make(plan.runs)


def test_every_run_is_made_in_a_process_of_its_own_and_compared(
    whole: tuple[ComparisonPlan, list[RunProgress]],
) -> None:
    plan, told = whole
    assert [(one.run.name, one.state) for one in told if one.state != "runs"] == [
        *(("grpo-seed0", "starts"), ("grpo-seed0", "done")),
        *(("collect-seed0", "starts"), ("collect-seed0", "done")),
        *(("dpo-seed0", "starts"), ("dpo-seed0", "done")),
    ]
    assert all(is_finished(run) for run in plan.runs)
    grpo, dpo = compare_arms(plan).arms
    assert 500 <= grpo.costs.rollout_tokens < 500 + 12 * 40
    sampled = sum(row["tokens/completion"] for row in read_metrics(plan.runs[1].folder))
    assert dpo.costs.rollout_tokens == sampled
    assert dpo.costs.trained_tokens == sum(row["tokens/completion"] for row in read_metrics(plan.runs[2].folder))
    assert {"rollout", "verify", "reference", "update"} == set(grpo.costs.seconds) == set(dpo.costs.seconds)
    assert grpo.start == dpo.start
    assert grpo.trained_parameters == dpo.trained_parameters > 500_000
    assert "−log σ(zᵢ)" in dpo.formula
    log = plan.runs[0].folder.parent / "logs" / "grpo-seed0.log"
    assert "step 1/" in log.read_text()


def test_what_is_done_is_kept_and_nothing_is_started(whole: tuple[ComparisonPlan, list[RunProgress]]) -> None:
    plan, _ = whole
    before = [(run.folder / "config.toml").stat().st_mtime_ns for run in plan.runs]
    assert [one.state for one in make(plan.runs)] == ["kept", "kept", "kept"]
    assert [(run.folder / "config.toml").stat().st_mtime_ns for run in plan.runs] == before


def test_a_changed_setting_is_refused_by_name_and_an_added_arm_is_not(
    whole: tuple[ComparisonPlan, list[RunProgress]],
) -> None:
    file = Path(whole[0].config.output).parent / "compare.toml"
    changed = load_comparison(file, ["--arms.grpo.learner.lr", "5e-4"])
    with pytest.raises(
        ConfigError, match=r"grpo-seed0 was started with other settings: learner.lr was 0.0001, is 0.0005"
    ):
        next(run_arms(changed.runs))
    for run in load_comparison(file, ["--arms.raft.objective.preset", "raft"]).runs:
        refuse_other_run(run)


def test_asked_to_stop_the_run_keeps_its_steps_and_goes_on_to_the_same_result(
    whole: tuple[ComparisonPlan, list[RunProgress]], tmp_path: Path
) -> None:
    runs = write_plan(tmp_path).runs
    stops: list[bool] = []
    told = []
    for one in run_arms(runs, should_stop=lambda: bool(stops), tick_s=0.05):
        told.append(one.state)
        if one.state == "runs" and one.examined is not None:
            stops.append(True)
    assert told[-1] in ("stopped", "done")  # it may have come to its end meanwhile
    assert list(runs[0].folder.glob("checkpoints/step_*"))
    assert not runs[1].folder.exists()
    assert make(runs[:1])[0].state in ("resumes", "kept")
    assert answers(runs[:1]) == answers(whole[0].runs[:1])


def test_killed_anywhere_the_same_command_goes_on_to_the_same_result(
    whole: tuple[ComparisonPlan, list[RunProgress]], tmp_path: Path
) -> None:
    plan = write_plan(tmp_path)
    command = [sys.executable, "-m", "oncurve", "compare", str(tmp_path / "compare.toml")]
    parent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    metrics = plan.runs[0].folder / "metrics.jsonl"
    try:
        assert wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0, timeout_s=120)
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    if sys.platform == "linux":
        assert wait_until(lambda: processes_with("grpo-seed0") == [])  # the run died with it
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "At equal tokens (" in done.stdout
    assert "At equal time (" in done.stdout
    assert (tmp_path / "out" / "comparison.html").is_file()
    assert answers(plan.runs) == answers(whole[0].runs)


def test_runs_of_a_comparison_share_the_precision_that_auto_came_to_in_the_first(tmp_path: Path) -> None:
    # The embedded model is too small for auto to choose bfloat16, so a recorded run that did so tells who decided.
    words = ("--seeds", "[0, 1]", "--settings.evaluation.every", "0")
    first, second = write_plan(tmp_path, *words).of_arm("grpo")
    [told] = write_plan(tmp_path, *words, "--settings.model.dtype", "bfloat16").of_arm("grpo")[:1]
    make([told])
    assert make([first, second])[-1].run == second
    assert load_config(second.folder / "config.toml").model.dtype == "bfloat16"
    [other] = write_plan(tmp_path, *words, "--settings.model.dtype", "float32").of_arm("grpo")[1:]
    shutil.rmtree(second.folder)
    make([other])
    with pytest.raises(ConfigError, match=r"grpo-seed1 computes in float32, .*grpo-seed0 in bfloat16.*model\.dtype"):
        make([first, second])


def test_a_run_that_fails_is_named_with_its_last_words(tmp_path: Path) -> None:
    plan = write_plan(tmp_path, "--settings.model.path", str(tmp_path / "nothing"))
    with pytest.raises(RunError, match=r"the run grpo-seed0 ended with status 1 before its end(.|\n)*error: .*nothing"):
        make(plan.runs)


def test_what_a_process_left_before_it_had_a_run_is_removed_and_nothing_else(tmp_path: Path) -> None:
    run = write_plan(tmp_path).runs[0]
    (run.folder / "rollouts").mkdir(parents=True)
    (run.folder / "formula.txt").write_text("half")
    assert next(run_arms([run])).state == "starts"  # the process itself would be next
    assert not run.folder.exists()
    run.folder.mkdir()
    (run.folder / "notes.txt").write_text("mine")
    next(run_arms([run]))
    assert (run.folder / "notes.txt").read_text() == "mine"
