"""Read one field of the last JSON object in a text. Numbers keep the digits that were written."""

import json
from typing import Any

MAX_OBJECTS = 200
"""Opening braces that are tried, from the end."""
MAX_JSON_CHARS = 100_000
_NUMBER = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), str)


def read_field(text: str, field: str) -> str | None:
    """The value of ``field`` in the last JSON object that has it, as the text of an answer.

    A list becomes ``a, b``, true and false become words. None when there is no such object, the field stands twice in
    it (which value counts would be a guess), or the value is null or an object.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_Pairs, **_NUMBER)  # type: ignore[arg-type]
    end = len(text)
    for _ in range(MAX_OBJECTS):
        start = text.rfind("{", 0, end)
        if start < 0 or len(text) - start > MAX_JSON_CHARS:
            return None
        end = start
        try:
            value, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if not isinstance(value, _Pairs):
            continue
        found = [member for name, member in value.pairs if name == field]
        if found:
            return _as_answer(found[0]) if len(found) == 1 else None
    return None


class _Pairs:
    """An object with its fields in order, repeated ones included."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def _as_answer(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        parts = [_as_answer(member) for member in value]
        return None if None in parts else ", ".join(part for part in parts if part is not None)
    return None
