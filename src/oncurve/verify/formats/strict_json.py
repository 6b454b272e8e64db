"""JSON read strictly and within bounds: what any other reader would read the same way, and nothing else."""

import json
import math
import re
from typing import Any, NoReturn

from oncurve.verify.formats.faults import BadFormatError
from oncurve.verify.items import one_line

MAX_DIGITS = 1000
"""Longest integer that is read; also what Python converts without delay."""

_STRUCTURE = re.compile(r'["\\\[\]{}]')
"""Single characters, so that the scan below visits no others."""


def load_json(text: str, *, max_chars: int, max_depth: int) -> Any:
    """Read one JSON value with nothing but JSON blanks around it.

    Refused, besides what RFC 8259 refuses: a key that stands twice in an object, NaN and Infinity, numbers outside
    the range of a double, integers of more than 1000 digits, lone surrogates. Size and depth are checked before
    anything is parsed.

    Args:
        text: at most ``max_chars`` characters.
        max_depth: most arrays and objects inside each other.

    Raises:
        BadFormatError: with what is wrong and where.
    """
    if len(text) > max_chars:
        raise BadFormatError(f"{len(text)} characters, at most {max_chars} are read as JSON")
    body = text.strip(" \t\r\n")
    if body[:1] in ("{", "["):
        value_end(body, 0, max_depth=max_depth)
    try:
        value = _DECODER.decode(body)
    except json.JSONDecodeError as error:
        raise BadFormatError(f"not JSON: {error.msg} at character {error.pos}") from None
    if not text.isascii() or "\\u" in text:
        _refuse_lone_surrogates(value)
    return value


def value_end(text: str, start: int, *, max_depth: int) -> int:
    """Where the array or object that opens at ``start`` ends, by its brackets outside of strings.

    Raises:
        BadFormatError: it is deeper than ``max_depth``, or never ends.
    """
    depth, is_string, escaped = 0, False, -1
    for found in _STRUCTURE.finditer(text, start):
        place, mark = found.start(), found.group()
        if place == escaped:
            continue
        if is_string:
            escaped = place + 1 if mark == "\\" else escaped
            is_string = mark != '"'
        elif mark == '"':
            is_string = True
        elif mark in "[{":
            depth += 1
            if depth > max_depth:
                raise BadFormatError(f"deeper than {max_depth} levels at character {place}")
        elif mark != "\\":
            depth -= 1
            if depth == 0:
                return place + 1
    raise BadFormatError("the JSON value never ends")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise BadFormatError(f"the key {one_line(repr(twice), 60)} stands twice in an object")
    return found


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise BadFormatError(f"an integer of {len(digits)} digits, at most {MAX_DIGITS} are read")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise BadFormatError(f"the number {one_line(digits, 40)} is out of range")
    return value


def _constant(name: str) -> NoReturn:
    raise BadFormatError(f"{name} is not JSON")


def _refuse_lone_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadFormatError("a string holds half of a surrogate pair, which is no character") from None


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant, strict=True
)
