"""From a row to a record: the prompt, the gold where its column states it, and everything else as plain data."""

import re
from dataclasses import dataclass
from math import isfinite
from typing import Any, NoReturn

from oncurve.tasks.layout import Layout, lookup
from oncurve.tasks.reading import Row
from oncurve.tasks.taskset import HELD_OUT, TRAIN
from oncurve.types import DataError, Message, Prompt, did_you_mean

_SPLITS = {"train": TRAIN, "training": TRAIN} | dict.fromkeys(
    ("test", "validation", "valid", "val", "dev", "eval", "held_out", "heldout", "held-out"), HELD_OUT
)
_ROLES = ("system", "user", "assistant", "tool", "developer")


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One problem of a file, before it is phrased and given to a split."""

    row: Row
    prompt: Prompt
    gold: str
    gold_place: str
    """``verbatim``, ``hash`` or ``box``: where in its column the gold stood."""
    split: str | None
    kind: str | None
    difficulty: float | None
    language: str
    meta: dict[str, Any]

    @property
    def canonical(self) -> str:
        """The prompt with white space normalised; two rows with the same one ask the same."""
        if isinstance(self.prompt, str):
            return " ".join(self.prompt.split())
        return "\n".join(f"{message.role}: {' '.join(message.content.split())}" for message in self.prompt)


def parse_row(row: Row, layout: Layout, gold_format: str, *, is_program: bool = False) -> Record:
    """Take a row apart.

    Args:
        row: what was read.
        layout: which column holds what.
        gold_format: where the gold stands in its column: ``auto``, ``verbatim``, ``hash`` or ``box``.
        is_program: the gold is a reference solution, taken as it stands; tests judge, so it may be missing.

    Raises:
        DataError: a column is missing, or holds something that is not a prompt, a gold, a split.
    """
    prompt, last_answer = _prompt(_required(row, layout.prompt), row, layout)
    if is_program:
        gold, place = _reference(last_answer, row, layout), "verbatim"
    else:
        raw_gold, column = (
            (last_answer, layout.prompt) if layout.gold is None else (_required(row, layout.gold), layout.gold)
        )
        gold, place = _find_gold(_gold_text(raw_gold, row, column), gold_format, row, column)
    difficulty = _difficulty(_optional(row, layout.difficulty))
    language = _optional(row, layout.language)
    kind = _optional(row, layout.kind)
    return Record(
        row=row,
        prompt=prompt,
        gold=gold,
        gold_place=place,
        split=_split(row, layout.split),
        kind=str(kind) if kind is not None else None,
        difficulty=difficulty,
        language=language if isinstance(language, str) and language else "en",
        meta={
            name: value
            for name, value in row.values.items()
            if name not in layout.used or (name == layout.difficulty and difficulty is None)
        },
    )


def _optional(row: Row, column: str | None) -> Any:
    return None if column is None else lookup(row.values, column)[1]


def _required(row: Row, column: str) -> Any:
    found, value = lookup(row.values, column)
    if not found:
        raise DataError(
            f"{row.where} has no column {column!r}, which earlier rows have.{did_you_mean(column, row.values)} "
            f"Found: {', '.join(row.values) or 'none'}."
        )
    return value


def _refuse(row: Row, column: str, value: Any, remedy: str) -> NoReturn:
    shown = repr(value)
    raise DataError(f"{row.where}: column {column!r} holds {shown[:100]}{'…' if len(shown) > 100 else ''}. {remedy}")


def _check_text(text: str, row: Row, column: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(row, column, text, "It holds half of a surrogate pair, which no encoding can write: repair the text.")
    return text


def _prompt(value: Any, row: Row, layout: Layout) -> tuple[Prompt, str | None]:
    """The prompt, and the assistant's last message where that one is the gold."""
    column = layout.prompt
    if isinstance(value, str):
        if layout.gold is None:
            _refuse(row, column, value, "Without an answer column it must be a list of messages.")
        if not value.strip():
            _refuse(row, column, value, "A prompt is not blank: remove the row or fill it in.")
        return _check_text(value, row, column), None
    if not isinstance(value, list) or not value:
        _refuse(row, column, value, "A prompt is text, or a list of messages with role and content.")
    messages = tuple(_message(item, row, column) for item in value)
    answer = None
    if layout.gold is None:
        if messages[-1].role != "assistant" or len(messages) < 2:
            _refuse(
                row, column, value, "Without an answer column, the last of two or more messages is the assistant's."
            )
        messages, answer = messages[:-1], messages[-1].content
    if messages[-1].role == "assistant":
        _refuse(row, column, value, "A prompt ends before the assistant speaks: remove the last message.")
    return messages, answer


def _message(value: Any, row: Row, column: str) -> Message:
    if (
        not isinstance(value, dict)
        or not isinstance(value.get("role"), str)
        or not isinstance(value.get("content"), str)
    ):
        _refuse(row, column, value, 'A message is {"role": "user", "content": "text"}.')
    if value["role"] not in _ROLES:
        _refuse(row, column, value, f"Known roles: {', '.join(_ROLES)}.{did_you_mean(value['role'], _ROLES)}")
    if value["role"] == "user" and not value["content"].strip():
        _refuse(row, column, value, "A user message is not blank: remove the row or fill it in.")
    return Message(role=value["role"], content=_check_text(value["content"], row, column))


def _reference(last_answer: str | None, row: Row, layout: Layout) -> str:
    """A reference solution with its indentation; empty where there is none."""
    value = last_answer if layout.gold is None else _optional(row, layout.gold or None)
    if value is None:
        return ""
    if not isinstance(value, str):
        _refuse(row, layout.gold or layout.prompt, value, "A reference solution is a text, or missing.")
    return _check_text(value, row, layout.gold or layout.prompt)


def _gold_text(value: Any, row: Row, column: str) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    text = repr(value) if is_number else value
    if text is None:
        _refuse(row, column, value, "The gold answer is empty: fill it in or remove the row.")
    if not isinstance(text, str):
        _refuse(row, column, value, "A gold answer is text or a finite number: write it as text.")
    if not text.strip():
        _refuse(row, column, value, "The gold answer is empty: fill it in or remove the row.")
    return _check_text(text.strip(), row, column)


def _find_gold(text: str, gold_format: str, row: Row, column: str) -> tuple[str, str]:
    after_hashes = text.rpartition("####")[2].strip() if "####" in text else None
    boxed = last_boxed(text)
    found = {"verbatim": text, "hash": after_hashes, "box": boxed}
    places = ("hash", "box", "verbatim") if gold_format == "auto" else (gold_format,)
    for place in places:
        gold = found[place]
        if gold:
            return gold, place
        if gold == "":
            _refuse(row, column, text, "The gold answer is empty: fill it in or remove the row.")
    wanted = "#### answer" if gold_format == "hash" else r"\boxed{answer}"
    _refuse(row, column, text, f"It holds no {wanted}. If all of it is the answer, set tasks.gold_format = 'verbatim'.")


def last_boxed(text: str) -> str | None:
    r"""Stripped content of the last ``\boxed{...}``; None when there is no box or the last one is not closed."""
    starts = [match.end() for match in re.finditer(r"\\(?:boxed|fbox)\s*\{", text)]
    if not starts:
        return None
    depth = 1
    for match in re.finditer(r"\\.|[{}]", text[starts[-1] :], flags=re.DOTALL):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth == 0:
            return text[starts[-1] : starts[-1] + match.start()].strip()
    return None


def _difficulty(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    match = re.search(r"-?\d+(?:\.\d+)?$", value.strip()) if isinstance(value, str) else None
    return float(match.group()) if match else None


def _split(row: Row, column: str | None) -> str | None:
    if column is None:
        return None
    value = _required(row, column)
    label = _SPLITS.get(value.strip().lower()) if isinstance(value, str) else None
    if label is None:
        _refuse(
            row,
            column,
            value,
            f"A split is one of {', '.join(_SPLITS)}. If this is no split, set tasks.columns.split = ''.",
        )
    return label
