"""Decide whether two bounded trees are the same function, by evaluating both at points they cannot choose.

Runs in a process of its own (see ``oncurve.verify.answers.cas``) and imports nothing of the package. It never sees text
to parse: a request holds trees as nested lists, built and bounded by the grammar.

Two analytic expressions of bounded size are the same when their difference vanishes at several points, drawn from a
seed that depends on both of them. A difference vanishes when it is nothing but rounding error: with d more digits it
becomes 10^d times smaller, and again with d more. Nothing is compared with a fixed tolerance, so that 2^-900 is neither
0 nor 2^-901. Constants are compared the same way, at one point. Every request has a budget of evaluations, so that a
hostile tree ends as ``unknown`` and not as a time-out.
"""

import hashlib
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from mpmath import mp

BASE_DIGITS = 50
MAX_DIGITS = 1500
MAX_EVALUATIONS = 40_000
MAX_TERMS = 5_000
MAX_SUMMED = 200
"""Terms from which an infinite sum is extrapolated."""
TERM_COST = 100
"""What extrapolating an infinite sum costs for each term, in evaluations."""
NUM_POINTS = 8
MIN_AGREEING = 3
NUM_THOROUGH = 2
"""Points at which a difference is followed to three precisions; at the others two tell zero from not zero."""
GUARD_DIGITS = 15
LIMIT_DIGITS = 17
"""A limit is the value at a distance of 1e-17 (or at 1e17)."""
KNOWN_DIGITS = 13
"""Digits by which a limit, an integral or an infinite sum is compared."""
_HUGE_BITS = 64
"""Exponents beyond 2^64 and angles beyond 2^2000 are not evaluated."""

Tree = Sequence[Any]
Point = dict[str, Any]


class UndecidedError(Exception):
    """The budget is spent, or a part cannot be evaluated."""


class UndefinedError(Exception):
    """There is no value at this point."""


def decide(mode: str, trees: list[Tree]) -> str:
    """Compare trees.

    Args:
        mode: ``equal`` (two trees), ``proportional`` (two trees, a constant positive factor apart), ``equation`` (four
            trees: left and right side of two equations).
        trees: the trees.

    Returns:
        ``equal``, ``different`` or ``unknown``.

    Raises:
        MemoryError: the limit of the process; nobody knows what the trees are.
    """
    try:
        evaluator = Evaluator(trees)
        if mode == "equation":
            return "equal" if _same_equation(evaluator, trees) else "different"
        if mode == "proportional":
            return "equal" if _proportional(evaluator, trees[0], trees[1], signed=True) else "different"
        return "equal" if _equal(evaluator, trees[0], trees[1]) else "different"
    except (UndecidedError, RecursionError, OverflowError, ValueError, ZeroDivisionError, TypeError):
        return "unknown"


# --- decisions --------------------------------------------------------------------------------------------------


def _equal(evaluator: "Evaluator", left: Tree, right: Tree) -> bool:
    names = evaluator.variables(left) | evaluator.variables(right)
    if not names:
        return evaluator.is_same(left, right, {}) is True
    agreeing = 0
    for point in evaluator.points(names):
        same = evaluator.is_same(left, right, point, levels=3 if agreeing < NUM_THOROUGH else 2)
        if same is False:
            return False
        agreeing += same is True
    if agreeing < MIN_AGREEING:
        raise UndecidedError
    return True


def _proportional(evaluator: "Evaluator", left: Tree, right: Tree, *, signed: bool) -> bool:
    """left = c * right with a constant c that is not 0; ``signed``: c > 0."""
    names = evaluator.variables(left) | evaluator.variables(right)
    base: Point | None = None
    is_positive = False
    agreeing = 0
    for point in evaluator.points(names):
        try:
            are_zero = [evaluator.vanishes(partial(evaluator.value, tree, point)) for tree in (left, right)]
            if any(are_zero):
                if not all(are_zero):
                    return False
                continue
            if base is None:
                base = point
                factor = evaluator.value(left, point) / evaluator.value(right, point)
                is_positive = evaluator.is_real(factor) and bool(mp.re(factor) > 0)
            elif not evaluator.vanishes(partial(_cross, evaluator, left, right, point, base)):
                return False
        except UndefinedError:
            continue
        agreeing += 1
    if base is None:
        return False
    if agreeing < MIN_AGREEING and names:
        raise UndecidedError
    return is_positive or not signed


def _cross(evaluator: "Evaluator", left: Tree, right: Tree, at: Point, base: Point) -> Any:
    """0 when left / right is the same at both points."""
    return evaluator.value(left, at) * evaluator.value(right, base) - evaluator.value(left, base) * evaluator.value(
        right, at
    )


def _same_equation(evaluator: "Evaluator", trees: list[Tree]) -> bool:
    first, second = ["add", trees[0], ["neg", trees[1]]], ["add", trees[2], ["neg", trees[3]]]
    if evaluator.variables(first) != evaluator.variables(second):
        return False
    if _proportional(evaluator, first, second, signed=False):
        return True
    for left, right, other in ((trees[0], trees[1], second), (trees[2], trees[3], first)):
        for name, solved in ((left, right), (right, left)):
            if name[0] == "sym" and name[1] not in evaluator.variables(solved):
                return _is_solution(evaluator, str(name[1]), solved, other)
    return False


def _is_solution(evaluator: "Evaluator", name: str, solved: Tree, zero: Tree) -> bool:
    """``zero`` is linear in the variable and vanishes at ``solved``: then both equations say the same."""
    if len(evaluator.variables(zero)) < 2:
        return False
    one, two = ["num", 1, 1, 0], ["num", 2, 1, 0]
    at = [_substitute(zero, name, ["add", ["sym", name], shift]) for shift in (["num", 0, 1, 0], one, two)]
    bend = ["add", at[0], ["mul", ["num", -2, 1, 0], at[1]], at[2]]
    nothing = ["num", 0, 1, 0]
    return (
        _equal(evaluator, bend, nothing)
        and _equal(evaluator, _substitute(zero, name, solved), nothing)
        and not _equal(evaluator, zero, nothing)
    )


def _substitute(tree: Tree, name: str, value: Tree) -> Tree:
    if tree[0] == "sym":
        return value if tree[1] == name else tree
    return [_substitute(member, name, value) if isinstance(member, list) else member for member in tree]


# --- evaluation -------------------------------------------------------------------------------------------------


class Evaluator:
    """Evaluates trees with mpmath, within a budget shared by everything that one request needs."""

    def __init__(self, trees: list[Tree]) -> None:
        text = repr(trees)
        self.random = random.Random(hashlib.sha256(text.encode()).digest())  # noqa: S311  points, not secrets
        self.digits = min(MAX_DIGITS, BASE_DIGITS + 2 * max(_literal_digits(tree) for tree in trees))
        self.budget = MAX_EVALUATIONS * BASE_DIGITS // self.digits
        self.integers = set().union(*(_integer_names(tree) for tree in trees))
        self.error = mp.mpf(0)
        self.is_approximating = self.is_in_limit = False
        mp.dps = self.digits

    def variables(self, tree: Tree) -> set[str]:
        """Free variables."""
        if tree[0] == "sym":
            return {str(tree[1])}
        found = set().union(*(self.variables(member) for member in tree if isinstance(member, list)), set())
        return found - {str(tree[2])} if tree[0] in ("sum", "prod", "int", "lim") else found

    def points(self, names: set[str]) -> list[Point]:
        """Points to compare at: half of them positive; variables that count things get integers."""
        return [
            {name: self._coordinate(name, is_positive=place % 2 == 0) for name in sorted(names)}
            for place in range(NUM_POINTS)
        ]

    def _coordinate(self, name: str, *, is_positive: bool) -> Any:
        if name in self.integers:
            return mp.mpf(self.random.randint(2, 14))
        size = mp.mpf(self.random.randrange(3 * 10**17, 3 * 10**18)) / 10**18
        return size if is_positive or self.random.random() < 0.5 else -size

    def is_same(self, left: Tree, right: Tree, point: Point, levels: int = 3) -> bool | None:
        """Whether two trees agree at a point; None when the point says nothing."""
        try:
            self.error = mp.mpf(0)
            a, b = self.value(left, point), self.value(right, point)
            if self.is_real(a) != self.is_real(b) and any(value < 0 for value in point.values()):
                return None  # another branch of a root or logarithm
            return self.vanishes(lambda: self.value(left, point) - self.value(right, point), a - b, levels)
        except UndefinedError:
            return None

    def vanishes(self, compute: Callable[[], Any], first: Any = None, levels: int = 3) -> bool:
        """True when a value is rounding error: each ``digits`` more of precision make it so much smaller.

        ``first``: the value at the precision that is set, where it is known already. ``levels``: precisions that have
        to agree.
        """
        sizes: list[Any] = []
        self.error = mp.mpf(0) if first is None else self.error
        try:
            for level in range(1, 5):
                mp.dps = level * self.digits
                size = abs(compute() if level > 1 or first is None else first)
                if self.error > 0:  # an integral or a limit took part: no more digits than that are known
                    return bool(size <= self.error)
                before = next((earlier for earlier in reversed(sizes) if earlier > 0), None)
                if size > 0 and before is not None and size > before * mp.mpf(10) ** (GUARD_DIGITS - self.digits):
                    return False
                sizes.append(size)
                is_exact = level > 1 and not any(sizes)
                if is_exact or (level >= levels and (size == 0 or before is not None)):
                    return True
        finally:
            mp.dps = self.digits
        return False

    def is_real(self, value: Any) -> bool:
        return bool(abs(mp.im(value)) <= mp.mpf(10) ** (GUARD_DIGITS - self.digits) * max(abs(value), mp.mpf(1)))

    def value(self, tree: Tree, point: Point) -> Any:
        """The value of a tree at a point."""
        self.budget -= 1
        if self.budget < 0:
            raise UndecidedError
        rule = _RULES.get(str(tree[0]))
        if rule is None:
            raise UndecidedError
        try:
            value = rule(self, tree, point)
        except ZeroDivisionError:
            raise UndefinedError from None
        if not mp.isfinite(value):
            raise UndefinedError
        return value

    def values(self, trees: Sequence[Tree], point: Point) -> list[Any]:
        return [self.value(tree, point) for tree in trees]

    def power(self, tree: Tree, point: Point) -> Any:
        base, exponent = self.values(tree[1:3], point)
        if exponent != 0 and mp.mag(exponent) > _HUGE_BITS:
            if self.is_approximating and abs(base) > 1 and self.is_real(exponent) and mp.re(exponent) < 0:
                return mp.mpf(0)  # the far end of an integral
            raise UndecidedError
        if base == 0:
            if mp.re(exponent) <= 0:
                raise UndefinedError
            return mp.mpf(0)
        if base == mp.e:
            return mp.exp(exponent)
        return base**exponent

    def root(self, tree: Tree, point: Point) -> Any:
        base, index = self.values(tree[1:3], point)
        if index == 0:
            raise UndefinedError
        if index == 2:
            return mp.sqrt(base)
        if self.is_real(base) and mp.re(base) < 0 and mp.isint(index) and int(mp.re(index)) % 2:
            return -((-mp.re(base)) ** (1 / index))
        return base ** (1 / index) if base != 0 else base

    def factorial(self, tree: Tree, point: Point) -> Any:
        value = self.value(tree[1], point)
        if abs(value) > 10**6 or (mp.isint(value) and mp.re(value) < 0):
            raise UndecidedError
        return mp.factorial(value)

    def binomial(self, tree: Tree, point: Point) -> Any:
        n, k = self.values(tree[1:3], point)
        if max(abs(n), abs(k)) > 10**6:
            raise UndecidedError
        return mp.binomial(n, k)

    def function(self, tree: Tree, point: Point) -> Any:
        name, arguments = str(tree[1]), self.values(tree[2:], point)
        if name == "log" and len(arguments) == 2:
            return mp.log(_nonzero(arguments[0])) / _nonzero(mp.log(_nonzero(arguments[1])))
        if name in ("max", "min") and all(self.is_real(value) for value in arguments):
            return (max if name == "max" else min)(mp.re(value) for value in arguments)
        if name not in _FUNCTIONS or len(arguments) != 1:
            raise UndecidedError
        if name in _ANGLES and arguments[0] != 0 and mp.mag(arguments[0]) > 2000:
            raise UndecidedError
        return _FUNCTIONS[name](arguments[0])

    def call(self, tree: Tree, point: Point) -> Any:
        """An unknown function: some value that only its name and its arguments decide."""
        arguments = [mp.nstr(value, 20) for value in self.values(tree[2:], point)]
        seed = hashlib.sha256(repr((tree[1], arguments)).encode()).hexdigest()
        return mp.mpf(int(seed[:16], 16)) / 2**62

    def series(self, tree: Tree, point: Point) -> Any:
        low = self.value(tree[3], point)
        if list(tree[4]) == ["const", "inf"]:
            return self.infinite_sum(tree, point, low)
        high = self.value(tree[4], point)
        if not (mp.isint(low) and mp.isint(high)) or high - low > MAX_TERMS:
            raise UndecidedError
        total = mp.mpf(0 if tree[0] == "sum" else 1)
        for index in range(int(mp.re(low)), int(mp.re(high)) + 1):
            term = self.value(tree[1], point | {str(tree[2]): mp.mpf(index)})
            total = total + term if tree[0] == "sum" else total * term
        return total

    def infinite_sum(self, tree: Tree, point: Point, low: Any) -> Any:
        if tree[0] != "sum" or not mp.isint(low):
            raise UndecidedError

        def term(index: Any) -> Any:
            self.budget -= TERM_COST
            return self.value(tree[1], point | {str(tree[2]): index})

        def sum_up() -> tuple[Any, Any]:
            ends = [int(mp.re(low)), mp.inf]
            results = []
            for mp.dps in (BASE_DIGITS, BASE_DIGITS - 12):  # where the two differ, the series does not converge
                results.append(mp.nsum(term, ends, maxterms=MAX_SUMMED))
            return results[0], abs(results[0] - results[1])

        return self.approximated(sum_up)

    def approximated(self, compute: Callable[[], tuple[Any, Any]]) -> Any:
        """A value known to 30 digits only; ``error`` says so to whoever compares it."""
        digits = mp.dps
        mp.dps, self.is_approximating = BASE_DIGITS, True
        try:
            result, error = compute()
        finally:
            mp.dps, self.is_approximating = digits, False
        if error > mp.mpf(10) ** -30 * max(abs(result), mp.mpf(1)):
            raise UndecidedError
        self.error = max(self.error, abs(result) * mp.mpf(10) ** -KNOWN_DIGITS)
        return result

    def integral(self, tree: Tree, point: Point) -> Any:
        ends = [self.end(tree[3], point), self.end(tree[4], point)]

        def integrate() -> tuple[Any, Any]:
            area: Any = mp.quad(lambda x: self.value(tree[1], point | {str(tree[2]): x}), ends, error=True, maxdegree=7)
            return area[0], area[1]

        return self.approximated(integrate)

    def end(self, tree: Tree, point: Point) -> Any:
        if list(tree) == ["const", "inf"]:
            return mp.inf
        return -mp.inf if list(tree) == ["neg", ["const", "inf"]] else self.value(tree, point)


def _nonzero(value: Any) -> Any:
    if value == 0:
        raise UndefinedError
    return value


def _literal_digits(tree: Tree) -> int:
    """Decimal digits of the longest number in a tree."""
    if tree[0] == "num":
        return int(max(abs(tree[1]), tree[2]).bit_length() * 0.302) + 1
    return max((_literal_digits(member) for member in tree if isinstance(member, list)), default=1)


def _integer_names(tree: Tree) -> set[str]:
    """Variables that can only be integers: in a factorial, in the bounds of a sum, in a power of a negative number."""
    found: set[str] = set()
    if tree[0] in ("fact", "binom"):
        found = _names(tree)
    elif tree[0] in ("sum", "prod"):
        found = _names(tree[3]) | _names(tree[4])
    elif tree[0] == "pow" and (tree[1][0] == "neg" or (tree[1][0] == "num" and tree[1][1] < 0)):
        found = _names(tree[2])
    return found.union(*(_integer_names(member) for member in tree if isinstance(member, list)))


def _names(tree: Tree) -> set[str]:
    if tree[0] == "sym":
        return {str(tree[1])}
    return set().union(*(_names(member) for member in tree if isinstance(member, list)), set())


def _sum(evaluator: Evaluator, tree: Tree, point: Point) -> Any:
    total = mp.mpf(0)
    for value in evaluator.values(tree[1:], point):
        total = total + value
    return total


def _product(evaluator: Evaluator, tree: Tree, point: Point) -> Any:
    total = mp.mpf(1)
    for value in evaluator.values(tree[1:], point):
        total = total * value
    return total


def _symbol(_: Evaluator, tree: Tree, point: Point) -> Any:
    if tree[1] not in point:
        raise UndecidedError
    return point[str(tree[1])]


def _constant(_: Evaluator, tree: Tree, _point: Point) -> Any:
    if tree[1] == "inf":
        raise UndefinedError
    return {"pi": +mp.pi, "e": +mp.e, "i": mp.mpc(0, 1)}[tree[1]]


def _limit(evaluator: Evaluator, tree: Tree, point: Point) -> Any:
    """The value close by, from both sides where there are two."""
    target = evaluator.end(tree[3], point)
    if evaluator.is_in_limit:
        raise UndecidedError  # each one inside another would need three times the digits
    digits = mp.dps
    mp.dps, evaluator.is_in_limit = 3 * digits, True
    try:
        step = mp.mpf(10) ** -LIMIT_DIGITS
        near = [target + step, target - step] if mp.isfinite(target) else [mp.sign(target) / step]
        values = [evaluator.value(tree[1], point | {str(tree[2]): x}) for x in near]
    finally:
        mp.dps, evaluator.is_in_limit = digits, False
    if any(abs(values[0] - value) > step * 10**6 * max(abs(value), mp.mpf(1)) for value in values[1:]):
        raise UndecidedError
    evaluator.error = max(evaluator.error, max(abs(values[0]), step) * mp.mpf(10) ** -KNOWN_DIGITS)
    return sum(values) / len(values)


Rule = Callable[[Evaluator, Tree, Point], Any]
_RULES: dict[str, Rule] = {
    "num": lambda _, tree, __: mp.mpf(tree[1]) / tree[2],
    "sym": _symbol,
    "const": _constant,
    "add": _sum,
    "mul": _product,
    "neg": lambda evaluator, tree, point: -evaluator.value(tree[1], point),
    "div": lambda evaluator, tree, point: evaluator.value(tree[1], point) / _nonzero(evaluator.value(tree[2], point)),
    "pow": Evaluator.power,
    "root": Evaluator.root,
    "fact": Evaluator.factorial,
    "binom": Evaluator.binomial,
    "fn": Evaluator.function,
    "call": Evaluator.call,
    "deg": lambda evaluator, tree, point: evaluator.value(tree[1], point) * mp.pi / 180,
    "pct": lambda evaluator, tree, point: evaluator.value(tree[1], point) / 100,
    "sum": Evaluator.series,
    "prod": Evaluator.series,
    "int": Evaluator.integral,
    "lim": _limit,
}
_ANGLES = frozenset(("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth"))
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "cot": mp.cot, "sec": mp.sec, "csc": mp.csc,
    "arcsin": mp.asin, "arccos": mp.acos, "arctan": mp.atan, "arccot": mp.acot, "arcsec": mp.asec, "arccsc": mp.acsc,
    "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "coth": mp.coth, "sech": mp.sech, "csch": mp.csch,
    "arcsinh": mp.asinh, "arccosh": mp.acosh, "arctanh": mp.atanh,
    "ln": lambda x: mp.log(_nonzero(x)), "log": lambda x: mp.log10(_nonzero(x)), "lg": lambda x: mp.log10(_nonzero(x)),
    "abs": abs, "sgn": mp.sign,
    "floor": mp.floor, "ceil": mp.ceil, "Re": mp.re, "Im": mp.im, "arg": mp.arg,
}  # fmt: skip

with suppress(ImportError):  # warm what the first request would otherwise wait for
    mp.quad(mp.sin, [0, 1])
