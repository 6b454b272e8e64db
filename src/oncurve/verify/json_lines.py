"""Files of JSON lines as people hand them in: every row with its place, every mistake as one error."""

import json
from pathlib import Path
from typing import Any

from oncurve.types import DataError, did_you_mean

_KNOWN_BYTES = {
    b"PAR1": "It is a parquet file: write its rows as JSON lines, or give it to --tasks.path as tasks.",
    b"\x1f\x8b": "It is compressed: unpack it with gunzip.",
    b"PK": "It is a zip archive: unpack it with unzip.",
    b"\xff\xfe": "It is UTF-16: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "It is UTF-16: iconv -f UTF-16 -t UTF-8",
}
"""What a file is that begins so, and what to do with it."""


class Written(float):
    """A gold with a point or an exponent, and how it was written: 0.10 stays ``0.10``."""

    text: str

    def __new__(cls, text: str) -> "Written":
        self = super().__new__(cls, text)
        self.text = text
        return self


def read_json_lines(path: Path, *, holds: str, example: str) -> list[tuple[int, dict[str, Any]]]:
    """Every row of a file, with the number of its line, from 1. Blank lines are skipped.

    Args:
        path: the file.
        holds: what a row is, and
        example: one, for messages.

    Raises:
        DataError: the file cannot be read, holds nothing, or a line is no JSON object.
    """
    lines = enumerate(read_text(path, f"Expected one JSON object a line: {example}").split("\n"), 1)
    rows = [(number, _row(f"{path}, line {number}", line, example)) for number, line in lines if line.strip()]
    if not rows:
        raise DataError(f"{path} holds no {holds}. Expected one JSON object a line: {example}")
    return rows


def read_text(path: Path, remedy: str) -> str:
    """The text of a file, without a byte order mark.

    Args:
        path: the file.
        remedy: what belongs into it, for messages.

    Raises:
        DataError: there is none, it is a folder, or it is not UTF-8.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        nearby = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(f"there is no file {path}.{did_you_mean(path.name, nearby)}") from None
    except IsADirectoryError:
        names = sorted(entry.name for entry in path.iterdir() if entry.suffix == ".jsonl")
        listed = f" It holds {', '.join(names[:5])}: name one of them." if names else ""
        raise DataError(f"{path} is a folder, and one file is read.{listed} {remedy}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is no text in UTF-8. {_what_it_is(data)} {remedy}"
        ) from None


def gold_text(value: Any, where: str) -> str:
    """A gold as text: a text as it stands, a number as it was written.

    Raises:
        DataError: it is neither. A list is refused, since text says what JSON does not: ``1, 2`` are two solutions in
            any order, ``(1, 2)`` is a pair, ``[1, 2]`` an interval.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Written):  # NaN and Infinity, which are no JSON, are plain floats
        return value.text
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        inner = ", ".join(map(str, value))[:40]
        raise DataError(
            f'{where}: gold is a list, which does not say how it is meant. Write text: "{inner}" for values in any '
            f'order, "({inner})" for values in this order, "[{inner}]" for an interval or a row.'
        )
    raise DataError(f"{where}: gold must be text or a number, got {json.dumps(value)[:80]}")


def _row(where: str, line: str, example: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error}). Expected {example}") from None
    if not isinstance(row, dict):
        raise DataError(f"{where}: a line holds one JSON object, got {type(row).__name__}. Expected {example}")
    if isinstance(row.get("gold"), float):
        row["gold"] = json.loads(line, parse_float=Written)["gold"]
    return row


def _what_it_is(data: bytes) -> str:
    found = (text for start, text in _KNOWN_BYTES.items() if data.startswith(start))
    return next(found, "Text in another encoding becomes UTF-8 with: iconv -f LATIN1 -t UTF-8.")
