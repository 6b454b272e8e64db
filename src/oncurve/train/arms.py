"""Make the runs of a comparison, one after the other, each in a process of its own; interrupted, go on with them.

What is done is read from the run folders alone: there is no other state that could disagree with them.
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from oncurve.config import PlannedRun, dump_config, load_config
from oncurve.report import read_evaluations, read_metrics
from oncurve.report.readers import flattened
from oncurve.report.storage import storage_errors, write_text
from oncurve.sandbox import Command
from oncurve.types import ConfigError, RunError

TICK_S = 1.0
GRACE_S = 300.0
"""How long a run may take to finish its step and write a checkpoint when it is asked to end."""
_BEFORE_A_RUN = frozenset({"formula.txt", "environment.json"})
"""Files in a run folder before its config.toml, which makes it a run."""

State = Literal["kept", "starts", "resumes", "runs", "done", "stopped"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunProgress:
    """How far a run is."""

    run: PlannedRun
    state: State
    steps: int = 0
    tokens: int = 0
    """Completion tokens sampled so far; those of its collection where it learns from one."""
    examined: int | None = None
    """Step of the latest examination."""
    greedy: float | None = None
    """What that found."""


def run_arms(
    runs: Sequence[PlannedRun], *, should_stop: Callable[[], bool] = lambda: False, tick_s: float = TICK_S
) -> Iterator[RunProgress]:
    """Make every run that is not finished yet.

    A run's output goes to ``logs/<run>.log`` beside the run folders. Asked to stop, the run in progress writes a
    checkpoint; closing the iterator, or a second Ctrl-C, kills it.

    Args:
        runs: in order; a run comes after the one whose completions it learns from.
        should_stop: asked while a run goes on and between runs.
        tick_s: seconds between two looks at a run.

    Raises:
        ConfigError: a folder holds a run with other settings, or two runs computed in different precisions.
        RunError: a run failed; names its log.
    """
    for run in runs:
        refuse_other_run(run)
    recorded_precisions(runs)
    for run in runs:
        if should_stop():
            return
        if is_finished(run):
            yield _progress(run, "kept")
            continue
        yield from _make(_as_precise(run, recorded_precisions(runs)), run, should_stop, tick_s)


def is_finished(run: PlannedRun) -> bool:
    """True when the run is recorded to its end, the last examination included."""
    if not (run.folder / "config.toml").is_file():
        return False
    metrics = list(read_metrics(run.folder))
    steps, config = len(metrics), load_config(run.folder / "config.toml")
    is_spent = 0 < config.rollout_tokens <= _tokens(metrics)
    has_ended = steps >= config.steps or is_spent
    return has_ended and any(found["step"] == steps for found in read_evaluations(run.folder))


def refuse_other_run(run: PlannedRun) -> None:
    """Refuse to go on with a run that was started with other settings.

    Raises:
        ConfigError: names the settings and both values.
    """
    recorded = run.folder / "config.toml"
    if not recorded.is_file():
        return
    there, now = (flattened(config.model_dump(mode="json")) for config in (load_config(recorded), run.config))
    if run.config.method == "dpo":  # its steps follow from its pairs
        now["steps"] = there["steps"]
    if run.config.model.dtype == "auto":  # a run writes down what that came to
        now["model.dtype"] = there["model.dtype"]
    changed = [name for name in {**there, **now} if there.get(name) != now.get(name)]
    if changed:
        listed = "; ".join(f"{name} was {there.get(name)!r}, is {now.get(name)!r}" for name in changed[:4])
        more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        raise ConfigError(
            f"{run.folder} was started with other settings: {listed}{more}. Runs of both would not be one comparison. "
            "Put the settings back, choose another output, or remove the folder to make this run again."
        )


Precisions = dict[tuple[str, str], str]
"""What ``model.dtype = "auto"`` came to, by model and device."""


def recorded_precisions(runs: Sequence[PlannedRun]) -> Precisions:
    """What ``auto`` came to in the runs that are recorded. It rests on a measurement, which may come out otherwise.

    Raises:
        ConfigError: to two things for one model; names both runs.
    """
    found: dict[tuple[str, str], tuple[str, Path]] = {}
    for run in runs:
        recorded, model = run.folder / "config.toml", run.config.model
        if model.dtype != "auto" or not recorded.is_file():
            continue
        dtype = load_config(recorded).model.dtype
        known, folder = found.setdefault((model.path, model.device), (dtype, run.folder))
        if dtype != known:
            raise ConfigError(
                f"{run.folder} computes in {dtype}, {folder} in {known}: that is not one comparison. Write model.dtype "
                "into the settings of the comparison, and remove the folder that has the other one."
            )
    return {key: dtype for key, (dtype, _) in found.items()}


def _as_precise(run: PlannedRun, known: Precisions) -> PlannedRun:
    """The run with the precision of those before it, so that it does not measure again."""
    model = run.config.model
    dtype = known.get((model.path, model.device)) if model.dtype == "auto" else None
    if dtype is None:
        return run
    settled = model.model_copy(update={"dtype": dtype})
    return replace(run, config=run.config.model_copy(update={"model": settled}))


def _make(
    settled: PlannedRun, run: PlannedRun, should_stop: Callable[[], bool], tick_s: float
) -> Iterator[RunProgress]:
    """Start ``settled`` or resume it, and follow it to its end as the planned ``run``."""
    is_resumed = (run.folder / "config.toml").is_file()
    logs = run.folder.parent / "logs"
    with storage_errors(logs, "create"):
        logs.mkdir(parents=True, exist_ok=True)
    if not is_resumed:
        _remove_stillborn(run.folder)
    yield _progress(run, "resumes" if is_resumed else "starts")
    log = logs / f"{run.name}.log"
    with Command(_words(settled, logs, is_resumed=is_resumed), log) as command:
        asked_at, examined, status = None, None, command.wait(tick_s)
        while status is None:
            if asked_at is None and should_stop():
                command.terminate()
                asked_at = time.monotonic()
            if asked_at is not None and time.monotonic() - asked_at > GRACE_S:
                break
            progress = _progress(run, "runs")
            if progress.examined != examined:
                examined = progress.examined
                yield progress
            status = command.wait(tick_s)
    if is_finished(run):
        yield _progress(run, "done")
    elif should_stop():
        yield _progress(run, "stopped")
    else:
        raise RunError(_failure(run, status, log))


def _words(run: PlannedRun, logs: Path, *, is_resumed: bool) -> list[str]:
    program = [sys.executable, "-P", "-m", "oncurve"]
    if is_resumed:
        return [*program, "resume", str(run.folder), "--json"]
    file = logs / f"{run.name}.toml"
    write_text(file, dump_config(run.config))
    return [*program, "train", str(file), "--json"]


def _remove_stillborn(folder: Path) -> None:
    """Remove what a process that was killed before it had a run left in its folder; anything else stays."""
    with storage_errors(folder, "clean"):
        files = {path.name for path in folder.rglob("*") if path.is_file()}
        if all(name in _BEFORE_A_RUN or name.endswith(".tmp") for name in files):
            shutil.rmtree(folder, ignore_errors=True)


def _progress(run: PlannedRun, state: State) -> RunProgress:
    if not (run.folder / "config.toml").is_file():
        return RunProgress(run=run, state=state)
    metrics, evaluations = list(read_metrics(run.folder)), read_evaluations(run.folder)
    latest = evaluations[-1] if evaluations else {}
    sampled = metrics if run.collection is None else list(read_metrics(run.collection))
    return RunProgress(
        run=run,
        state=state,
        steps=len(metrics),
        tokens=_tokens(sampled),
        examined=latest.get("step"),
        greedy=latest.get("greedy"),
    )


def _tokens(metrics: Sequence[dict[str, Any]]) -> int:
    return round(sum(row.get("tokens/completion") or 0.0 for row in metrics))


def _failure(run: PlannedRun, status: int | None, log: Path) -> str:
    how = f"was killed by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    errors = [number for number, line in enumerate(lines) if line.startswith("error:")]
    said = "\n".join(lines[errors[-1] :] if errors else lines[-3:])
    return (
        f"the run {run.name} {how} before its end. Its output is in {log}; last:\n{said}\n"
        "Mend that and give the same command again: what is recorded is kept."
    )
