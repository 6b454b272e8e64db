"""Read one field of the JSON objects in a text. Numbers keep the digits that were written."""

import json
import re
from dataclasses import dataclass
from typing import Any

MAX_OBJECTS = 200
"""Objects that are read; a text with more of them has no answer."""
MAX_JSON_CHARS = 100_000
"""Only the end of a longer text is looked at."""
_NUMBER = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), str)
_OPENING = re.compile(r'\{(?=\s*["}])')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class JsonField:
    """The field of one object."""

    value: str | None
    """As the text of an answer: a list becomes ``a, b``, true and false become words. None: it is null, an object, or
    stands twice in its object, so that which value counts would be a guess."""
    start: int
    end: int
    """Where its object starts and ends in the text."""


def read_fields(text: str, field: str) -> list[JsonField]:
    """The values of a field in the outermost JSON objects that have it, in order.

    An object inside another one is its content and states nothing. An object that is broken is skipped, and one that
    never ends takes the rest of the text with it, which leaves no answer at all.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_Pairs, **_NUMBER)  # type: ignore[arg-type]
    found: list[JsonField] = []
    position = max(0, len(text) - MAX_JSON_CHARS)
    for _ in range(MAX_OBJECTS):
        opening = _OPENING.search(text, position)
        if opening is None:
            return found
        try:
            value, position = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            position = _end(text, opening.start())
            if position < 0:
                return []
            continue
        members = [member for name, member in value.pairs if name == field]
        if members:
            answer = _as_answer(members[0]) if len(members) == 1 else None
            found.append(JsonField(answer, opening.start(), position))
    return []


class _Pairs:
    """An object with its fields in order, repeated ones included."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def _end(text: str, start: int) -> int:
    """Behind the brace that closes the one at ``start``; -1 when none does."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += (token[0] == "{") - (token[0] == "}")
        if depth == 0 and token[0] == "}":
            return token.end()
    return -1


def _as_answer(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        parts = [_as_answer(member) for member in value]
        return None if None in parts else ", ".join(part for part in parts if part is not None)
    return None
