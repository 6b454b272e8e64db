"""The regular expressions of a JSON Schema: ECMA-262 read by Python, with a deadline."""

from functools import lru_cache

import regex

from oncurve.verify.formats.faults import CannotCheckError
from oncurve.verify.items import one_line

_OUTSIDE = {"d": "[0-9]", "D": "[^0-9]", "w": "[A-Za-z0-9_]", "W": "[^A-Za-z0-9_]"}
_INSIDE = {"d": "0-9", "w": "A-Za-z0-9_"}


@lru_cache(maxsize=256)
def compile_pattern(source: str) -> "regex.Pattern[str]":
    r"""Read a pattern of a schema. ``$`` is the very end, ``\d`` and ``\w`` are ASCII, as ECMA-262 says.

    Raises:
        ValueError: it is no regular expression.
    """
    try:
        return regex.compile(_python_form(source))
    except regex.error as error:
        raise ValueError(
            f"the pattern {one_line(source, 80)!r} of the schema is no regular expression: {error}"
        ) from None


def search(source: str, text: str, timeout_s: float) -> bool:
    """True when the pattern matches somewhere in the text.

    Raises:
        CannotCheckError: the pattern needs more than ``timeout_s`` CPU seconds for this text.
    """
    try:
        return compile_pattern(source).search(text, timeout=timeout_s) is not None
    except TimeoutError:
        raise CannotCheckError(
            "timeout", f"the pattern {one_line(source, 80)!r} of the schema takes too long for this completion"
        ) from None


def _python_form(source: str) -> str:
    parts: list[str] = []
    is_class, place = False, 0
    while place < len(source):
        mark = source[place]
        if mark == "\\" and place + 1 < len(source):
            letter = source[place + 1]
            parts.append((_INSIDE if is_class else _OUTSIDE).get(letter, mark + letter))
            place += 2
            continue
        if mark in "[]":
            is_class = mark == "["
        parts.append(r"\Z" if mark == "$" and not is_class else mark)
        place += 1
    return "".join(parts)
