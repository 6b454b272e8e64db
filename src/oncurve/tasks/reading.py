"""Rows of a JSONL or parquet file, each with the place it came from."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from oncurve.types import DataError, did_you_mean

_JSONL = (".jsonl", ".ndjson", ".json")
_PARQUET = (".parquet", ".pq")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file as plain data."""

    path: Path
    place: str
    """``line 3`` of a JSONL file, ``row 3`` of a parquet file; both count from 1."""
    values: dict[str, Any]

    @property
    def where(self) -> str:
        return f"{self.path} {self.place}"


def read_rows(path: Path, *, setting: str = "tasks.path") -> list[Row]:
    """Read every row of a file.

    Args:
        path: a .jsonl or .parquet file.
        setting: which setting names it, for messages.

    Raises:
        DataError: the file is missing, empty, of an unknown kind, not UTF-8, or a line is not a JSON object.
    """
    if not path.is_file():
        _refuse_missing(path, setting)
    suffix = path.suffix.lower()
    if suffix not in _JSONL + _PARQUET:
        raise DataError(
            f"{path}: {setting} is read from {', '.join(_JSONL + _PARQUET)} files, not from {suffix or 'this'}."
        )
    try:
        rows = list(_parquet_rows(path) if suffix in _PARQUET else _jsonl_rows(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if not rows:
        raise DataError(f"{path} is empty: it holds no rows. Each row is one problem, with its answer or completions.")
    return rows


def _refuse_missing(path: Path, setting: str) -> NoReturn:
    if path.is_dir():
        names = sorted(entry.name for entry in path.iterdir() if entry.suffix in _JSONL + _PARQUET)
        listed = f" It holds {', '.join(names[:5])}." if names else ""
        raise DataError(f"{path} is a folder, {setting} names one file.{listed}")
    if not path.parent.is_dir():
        raise DataError(f"there is no file {path}: the folder {path.parent} does not exist either.")
    raise DataError(
        f"there is no file {path}.{did_you_mean(path.name, [entry.name for entry in path.parent.iterdir()])}"
    )


def _jsonl_rows(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = _without_byte_order_mark(line, path)
            if line.strip():
                yield Row(path, f"line {number}", _parse_line(line, f"{path} line {number}"))


def _without_byte_order_mark(line: bytes, path: Path) -> bytes:
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} is UTF-16. Save it as UTF-8, for example: iconv -f UTF-16 -t UTF-8 {path.name}")
    return line.removeprefix(b"\xef\xbb\xbf")


def _parse_line(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where} is not UTF-8: byte 0x{line[error.start]:02x} at position {error.start}. "
            "Save the file as UTF-8, for example: iconv -f LATIN1 -t UTF-8"
        ) from None
    except (ValueError, RecursionError) as error:
        hint = " The file looks like one JSON array: write one object a line." if line.lstrip().startswith(b"[") else ""
        raise DataError(f"{where} is not JSON: {error}. It reads {_short(line.decode())}.{hint}") from None
    if not isinstance(value, dict):
        hint = " Write one object a line instead of one array." if isinstance(value, list) else ""
        raise DataError(f"{where} is {_json_kind(value)}, not a JSON object with columns.{hint}")
    return value


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON value, write null")


def _json_kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _short(text: str, limit: int = 80) -> str:
    text = text.strip()
    return repr(text if len(text) <= limit else text[:limit] + "…")


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow as pa  # costs a tenth of a second that JSONL users and generated sources need not pay
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise DataError(f"{path} is not a readable parquet file: {error}") from error
    for number, values in enumerate(table.to_pylist(), start=1):
        yield Row(path, f"row {number}", {name: _plain(value) for name, value in values.items()})


def _plain(value: Any) -> Any:
    """Turn what parquet can hold and JSON cannot into text; NaN and infinities become None."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    if isinstance(value, datetime | date | time | Decimal):
        return str(value)
    return value
