"""The run folder: everything a run leaves behind, written so that a kill at any instant loses nothing that matters.

The same records give the same bytes. No file but ``environment.json`` knows the time of day; what a clock measured
stands in metrics named ``seconds/...`` and ``tokens_per_second/...``, and in ``seconds.json``.
"""

import json
from collections.abc import Mapping, Sequence
from fcntl import LOCK_EX, LOCK_NB, flock
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from oncurve.report.readers import SECONDS_FILE, evaluation_files, read_document, read_text, run_path
from oncurve.report.rollouts import RolloutStore
from oncurve.report.storage import LineFile, plain, remove_leftovers, storage_errors, sync_path, well_formed, write_text
from oncurve.types import Group, RunError


class RunFolder:
    """Append to a run and read it back.

    ::

        config.toml        the resolved settings          metrics.jsonl   one line a step
        environment.json   versions, machine, start       events.jsonl    what was found, dropped, changed
        formula.txt        the objective, spelled out      rollouts/       every completion, JSONL then parquet
        checkpoints/       written by the learner         eval/           step_N.json, held-out measurements
        report.html        written by render_report       seconds.json    spent since the last recorded step

    Get one from ``create`` or ``open``. One process writes; any number may read meanwhile, with
    ``oncurve.report.read_metrics`` and its siblings.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.report_path = path / "report.html"
        self._metrics = LineFile(path / "metrics.jsonl")
        self._events = LineFile(path / "events.jsonl")
        self._evaluations = path / "eval"
        self._seconds = path / SECONDS_FILE
        self._rollouts = RolloutStore(path / "rollouts")
        self._last_step: int | None = None
        self._lock: TextIOWrapper | None = None

    @classmethod
    def create(cls, path: Path, *, config_toml: str, environment: Mapping[str, Any], formula: str) -> "RunFolder":
        """Make a new run folder, with its parents.

        Args:
            path: a folder that does not exist yet, or is empty.
            config_toml: the resolved settings of the run.
            environment: plain data on versions and the machine; the only place for the time of day.
            formula: the objective in words and symbols, as printed.

        Raises:
            RunError: the folder holds something.
            StorageError: the disk refused, or a part of the path is a file.
        """
        run = cls(path)
        with storage_errors(path, "create"):
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise RunError(
                    f"{path} is not empty, and a new run starts in an empty folder. "
                    f"Choose another one, or continue the run in it with `oncurve resume {path}`."
                )
            for folder in (run._rollouts.folder, run._evaluations, run.checkpoints):
                folder.mkdir()
        write_text(path / "formula.txt", formula)
        write_text(path / "environment.json", _document(plain(environment, "environment")))
        write_text(path / "config.toml", config_toml)  # last: its presence says that the folder is a run
        return run

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open the folder of an existing run, to read it or, after ``rewind``, to continue it.

        Raises:
            RunError: the folder is missing or is not a run.
        """
        return cls(run_path(path))

    def lock(self) -> None:
        """Become the one writer, until ``unlock`` or the end of the process, however it ends.

        Raises:
            RunError: another process writes to this run.
        """
        file = (self.path / "config.toml").open(encoding="utf-8")
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            file.close()
            raise RunError(
                f"another process is writing to {self.path}: two writers would mix their records. "
                "Wait until it ends, or end it, and type the command again."
            ) from None
        self._lock = file

    def unlock(self) -> None:
        """Let another process write here. Unlocking twice is fine."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def config_toml(self) -> str:
        """The settings of the run, as they were written."""
        return read_text(self.path / "config.toml")

    @property
    def formula(self) -> str:
        """The objective of the run, as it was printed."""
        return read_text(self.path / "formula.txt")

    @property
    def environment(self) -> dict[str, Any]:
        """Versions, machine and start of the run."""
        return read_document(self.path / "environment.json")

    def append_metrics(self, row: Mapping[str, float | int | None]) -> None:
        """Record the numbers of one step, which is later than every step recorded so far.

        Args:
            row: ``step`` and slash-separated names. None stands for what was not measured.

        Raises:
            ValueError: there is no step, or a value is not a number.
            NumericsError: a value is NaN or infinite; the message names the metric.
            RunError: the step is recorded already.
            StorageError: the disk refused.
        """
        step = _step(row.get("step"), "metrics")
        last = self._last_metrics_step()
        if last is not None and step <= last:
            raise RunError(
                f"{self._metrics.path}: step {step} after step {last}. Rewind the run to {step} before you repeat it."
            )
        self._metrics.append(
            [{"step": step} | {name: _number(name, row[name]) for name in sorted(row) if name != "step"}]
        )
        self._last_step = step

    def append_rollouts(self, step: int, groups: Sequence[Group], advantages: Sequence[Sequence[float]]) -> None:
        """Record all groups of one step; see ``RolloutStore.append``."""
        self._rollouts.append(_step(step, "rollouts"), groups, advantages)

    def append_event(self, step: int, kind: str, message: str, **data: Any) -> None:
        """Record something that happened: a finding, a drop with its cause, a change.

        Args:
            step: when.
            kind: one word or a few joined by underscores, for counting.
            message: one sentence for people.
            data: plain data for programs.

        Raises:
            ValueError, NumericsError: ``data`` is not plain, finite data.
            StorageError: the disk refused.
        """
        event = {"step": _step(step, "events"), "kind": well_formed(kind), "message": well_formed(message)}
        self._events.append([event | {"data": plain(data, f"event {kind}")}])

    def append_evaluation(self, step: int, evaluation: Mapping[str, Any]) -> None:
        """Record a held-out measurement of the policy after ``step`` optimiser steps, replacing one of that step.

        Raises:
            ValueError, NumericsError: not plain, finite data, or the step inside is another one.
            StorageError: the disk refused.
        """
        step = _step(step, "eval")
        if evaluation.get("step", step) != step:
            raise ValueError(f"an evaluation of step {evaluation['step']} was handed over for step {step}")
        record = {"step": step} | plain(evaluation, "evaluation")
        write_text(self._evaluations / f"step_{step}.json", _document(record))

    def keep_seconds(self, step: int, seconds: Mapping[str, float]) -> None:
        """Record what was spent after ``step`` steps and is in no row of metrics yet, replacing what was kept before.

        Raises:
            ValueError, NumericsError: not finite numbers.
            StorageError: the disk refused.
        """
        record = {"step": _step(step, "seconds"), "seconds": plain(seconds, "seconds")}
        write_text(self._seconds, _document(record))

    def seal(self, *, is_final: bool = False) -> None:
        """Turn finished rollout parts into parquet; with ``is_final`` also the one that could still grow.

        Raises:
            StorageError: the disk refused; nothing is lost.
        """
        self._rollouts.seal(is_final=is_final)

    def rewind(self, step: int) -> None:
        """Drop every record of ``step`` and later, and torn last lines, so that the run continues at ``step``.

        Interrupted, it can be repeated. ``config.toml``, ``environment.json`` and checkpoints stay as they are.

        Raises:
            RunError: a file is damaged before ``step``.
            StorageError: the disk refused.
        """
        step = _step(step, "rewind")
        for log in (self._metrics, self._events):
            log.keep(lambda row: row["step"] < step)
        for evaluated, path in evaluation_files(self.path):
            if evaluated >= step:
                with storage_errors(path, "remove"):
                    path.unlink()
        self._rollouts.rewind(step)
        for folder in (self._evaluations, self._rollouts.folder):
            remove_leftovers(folder)
        self._last_step = None

    def sync(self) -> None:
        """Wait until the disk holds every record; call it before a checkpoint counts. Raises StorageError."""
        self._rollouts.sync()
        with storage_errors(self.path, "sync"):
            for path in (self._metrics.path, self._events.path, self._evaluations, self.path):
                if path.exists():
                    sync_path(path)

    def _last_metrics_step(self) -> int | None:
        if self._last_step is None and (row := self._metrics.last()) is not None:
            self._last_step = int(row["step"])
        return self._last_step


def next_folder(output: Path, name: str) -> Path:
    """Make the next free folder ``name-001``, ``name-002``, ... in ``output``. Raises StorageError."""
    number = 1
    with storage_errors(output, "create a run folder in"):
        output.mkdir(parents=True, exist_ok=True)
        while True:
            path = output / f"{name}-{number:03d}"
            try:
                path.mkdir()  # of several runs that start at once, one makes it
            except FileExistsError:
                number += 1
            else:
                return path


def _step(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{what}: step must be a whole number from 0, got {value!r}")
    return value


def _number(name: str, value: Any) -> float | int | None:
    number = plain(value, f"metric {name}")
    if number is None or (isinstance(number, int | float) and not isinstance(number, bool)):
        return number
    raise ValueError(f"metric {name} is {value!r}: a metric is a number, or None when it was not measured.")


def _document(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
