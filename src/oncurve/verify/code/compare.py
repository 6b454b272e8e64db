"""Is an output the expected one? On trees of plain data (``sandbox.inside.values``) and on text; nothing is run."""

import json
import math
import re
from collections.abc import Callable
from typing import Any

from oncurve.verify.code.settings import CodeComparison

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}", re.ASCII)
_ORDERED, _UNORDERED = {"t"}, {"s", "z"}


def same_value(expected: Any, got: Any, rules: CodeComparison) -> bool:
    """Whether two trees stand for equal values of equal types.

    Lists and tuples member by member; a dict by its keys, in any order; sets without order; a named tuple as a tuple.
    0.0 and -0.0 are equal, as they are in Python. Trees of the program are never made into objects.
    """
    try:
        return _same(_simple(expected, rules), _simple(got, rules), rules)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return False  # not what the encoder writes


def _simple(tree: Any, rules: CodeComparison) -> Any:
    """Named tuples as tuples; tuples as lists where those are equal."""
    if isinstance(tree, dict) and "n" in tree:
        tree = {"t": tree["n"][1]}
    if rules.tuple_equals_list and isinstance(tree, dict) and isinstance(tree.get("t"), list):
        return tree["t"]
    return tree


def _same(expected: Any, got: Any, rules: CodeComparison) -> bool:
    if isinstance(expected, list):
        return isinstance(got, list) and _members(expected, got, rules)
    if isinstance(expected, dict):
        return isinstance(got, dict) and _tagged(expected, got, rules)
    if isinstance(expected, float) or isinstance(got, float):
        return _floats(expected, got, rules)
    return type(expected) is type(got) and bool(expected == got)


def _members(expected: list[Any], got: list[Any], rules: CodeComparison) -> bool:
    return len(expected) == len(got) and all(same_value(a, b, rules) for a, b in zip(expected, got, strict=True))


def _tagged(expected: dict[str, Any], got: dict[str, Any], rules: CodeComparison) -> bool:
    ((tag, wanted),) = expected.items()
    ((other, found),) = got.items()
    if tag == "f" and wanted == "nan":
        return rules.nan_equals_nan and other == "f" and found == "nan"
    if tag != other:
        return False
    if tag in _ORDERED:
        return isinstance(found, list) and _members(wanted, found, rules)
    if tag in _UNORDERED:
        return len(wanted) == len(found) and {_name(item) for item in wanted} == {_name(item) for item in found}
    if tag == "d":
        return _dicts(wanted, found, rules)
    return bool(wanted == found)


def _dicts(wanted: list[Any], found: list[Any], rules: CodeComparison) -> bool:
    by_key = {_name(key): value for key, value in found}
    if len(by_key) != len(found) or len(found) != len(wanted):
        return False
    names = [_matching(key, by_key, rules) for key, _ in wanted]
    return len(set(names)) == len(names) and all(
        name in by_key and same_value(value, by_key[name], rules)
        for name, (_, value) in zip(names, wanted, strict=True)
    )


def _matching(key: Any, by_key: dict[str, Any], rules: CodeComparison) -> str:
    """The name under which an expected key is to be found."""
    name = _name(key)
    if rules.json_keys and name not in by_key and isinstance(key, str) and _WHOLE.fullmatch(key):
        return key  # the name of a whole number is its text
    return name


def _name(tree: Any) -> str:
    """A tree as text. Only texts are hashed: numbers that collide cannot make a comparison slow."""
    return json.dumps(tree, sort_keys=True)


def _floats(expected: Any, got: Any, rules: CodeComparison) -> bool:
    kinds = (int, float) if rules.int_equals_float else (float,)
    if any(isinstance(side, bool) or not isinstance(side, kinds) for side in (expected, got)):
        return False
    if expected == got or rules.float_tolerance is None:
        return bool(expected == got)
    return _close(float(expected), float(got), rules.float_tolerance)


def _close(expected: float, got: float, tolerance: float) -> bool:
    return math.isfinite(got) and abs(got - expected) <= tolerance * max(1.0, abs(expected))


def same_text(expected: str, got: str, rules: CodeComparison) -> bool:
    """Whether two outputs are equal apart from blanks at line ends, the kind of line end, and blank lines at the end.

    With a tolerance, tokens that are decimal fractions in the expected text are compared as numbers.
    """
    wanted, found = _lines(expected), _lines(got)
    if wanted == found or rules.float_tolerance is None:
        return wanted == found
    alike = _tokens_alike(rules.float_tolerance)
    return len(wanted) == len(found) and all(
        len(a.split()) == len(b.split()) and all(map(alike, a.split(), b.split()))
        for a, b in zip(wanted, found, strict=True)
    )


def _lines(text: str) -> list[str]:
    lines = [line.rstrip(" \t\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _tokens_alike(tolerance: float) -> Callable[[str, str], bool]:
    def alike(expected: str, got: str) -> bool:
        if expected == got:
            return True
        if not set(".eE") & set(expected) or len(got) > 400:
            return False
        try:
            wanted, found = float(expected), float(got)
        except ValueError:
            return False
        return math.isfinite(wanted) and _close(wanted, found, tolerance)

    return alike
