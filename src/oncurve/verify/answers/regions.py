"""Subsets of the real line: unions of intervals, and the inequalities that describe them."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from oncurve.verify.answers.exact import UndefinedError, rational, rough
from oncurve.verify.answers.nodes import INFINITY, Node, number, substitute, symbols

MINUS_INFINITY: Node = ("neg", INFINITY)
_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "\\ne": "\\ne"}
INEQUALITIES = frozenset(_FLIPPED)


@dataclass(frozen=True, slots=True)
class Piece:
    """One interval; a point is [a, a]."""

    low: Node
    high: Node
    low_is_closed: bool
    high_is_closed: bool


@dataclass(frozen=True, slots=True)
class Region:
    """Pieces in ascending order that do not touch, and the variable that was named, if any."""

    pieces: tuple[Piece, ...]
    variable: str = ""


class Same(Protocol):
    """Equality of scalars."""

    def __call__(self, left: Node, right: Node, /) -> bool: ...


class NotRegionError(Exception):
    """The node does not describe a subset of the real line that can be computed."""


REALS = Region((Piece(MINUS_INFINITY, INFINITY, False, False),))


def position(node: Node) -> float:
    """Where an endpoint stands on the line."""
    if node == INFINITY:
        return float("inf")
    if node == MINUS_INFINITY:
        return float("-inf")
    found = rough(node)
    if found is None or abs(found[0].imag) > 1e-9 * max(1.0, abs(found[0])):
        raise NotRegionError
    return found[0].real


def point(node: Node) -> Piece:
    """The set of one number."""
    return Piece(node, node, True, True)


class Regions:
    """Computes with regions; equality of endpoints is decided by the caller's rule."""

    def __init__(self, same: Same) -> None:
        self.same = same

    def order(self, left: Node, right: Node) -> int:
        """-1, 0 or 1: the order of two endpoints. Close ones are decided exactly."""
        a, b = position(left), position(right)
        if a == b and abs(a) == float("inf"):
            return 0
        if abs(a - b) <= 1e-9 * max(1.0, abs(a), abs(b)):
            exact = _difference(left, right)
            if exact is not None:
                return (exact > 0) - (exact < 0)
            if self.same(left, right):
                return 0
        return -1 if a < b else 1

    def region(self, node: Node) -> Region:
        """The region that a node describes.

        Raises:
            NotRegionError: it describes none.
        """
        kind = node[0]
        if kind == "space" and node[1] == "R":
            return REALS
        if kind == "interval":
            return self.between(Piece(node[1], node[2], node[3], node[4]))
        if kind in ("tuple", "bracket") and len(node) == 3:
            return self.between(Piece(node[1], node[2], kind == "bracket", kind == "bracket"))
        if kind == "set":
            return self.united([point(member) for member in node[1:]])
        if kind == "union":
            return self.united([*self.region(node[1]).pieces, *self.region(node[2]).pieces])
        if kind == "inter":
            return self.intersection(self.region(node[1]), self.region(node[2]))
        if kind == "minus":
            return self.intersection(self.region(node[1]), self.complement(self.region(node[2])))
        if kind == "builder":
            return self.region(node[2])
        if kind == "rel":
            return self.inequality(node)
        if kind in ("list", "any") and all(_is_condition(member) for member in node[1:]):
            return self.conditions(node)
        raise NotRegionError

    def between(self, piece: Piece) -> Region:
        """An interval as it was written; with its ends in the wrong order it is none, rather than empty."""
        if not self.is_not_empty(piece):
            raise NotRegionError
        return Region((piece,))

    def conditions(self, node: Node) -> Region:
        """Several inequalities in one variable: all of them hold, or with ``or`` one of them."""
        parts = [self.region(member) for member in node[1:]]
        names = {part.variable for part in parts if part.variable}
        if len(names) > 1:
            raise NotRegionError
        total = parts[0]
        for part in parts[1:]:
            either = [*total.pieces, *part.pieces]
            total = self.united(either) if node[0] == "any" else self.intersection(total, part)
        return Region(total.pieces, min(names, default=""))

    def united(self, pieces: list[Piece]) -> Region:
        """Sort and merge pieces that overlap or touch."""
        kept = [piece for piece in pieces if self.is_not_empty(piece)]
        kept.sort(key=lambda piece: (position(piece.low), not piece.low_is_closed))
        merged: list[Piece] = []
        for piece in kept:
            if merged and self.touches(merged[-1], piece):
                merged[-1] = self.hull(merged[-1], piece)
            else:
                merged.append(piece)
        return Region(tuple(merged))

    def is_not_empty(self, piece: Piece) -> bool:
        order = self.order(piece.low, piece.high)
        return order < 0 or (order == 0 and piece.low_is_closed and piece.high_is_closed)

    def touches(self, left: Piece, right: Piece) -> bool:
        order = self.order(right.low, left.high)
        return order < 0 or (order == 0 and (left.high_is_closed or right.low_is_closed))

    def hull(self, left: Piece, right: Piece) -> Piece:
        low_is_closed = left.low_is_closed or (right.low_is_closed and self.order(left.low, right.low) == 0)
        order = self.order(left.high, right.high)
        if order == 0:
            return Piece(left.low, left.high, low_is_closed, left.high_is_closed or right.high_is_closed)
        upper = left if order > 0 else right
        return Piece(left.low, upper.high, low_is_closed, upper.high_is_closed)

    def complement(self, region: Region) -> Region:
        edges: list[tuple[Node, bool]] = [(MINUS_INFINITY, False)]
        for piece in region.pieces:
            edges += [(piece.low, not piece.low_is_closed), (piece.high, not piece.high_is_closed)]
        edges.append((INFINITY, False))
        gaps = zip(edges[::2], edges[1::2], strict=True)
        return self.united(
            [Piece(low, high, low_closed, high_closed) for (low, low_closed), (high, high_closed) in gaps]
        )

    def intersection(self, left: Region, right: Region) -> Region:
        either = [*self.complement(left).pieces, *self.complement(right).pieces]
        return Region(self.complement(self.united(either)).pieces, left.variable or right.variable)

    def is_same(self, left: Region, right: Region) -> bool:
        """Piece by piece; variables agree where both are named."""
        if left.variable and right.variable and left.variable != right.variable:
            return False
        return len(left.pieces) == len(right.pieces) and all(
            (a.low_is_closed, a.high_is_closed) == (b.low_is_closed, b.high_is_closed)
            and self._same_end(a.low, b.low)
            and self._same_end(a.high, b.high)
            for a, b in zip(left.pieces, right.pieces, strict=True)
        )

    def _same_end(self, left: Node, right: Node) -> bool:
        return left == right or self.same(left, right)

    # --- inequalities ---

    def inequality(self, node: Node) -> Region:
        operators, sides = node[1].split(" "), node[2:]
        if operators == ["\\in"]:
            return Region(self.region(sides[1]).pieces, _name(sides[0]))
        if not all(operator in INEQUALITIES for operator in operators):
            raise NotRegionError
        total: Region | None = None
        for operator, left, right in zip(operators, sides, sides[1:], strict=False):
            part = self.comparison(operator, left, right)
            total = part if total is None else self.intersection(total, part)
        if total is None:
            raise NotRegionError
        return total

    def comparison(self, operator: str, left: Node, right: Node) -> Region:
        """``left operator right`` where one variable occurs, on one side alone or linearly."""
        if not symbols(right) and (name := _name(left)):
            return self.ray(operator, right, name)
        if not symbols(left) and (name := _name(right)):
            return self.ray(_FLIPPED[operator], left, name)
        for side, bound, sign in ((left, right, operator), (right, left, _FLIPPED[operator])):
            if side[:2] == ("fn", "abs") and len(side) == 3 and (name := _name(side[2])) and not symbols(bound):
                return Region(self.absolute(sign, bound).pieces, name)
        return self.linear(operator, left, right)

    def ray(self, operator: str, bound: Node, name: str) -> Region:
        """Everything on one side of a bound; for \\ne on both sides."""
        above, below = (
            Piece(bound, INFINITY, operator == "\\ge", False),
            Piece(MINUS_INFINITY, bound, False, operator == "\\le"),
        )
        pieces = [above] if operator in (">", "\\ge") else [below] if operator in ("<", "\\le") else [below, above]
        return Region(self.united(pieces).pieces, name)

    def absolute(self, operator: str, bound: Node) -> Region:
        """|x| < b is -b < x < b, and so on."""
        negative: Node = ("neg", bound)
        if operator == "\\ne":
            return self.complement(self.united([point(bound), point(negative)]))
        if operator in ("<", "\\le"):
            return self.united([Piece(negative, bound, operator == "\\le", operator == "\\le")])
        inside = self.united([Piece(negative, bound, operator == ">", operator == ">")])
        return self.complement(inside)

    def linear(self, operator: str, left: Node, right: Node) -> Region:
        """a x + b < 0 with rational a and b."""
        difference: Node = ("add", left, ("neg", right))
        names = symbols(difference)
        if len(names) != 1:
            raise NotRegionError
        name = min(names)
        values = [_rational_at(difference, name, Fraction(x)) for x in (0, 1, 2, 5, -3, 7)]
        slope = values[1] - values[0]
        if slope == 0 or any(
            value != values[0] + slope * x for value, x in zip(values, (0, 1, 2, 5, -3, 7), strict=True)
        ):
            raise NotRegionError
        bound = number(-values[0] / slope)
        return self.ray(operator if slope > 0 else _FLIPPED[operator], bound, name)


def _name(node: Node) -> str:
    """The variable or function value that an inequality bounds."""
    if node[0] == "sym":
        return str(node[1])
    return repr(node) if node[0] == "call" else ""


def _is_condition(node: Node) -> bool:
    return node[0] == "rel" and all(operator in INEQUALITIES for operator in node[1].split(" "))


def _difference(left: Node, right: Node) -> Fraction | None:
    try:
        a, b = rational(left), rational(right)
    except UndefinedError:
        raise NotRegionError from None
    return None if a is None or b is None else a - b


def _rational_at(node: Node, name: str, value: Fraction) -> Fraction:
    try:
        found = rational(substitute(node, name, number(value)))
    except UndefinedError:
        found = None
    if found is None:
        raise NotRegionError
    return found
