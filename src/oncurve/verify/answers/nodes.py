"""The tree that an answer is read into: nested tuples of plain data, whose first member names the kind.

    scalars     ("num", top, bottom, places)        an exact rational; places: digits after the point as written
                ("sym", name)  ("const", "pi" | "e" | "i" | "inf")
                ("add", x...)  ("mul", x...)  ("neg", x)  ("div", x, y)  ("pow", x, y)  ("root", x, n)
                ("fn", name, x...)  ("fact", x)  ("binom", n, k)  ("call", name, x...)  ("pm", sign, x, y)
                ("deg", x)  ("pct", x)  ("mod", x, m)
                ("sum" | "prod", body, index, low, high)  ("int", body, variable, low, high)
                ("lim", body, variable, to)
    values      ("unit", x, top, bottom, dimensions)  x times top/bottom base units
                ("mixed-unit", unit...)  ("based", digits, base)  ("clock", minutes, seconds, meridiem)
                ("ratio", x...)  ("date", year, month, day)  ("text", words)  ("dots",)
    collections ("set", x...)  ("tuple", x...)  ("bracket", x...)  ("list", x...)  ("any", x...)
                ("matrix", row...) with ("row", x...)  ("builder", x, condition)
    regions     ("interval", low, high, low_is_closed, high_is_closed)  ("union" | "inter" | "minus", x, y)
                ("space", "R" | "Z" | "N" | "Q" | "C")
    relations   ("rel", operators, side...)         a chain; operators joined by blanks, one fewer than sides

Every member that is a tuple is a node. Plain data, so that a tree can be sent to another process. Only ``grammar``
builds trees from text, within bounds.
"""

from fractions import Fraction
from typing import Any

Node = tuple[Any, ...]

EMPTY: Node = ("set",)
INFINITY: Node = ("const", "inf")
SCALARS = frozenset((
    "num", "sym", "const", "add", "mul", "neg", "div", "pow", "root", "fn", "fact", "binom", "call", "deg", "pct",
    "sum", "prod", "int", "lim", "mod", "pm",
))  # fmt: skip


def number(value: Fraction | int, places: int = 0) -> Node:
    """The node of an exact rational."""
    return ("num", value.numerator, value.denominator, places)


def children(node: Node) -> list[Node]:
    """The nodes directly below a node."""
    return [member for member in node if isinstance(member, tuple)]


def walk(node: Node) -> list[Node]:
    """The node and everything below it."""
    found = [node]
    position = 0
    while position < len(found):
        found += children(found[position])
        position += 1
    return found


def symbols(node: Node) -> frozenset[str]:
    """Names of the free variables and of the functions that nobody defined."""
    if node[0] == "num":
        return frozenset()
    parts = walk(node)
    bound = {part[2] for part in parts if part[0] in ("sum", "prod", "int", "lim")}
    return frozenset({part[1] for part in parts if part[0] in ("sym", "call")} - bound)


def substitute(node: Node, name: str, value: Node) -> Node:
    """The node with every occurrence of a variable replaced."""
    return replace(node, ("sym", name), value)


def replace(node: Node, part: Node, value: Node) -> Node:
    """The node with every occurrence of a part replaced."""
    if node == part:
        return value
    return tuple(replace(member, part, value) if isinstance(member, tuple) else member for member in node)
