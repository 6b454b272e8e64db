"""Read the records of a run, finished or still running.

``run`` is a run folder: a path, or the RunFolder that writes it. A last line that is still being written is left out.
Every reader raises RunError when the folder is not a run or a record is damaged, and StorageError when the disk
refuses.
"""

import json
import re
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from oncurve.report.rollouts import Rollout, RolloutStore
from oncurve.report.storage import LineFile, storage_errors
from oncurve.types import RunError

SECONDS_FILE = "seconds.json"
_EVALUATION_NAME = re.compile(r"step_(\d+)\.json")

Run = str | PathLike[str]


def run_path(run: Run, *, made_by: str = "oncurve train") -> Path:
    """Return the folder of a run. Raises RunError, which names the command ``made_by``, when there is no run in it."""
    path = Path(run)
    if not (path / "config.toml").is_file():
        raise RunError(f"{path} is not a run folder: it has no config.toml. Name a folder that `{made_by}` made.")
    return path


def read_metrics(run: Run) -> Iterator[dict[str, Any]]:
    """Yield one mapping a step: ``step`` and the numbers by name, None where not measured."""
    return LineFile(run_path(run) / "metrics.jsonl").read()


def read_events(run: Run) -> Iterator[dict[str, Any]]:
    """Yield ``step, kind, message, data`` in the order of recording."""
    return LineFile(run_path(run) / "events.jsonl").read()


def read_evaluations(run: Run) -> list[dict[str, Any]]:
    """Return the held-out measurements in the order of their steps."""
    return [read_document(path) for _, path in evaluation_files(run_path(run))]


def read_seconds_after(run: Run, num_steps: int) -> dict[str, float]:
    """Return ``seconds/evaluation`` and ``seconds/checkpoint`` spent since the last of ``num_steps`` recorded steps."""
    path = run_path(run) / SECONDS_FILE
    kept = read_document(path) if path.is_file() else {}
    return dict(kept.get("seconds", {})) if kept.get("step") == num_steps else {}


def read_rollouts(run: Run, step: int | None = None) -> Iterator[Rollout]:
    """Yield the recorded completions in order, of one step when ``step`` is given; JSONL and parquet read alike."""
    return RolloutStore(run_path(run) / "rollouts").read(step)


def count_rollouts(run: Run) -> dict[int, int]:
    """Return the number of recorded completions of each step, in the order of steps."""
    return RolloutStore(run_path(run) / "rollouts").count()


def evaluation_files(path: Path) -> list[tuple[int, Path]]:
    """Return the evaluations of the run folder ``path`` as (step, file), in the order of steps."""
    folder = path / "eval"
    with storage_errors(folder, "list"):
        files = list(folder.iterdir())
    return sorted((int(name[1]), file) for file in files if (name := _EVALUATION_NAME.fullmatch(file.name)))


def read_text(path: Path) -> str:
    """Return a whole UTF-8 file. Raises StorageError."""
    with storage_errors(path, "read"):
        return path.read_bytes().decode("utf-8", "replace")


def read_document(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds. Raises RunError, StorageError."""
    try:
        value = json.loads(read_text(path))
    except ValueError as error:
        raise RunError(f"{path} is not JSON ({error}). Remove it to read the rest of the run.") from error
    if not isinstance(value, dict):
        raise RunError(f"{path} is not a JSON object. Remove it to read the rest of the run.")
    return value


def flattened(table: Mapping[str, Any]) -> dict[str, Any]:
    """The values of nested tables by their dotted names: ``{"a": {"b": 1}}`` is ``{"a.b": 1}``."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        inner = flattened(value) if isinstance(value, Mapping) else None
        found |= {f"{key}": value} if inner is None else {f"{key}.{name}": one for name, one in inner.items()}
    return found
