"""Readings that both trainers need."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet

from oncurve.config.migrate.ledger import Ledger
from oncurve.config.run import RunConfig

KEEP_ALL = 1_000_000
"""As a number of checkpoints: none is removed."""
NEVER = 1_000_000
"""As a number of steps between checkpoints: only the one at the end is written."""
NO_NORM = 1e9
"""As a bound of the gradient norm: it never acts."""


def default_steps() -> int:
    """What a run takes when nothing says how long it is."""
    return int(RunConfig.model_fields["steps"].default)


def model_path(book: Ledger, key: str) -> None:
    """Take over the model; say at its line when it is no directory here."""
    if book.value(key) is None:
        return
    path = str(book.value(key))
    path = str(Path(path).expanduser()) if path.startswith("~") else path
    book.write("model.path", path, key)
    if not Path(path).is_dir():
        book.remarks["model.path"] = "no directory here, and nothing is downloaded: write the one that holds the model"


def task_file(book: Ledger, setting: str, path: str, *keys: str) -> None:
    """Take over a file of problems; say at its line when it does not exist here."""
    whole = Path(path).expanduser()
    book.write(setting, str(whole), *keys)
    if not whole.is_file():
        book.remarks[setting] = "no such file here: write its path"


def is_task_file(name: object) -> bool:
    """True for what names a file that can be read, whether or not it exists."""
    return isinstance(name, str) and Path(name).suffix.lower() in (".jsonl", ".parquet")


def count_rows(book: Ledger) -> int | None:
    """Rows of the training file; None when there is no such file here."""
    path = book.settings.get("tasks.path")
    if path is None or not Path(path).is_file():
        return None
    count: Callable[[Path], int] = _parquet_rows if Path(path).suffix == ".parquet" else _lines
    rows = count(Path(path))
    if "tasks.held_out_path" in book.settings:
        return rows
    return round(rows * (1 - float(RunConfig().tasks.held_out_fraction)))


def run_name(book: Ledger, key: str) -> None:
    """Take over the name of the run, with characters that a folder's name can have."""
    given = book.value(key)
    if given is None:
        return
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", str(given)).strip("-._")
    if name:
        book.write("name", name, key)
    else:
        book.absent(key, "It names the run there; here a name has letters or digits.")


def clip_norm(book: Ledger, key: str) -> None:
    """A bound of the gradient norm; 0 and null switch it off there."""
    bound = 0.0 if book.value(key) is None else book.number(key)
    book.write("learner.max_grad_norm", bound or NO_NORM, key)


def refuse_extra(book: Ledger, key: str, there: str) -> None:
    """A table of free options: empty it asks for nothing."""
    value: Any = book.value(key)
    if value in (None, {}, "", "{}"):
        book.same(key, "It is empty.")
    else:
        book.absent(key, f"It {there} there; here there is no such door.")


def _parquet_rows(path: Path) -> int:
    return int(pyarrow.parquet.ParquetFile(path).metadata.num_rows)


def _lines(path: Path) -> int:
    with path.open(encoding="utf-8") as lines:
        return sum(1 for line in lines if line.strip())
