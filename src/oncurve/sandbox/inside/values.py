"""Plain data as a JSON tree that keeps Python's types, both ways, without running anything it holds.

    None, bool, str          themselves              list         [...]
    int                      itself or {"i": hex}    tuple        {"t": [...]}
    float                    itself or {"f": "nan"}  dict         {"d": [[key, value], ...]}
    complex {"c": [re, im]}  bytes {"b": hex}        set, frozenset {"s": [...]}, {"z": [...]}
    Fraction {"q": [n, d]}   Decimal {"m": text}     range        {"r": [start, stop, step]}
    bytearray {"y": hex}     named tuple {"n": [[names], [values]]}

A subclass is sent as its base: what it redefines (``__eq__``, ``__iter__``, ``__hash__``) is never asked. Anything
else is a handle (``{"h": ...}``) where the caller keeps handles, and refused where not.
"""

import sys
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 150
MAX_NODES = 2_000_000
_WORD = 1 << 63

Wrap = Callable[[Any], dict[str, Any]]
"""Names an object that is not plain, as the JSON object that stands for it."""
Unwrap = Callable[[Any], Any]
"""The object behind such a name."""


class NotPlainError(TypeError):
    """A value that is no plain data; the message names its type."""


class Record(tuple[Any, ...]):
    """A named tuple that came from the other side."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: list[str], values: list[Any]) -> "Record":
        kind: type[Record] = type("Record", (cls,), {"_fields": tuple(names), "__slots__": ()})
        return kind(values)

    def __getattr__(self, name: str) -> Any:
        if name in type(self)._fields:
            return self[type(self)._fields.index(name)]
        raise AttributeError(name)


# --- out --------------------------------------------------------------------------------------------------------


def encode(value: Any, wrap: Wrap | None = None) -> Any:
    """The JSON tree of a value.

    Args:
        value: what a program returned, or an argument.
        wrap: what to do with an object that is not plain; None refuses it.

    Raises:
        NotPlainError: the value holds something that is no plain data.
        ValueError: it is nested more than ``MAX_DEPTH`` deep (as every cycle is) or has over ``MAX_NODES`` parts.
    """
    return _Encoder(wrap).tree(value, 0)


class _Encoder:
    def __init__(self, wrap: Wrap | None) -> None:
        self._wrap = wrap
        self._nodes = 0

    def tree(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -_WORD <= value < _WORD else {"i": hex(value)}
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise ValueError("the value is cyclic, too deep or too large")
        if kind is list:
            return [self.tree(item, depth + 1) for item in value]
        if kind is float:
            return _float(value)
        return self._rest(value, depth + 1)

    def _rest(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            return self.tree(int.__index__(value), depth)
        if isinstance(value, float):
            return _float(float.__pos__(value))
        for kind, tag, parts in _CONTAINERS:
            if isinstance(value, kind):
                items = [self.tree(item, depth) for item in parts(value)]
                return _named(value, items) or (items if tag is None else {tag: items})
        if isinstance(value, dict):
            return {"d": [[self.tree(k, depth), self.tree(v, depth)] for k, v in dict.items(value)]}
        for kind, tag, text in _ATOMS:
            if isinstance(value, kind):
                return {tag: text(value)}
        for module, name, tag, text in _LATE_ATOMS:
            if module in sys.modules and isinstance(value, getattr(sys.modules[module], name)):
                return {tag: text(value)}
        return self._object(value, depth)

    def _object(self, value: Any, depth: int) -> Any:
        if type(value).__module__ == "numpy" and callable(getattr(value, "tolist", None)):
            return self.tree(value.tolist(), depth)
        if self._wrap is None:
            raise NotPlainError(type(value).__name__)
        return self._wrap(value)


_CONTAINERS: tuple[tuple[type, str | None, Callable[[Any], Any]], ...] = (
    (list, None, list.__iter__),
    (tuple, "t", tuple.__iter__),
    (set, "s", set.__iter__),
    (frozenset, "z", frozenset.__iter__),
)
_ATOMS: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (bytes, "b", bytes.hex),
    (bytearray, "y", bytearray.hex),
    (complex, "c", lambda value: [_float(complex(value).real), _float(complex(value).imag)]),
    (range, "r", lambda value: [hex(value.start), hex(value.stop), hex(value.step)]),
)
_LATE_ATOMS: tuple[tuple[str, str, str, Callable[[Any], Any]], ...] = (
    ("fractions", "Fraction", "q", lambda value: [hex(value.numerator), hex(value.denominator)]),
    ("decimal", "Decimal", "m", str),
)
"""Types of modules that few programs load: every program would pay for them."""


def _float(value: float) -> Any:
    finite = value == value and value not in (float("inf"), float("-inf"))
    return value if finite else {"f": repr(value)}


def _named(value: Any, items: list[Any]) -> dict[str, Any] | None:
    names = getattr(type(value), "_fields", None)
    if not isinstance(value, tuple) or not isinstance(names, tuple) or len(names) != len(items):
        return None
    return {"n": [[str(name) for name in names], items]}


# --- in ---------------------------------------------------------------------------------------------------------


def decode(tree: Any, unwrap: Unwrap | None = None) -> Any:
    """The value of a JSON tree, trusting nothing about it.

    Args:
        tree: parsed JSON from the other side.
        unwrap: the object behind a handle; None refuses handles.

    Raises:
        ValueError: the tree is not what ``encode`` writes.
    """
    try:
        return _value(tree, unwrap, 0)
    except (TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"not a value: {error}") from None


def _value(tree: Any, unwrap: Unwrap | None, depth: int) -> Any:
    if depth > 2 * MAX_DEPTH:
        raise ValueError("not a value: too deep")
    if isinstance(tree, list):
        return [_value(item, unwrap, depth + 1) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((tag, body),) = tree.items()
    if tag in _FROM_LIST:
        return _FROM_LIST[tag]([_value(item, unwrap, depth + 1) for item in _list(body)])
    if tag == "d":
        return {_value(key, unwrap, depth + 1): _value(item, unwrap, depth + 1) for key, item in _list(body)}
    if tag == "n":
        names, items = body
        return Record.of([str(name) for name in _list(names)], [_value(item, unwrap, depth + 1) for item in items])
    if tag == "h" and unwrap is not None:
        return unwrap(body)
    return _FROM_ATOM[tag](body)


def _list(body: Any) -> list[Any]:
    if not isinstance(body, list):
        raise ValueError("not a value: expected a list")
    return body


def _special(body: Any) -> float:
    if body not in ("nan", "inf", "-inf"):
        raise ValueError("not a value: an unknown float")
    return float(body)


def _number(body: Any) -> float:
    return _special(body["f"]) if isinstance(body, dict) else float(body)


_FROM_LIST: dict[str, Callable[[list[Any]], Any]] = {"t": tuple, "s": set, "z": frozenset}
_FROM_ATOM: dict[str, Callable[[Any], Any]] = {
    "i": lambda body: int(body, 16),
    "f": _special,
    "b": bytes.fromhex,
    "y": bytearray.fromhex,
    "c": lambda body: complex(_number(body[0]), _number(body[1])),
    "r": lambda body: range(*(int(part, 16) for part in body)),
    "q": lambda body: _fraction(int(body[0], 16), int(body[1], 16)),
    "m": lambda body: _decimal(str(body)),
}


def _fraction(numerator: int, denominator: int) -> Any:
    from fractions import Fraction

    return Fraction(numerator, denominator)


def _decimal(text: str) -> Any:
    from decimal import Decimal

    return Decimal(text)
