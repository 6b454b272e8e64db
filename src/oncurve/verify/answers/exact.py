"""Exact rational values of trees, and rough floating-point ones. Every size is bounded before it is computed."""

import cmath
import math
from collections.abc import Callable
from fractions import Fraction

from oncurve.verify.answers.nodes import Node

MAX_BITS = 14_000
"""Largest numerator or denominator, about 4,200 digits."""
MAX_WORK_BITS = 2_000_000
"""Sum of the sizes of all intermediate results of one value."""
MAX_FACTORIAL = 1500


class NotRationalError(Exception):
    """The tree has no rational value within the bounds."""


class UndefinedError(NotRationalError):
    """The tree has no value at all: a division by zero, infinity in arithmetic."""


def rational(node: Node) -> Fraction | None:
    """The exact value, or None when it is not rational, has variables, or exceeds a bound.

    Raises:
        UndefinedError: a division by zero.
    """
    if node[0] == "num":
        return Fraction(node[1], node[2])
    try:
        return _Evaluator().value(node)
    except UndefinedError:
        raise
    except NotRationalError:
        return None


class _Evaluator:
    def __init__(self) -> None:
        self.work_bits = MAX_WORK_BITS

    def value(self, node: Node) -> Fraction:
        kind = node[0]
        if kind == "num":
            return self.bounded(Fraction(node[1], node[2]))
        rule = _RULES.get(kind)
        if rule is None:
            raise NotRationalError
        return rule(self, node)

    def bounded(self, value: Fraction) -> Fraction:
        bits = max(value.numerator.bit_length(), value.denominator.bit_length())
        self.work_bits -= bits
        if bits > MAX_BITS or self.work_bits < 0:
            raise NotRationalError
        return value

    def add(self, node: Node) -> Fraction:
        total = Fraction(0)
        for term in node[1:]:
            total = self.bounded(total + self.value(term))
        return total

    def mul(self, node: Node) -> Fraction:
        total = Fraction(1)
        for factor in node[1:]:
            total = self.bounded(total * self.value(factor))
        return total

    def div(self, node: Node) -> Fraction:
        top, bottom = self.value(node[1]), self.value(node[2])
        if bottom == 0:
            raise UndefinedError
        return self.bounded(top / bottom)

    def pow(self, node: Node) -> Fraction:
        base, exponent = self.value(node[1]), self.value(node[2])
        if base == 0 and exponent <= 0:
            raise UndefinedError
        if exponent.denominator != 1:
            return self.root_of(base, exponent.denominator, exponent.numerator)
        return self.power_of(base, exponent.numerator)

    def power_of(self, base: Fraction, exponent: int) -> Fraction:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(base) == 1:
            return base if exponent % 2 else Fraction(1)
        if base == 0:
            return base
        if abs(exponent) * max(bits - 1, 1) > MAX_BITS:
            raise NotRationalError
        return self.bounded(base**exponent)

    def root(self, node: Node) -> Fraction:
        index = self.value(node[2])
        if index.denominator != 1 or not 2 <= index <= 64:
            raise NotRationalError
        base = self.value(node[1])
        if base < 0 and index % 2:  # the real root
            return -self.root_of(-base, int(index), 1)
        return self.root_of(base, int(index), 1)

    def root_of(self, base: Fraction, index: int, power: int) -> Fraction:
        if base == 0 and power > 0:
            return base
        if base <= 0 or index > 64:
            raise NotRationalError
        top, bottom = _integer_root(base.numerator, index), _integer_root(base.denominator, index)
        if top is None or bottom is None:
            raise NotRationalError
        return self.power_of(Fraction(top, bottom), power)

    def fact(self, node: Node) -> Fraction:
        value = self.value(node[1])
        if value.denominator != 1 or not 0 <= value <= MAX_FACTORIAL:
            raise NotRationalError
        return self.bounded(Fraction(math.factorial(int(value))))

    def binom(self, node: Node) -> Fraction:
        n, k = self.value(node[1]), self.value(node[2])
        if n.denominator != 1 or k.denominator != 1 or not 0 <= k <= n <= MAX_FACTORIAL:
            raise NotRationalError
        return self.bounded(Fraction(math.comb(int(n), int(k))))

    def function(self, node: Node) -> Fraction:
        if node[1] not in _FUNCTIONS or len(node) < 3:
            raise NotRationalError
        values = [self.value(argument) for argument in node[2:]]
        if node[1] in ("gcd", "lcm") and any(value.denominator != 1 for value in values):
            raise NotRationalError
        return self.bounded(Fraction(_FUNCTIONS[node[1]](values)))


def _integer_root(value: int, index: int) -> int | None:
    """The exact root of a positive integer, or None."""
    low, high = 0, 1 << (value.bit_length() // index + 1)
    while low < high:
        middle = (low + high) // 2
        if middle**index < value:
            low = middle + 1
        else:
            high = middle
    return low if low**index == value else None


_FUNCTIONS: dict[str, Callable[[list[Fraction]], Fraction | int]] = {
    "abs": lambda values: abs(values[0]),
    "floor": lambda values: math.floor(values[0]),
    "ceil": lambda values: math.ceil(values[0]),
    "max": max,
    "min": min,
    "gcd": lambda values: math.gcd(*(int(value) for value in values)),
    "lcm": lambda values: math.lcm(*(int(value) for value in values)),
}
_RULES: dict[str, Callable[[_Evaluator, Node], Fraction]] = {
    "add": _Evaluator.add,
    "mul": _Evaluator.mul,
    "neg": lambda evaluator, node: -evaluator.value(node[1]),
    "div": _Evaluator.div,
    "pow": _Evaluator.pow,
    "root": _Evaluator.root,
    "fact": _Evaluator.fact,
    "binom": _Evaluator.binom,
    "fn": _Evaluator.function,
    "pct": lambda evaluator, node: evaluator.bounded(evaluator.value(node[1]) / 100),
}


# --- rough values -----------------------------------------------------------------------------------------------


def rough(node: Node) -> tuple[complex, float] | None:
    """A double-precision value and the largest size met on the way, which bounds its rounding error.

    None when the tree has variables, or overflows, or is of a kind that needs more than arithmetic.
    """
    scale = [0.0]
    try:
        value = _rough(node, scale)
    except (_NoRoughValueError, OverflowError, ValueError, ZeroDivisionError):
        return None
    return (value, scale[0]) if cmath.isfinite(value) else None


class _NoRoughValueError(Exception):
    """Not a number that doubles can hold."""


def _rough(node: Node, scale: list[float]) -> complex:
    kind = node[0]
    if kind == "num":
        value = complex(node[1] / node[2])
    elif kind == "const":
        value = _CONSTANTS[node[1]] if node[1] in _CONSTANTS else _none()
    elif kind == "add":
        value = sum((_rough(term, scale) for term in node[1:]), 0j)
    elif kind == "mul":
        value = 1 + 0j
        for factor in node[1:]:
            value *= _rough(factor, scale)
    elif kind == "neg":
        value = -_rough(node[1], scale)
    elif kind == "div":
        value = _rough(node[1], scale) / _rough(node[2], scale)
    elif kind == "pow":
        value = _power(_rough(node[1], scale), _rough(node[2], scale))
    elif kind == "root":
        value = _root(_rough(node[1], scale), _rough(node[2], scale))
    elif kind == "deg":
        value = _rough(node[1], scale) * math.pi / 180
    elif kind == "pct":
        value = _rough(node[1], scale) / 100
    elif kind == "fn" and node[1] in _ROUGH and len(node) == 3:
        value = complex(_ROUGH[node[1]](_rough(node[2], scale)))
    elif kind == "fn" and node[1] == "log" and len(node) == 4:
        value = cmath.log(_rough(node[2], scale)) / cmath.log(_rough(node[3], scale))
    else:
        value = _none()
    scale[0] = max(scale[0], abs(value))
    return value


def _none() -> complex:
    raise _NoRoughValueError


def _power(base: complex, exponent: complex) -> complex:
    if abs(exponent) > 1e4 or base == 0:
        raise _NoRoughValueError
    return base**exponent


def _root(base: complex, index: complex) -> complex:
    if index == 2:
        return cmath.sqrt(base)
    if base.imag == 0 and base.real < 0 and index.imag == 0 and index.real % 2 == 1:
        return complex(-((-base.real) ** (1 / index.real)))
    return _power(base, 1 / index)


_CONSTANTS = {"pi": complex(math.pi), "e": complex(math.e), "i": 1j}
_ROUGH: dict[str, Callable[[complex], complex]] = {
    "sin": cmath.sin, "cos": cmath.cos, "tan": cmath.tan, "arcsin": cmath.asin, "arccos": cmath.acos,
    "arctan": cmath.atan, "sinh": cmath.sinh, "cosh": cmath.cosh, "tanh": cmath.tanh, "ln": cmath.log,
    "log": cmath.log10, "lg": cmath.log10, "abs": abs,
}  # fmt: skip
