"""``oncurve verify {math,code,format} CASES.jsonl``: judge rows of known cases, without a model and without torch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oncurve.types import DataError
from oncurve.verify.json_lines import gold_text, read_json_lines

Row = Mapping[str, Any]
Judge = Callable[[Iterable[Row]], Iterator[dict[str, Any]]]

KINDS = ("math", "code", "format")
_NEEDED = {"math": ("gold",), "code": ("mode", "tests", "solution"), "format": ("spec",)}
_EXAMPLES = {
    "math": '{"gold": "1/2", "completion": "\\\\boxed{0.5}"}',
    "code": '{"mode": "function", "entry_point": "f", "solution": "...", "tests": [{"args": [1], "expected": 2}]}',
    "format": '{"spec": {"type": "length", "unit": "words", "max": 5}, "completion": "..."}',
}


def judge_kind(kind: str, words: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield id, status, reward, evidence, cause and seconds of every row of a file of cases, in order.

    Every row is read before the first is judged.

    Args:
        kind: ``math``, ``code`` or ``format``.
        words: the file, and nothing else.

    Raises:
        ValueError: there is not exactly one file.
        DataError: the file cannot be read or holds nothing, a row is not a JSON object or lacks a field.
    """
    if len(words) != 1 or words[0].startswith("-"):
        raise ValueError(
            f"oncurve verify {kind} takes one file of cases, got {' '.join(words) or 'none'}. "
            f"Write: oncurve verify {kind} CASES.jsonl --json. A file of completions that is named {kind}: ./{kind}"
        )
    path = Path(words[0])
    reading = _Reading(path, read_rows(path, kind))
    try:
        yield from _judge_of(kind)(reading)
    except ValueError as error:
        raise DataError(f"{reading.where}: {error}") from None


def read_rows(path: Path, kind: str) -> list[tuple[str, Row]]:
    """Read and check every line of a file of cases.

    Returns:
        File and line, and row. Blank lines are skipped.

    Raises:
        DataError: with file and line.
    """
    rows = read_json_lines(path, holds="case", example=_EXAMPLES[kind])
    places = [f"{path}, line {number}" for number, _ in rows]
    return [(where, _checked(where, row, kind)) for where, (_, row) in zip(places, rows, strict=True)]


class _Reading:
    """Hands out rows and knows the line of the last one, for the message about a row that a judge refuses."""

    def __init__(self, path: Path, rows: Sequence[tuple[str, Row]]) -> None:
        self._rows = rows
        self.where = str(path)

    def __iter__(self) -> Iterator[Row]:
        for where, row in self._rows:
            self.where = where
            yield row


def _judge_of(kind: str) -> Judge:
    if kind == "math":
        from oncurve.verify.answers.cases import judge_cases as judge_math

        return judge_math
    if kind == "code":
        from oncurve.verify.code.cases import judge_cases as judge_code

        return judge_code
    from oncurve.verify.formats.cases import judge_cases as judge_format

    return judge_format


def _checked(where: str, row: Row, kind: str) -> Row:
    for key in _NEEDED[kind]:
        if key not in row:
            raise DataError(f"{where}: {key} is missing. Expected {_EXAMPLES[kind]}")
    if kind != "code":
        _check_completion(where, row, kind)
        if kind == "math":
            _check_options(where, row)
            return {**row, "gold": gold_text(row["gold"], where)}
    elif not isinstance(row["solution"], str):
        raise DataError(f"{where}: solution must be a string, the text of a program, got {row['solution']!r}")
    return row


def _check_completion(where: str, row: Row, kind: str) -> None:
    """The text of the completion stands in ``completion``, or in ``completion_parts`` as text and repeat count."""
    if "completion" in row:
        if not isinstance(row["completion"], str):
            raise DataError(f"{where}: completion must be a string, got {row['completion']!r}")
        return
    if "completion_parts" not in row:
        raise DataError(f"{where}: completion is missing. Expected {_EXAMPLES[kind]}")
    parts = row["completion_parts"]
    if not isinstance(parts, list) or not all(_is_part(part) for part in parts):
        raise DataError(f'{where}: completion_parts must be a list of ["text", repeat], got {str(parts)[:80]}')


def _check_options(where: str, row: Row) -> None:
    """The carrier and the comparison of a row of mathematics are ones that exist."""
    from oncurve.verify.answer import AnswerSettings

    options = {"carrier": row.get("carrier", "box"), "comparison": row.get("comparison") or {}}
    try:
        AnswerSettings.model_validate(options)
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None


def _is_part(part: Any) -> bool:
    return isinstance(part, list) and len(part) == 2 and isinstance(part[0], str) and type(part[1]) is int
