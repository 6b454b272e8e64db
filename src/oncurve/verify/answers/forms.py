"""What a tree says: names in front of a value are told from equations, lists from named values, sums from matrices.

Forms that ``simplify`` adds to the kinds of ``nodes``:

    ("assign", name, value)  ("equation", left, right)  ("named", ("entry", name, value)...)  ("undefined",)
    ("chain", operators, side...)  sides that all have to be equal, still to be checked
    ("sequence", x...)  a list with dots, in order
"""

from itertools import product as combinations

from oncurve.verify.answers.nodes import EMPTY, SCALARS, Node, children, number, symbols, walk
from oncurve.verify.answers.wording import says_everything, says_nothing

UNDEFINED: Node = ("undefined",)
"""Equals nothing: a chain of equations that contradicts itself, a division by zero."""
MAX_ENTRIES = 144
EQUALITIES = frozenset(("=", "\\approx"))


def simplify(node: Node, *, words_are_sets: bool = True, nested_lists: bool = True) -> Node:
    """Rewrite the outermost levels of a tree into the form that is compared.

    ``words_are_sets``: read ``no solution`` as the empty set. ``nested_lists``: read ``[[1,2],[3,4]]`` as a matrix.
    """
    kind = node[0]
    if kind == "text" and words_are_sets:
        if says_nothing(node[1]):
            return EMPTY
        return ("space", "R") if says_everything(node[1]) else node
    if kind == "rel":
        return _relation(node)
    if kind in ("list", "any"):
        return _list(node)
    if kind == "mixed-unit":
        return _mixed(node)
    if kind == "set":
        return ("set", *(member for part in node[1:] for member in _spread(part)))
    if kind == "bracket" and nested_lists and len(node) > 1 and all(part[0] == "bracket" for part in node[1:]):
        rows = [part[1:] for part in node[1:]]
        return ("matrix", *(("row", *row) for row in rows)) if len({len(row) for row in rows}) == 1 else node
    if kind == "add" and node[1][0] in ("space", "interval", "union") and all(_is_removed(part) for part in node[2:]):
        return ("minus", node[1], ("set", *(member for part in node[2:] for member in part[1][1:])))
    if kind == "mul" and len(node) == 3 and node[1][0] == "sym" and node[2][0] == "tuple":
        return tuple(node[2])  # the point A(1, 2)
    if kind in SCALARS:
        return _scalar(node)
    return node


def _is_removed(part: Node) -> bool:
    return bool(part[0] == "neg" and part[1][0] == "set")


def _scalar(node: Node) -> Node:
    kinds = {part[0] for part in walk(node)}
    if "pm" in kinds:
        return ("set", *_spread(node))
    if "matrix" in kinds:
        return evaluate_matrix(node)
    if node[0] == "deg":
        return ("unit", node[1], 1, 1, "angle:1")
    if "unit" in kinds:
        return _lifted_unit(node)
    return node


def _lifted_unit(node: Node) -> Node:
    """-5 cm and 3 * (5 cm) are quantities; other arithmetic with units is not read."""
    if node[0] in ("neg", "mul") and len([part for part in node[1:] if part[0] == "unit"]) == 1:
        inner = next(part for part in node[1:] if part[0] == "unit")
        plain = tuple(part[1] if part is inner else part for part in node[1:])
        return ("unit", (node[0], *plain), *inner[2:])
    return node


# --- plus-minus -------------------------------------------------------------------------------------------------


def _spread(node: Node) -> list[Node]:
    """Both values of an expression with \\pm; all its signs change together."""
    if not any(part[0] == "pm" for part in walk(node)):
        return [node]
    return [_with_sign(node, 1), _with_sign(node, -1)]


def _with_sign(node: Node, sign: int) -> Node:
    if node[0] == "pm":
        left, right = _with_sign(node[2], sign), _with_sign(node[3], sign)
        return ("add", left, right if node[1] == sign else ("neg", right))
    return tuple(_with_sign(member, sign) if isinstance(member, tuple) else member for member in node)


# --- relations --------------------------------------------------------------------------------------------------


def is_name(node: Node) -> bool:
    """True for what stands on the left of an assignment: x, f(2), AB, |AB|, a:b, AB/CD, (x, y)."""
    kind = node[0]
    if kind in ("sym", "call"):
        return True
    if kind == "mul":
        return all(part[0] == "sym" and not part[1][0].islower() for part in node[1:])
    if kind in ("ratio", "tuple", "div"):
        return all(is_name(part) for part in node[1:])
    if kind == "list":
        return all(part[0] == "sym" for part in node[1:])
    if kind == "unit":  # \\angle ABC
        return False
    return kind == "fn" and node[1] == "abs" and is_name(node[2])


def _relation(node: Node) -> Node:
    operators, sides = node[1].split(" "), node[2:]
    if operators == ["\\in"] and sides[1][0] in ("tuple", "bracket", "set") and not is_name(sides[0]):
        return node
    if operators == ["\\equiv"] and sides[1][0] == "mod":
        return tuple(sides[1])
    if not set(operators) <= EQUALITIES:
        return node
    return _chain(operators, list(sides))


def _chain(operators: list[str], sides: list[Node]) -> Node:
    names = 0
    while names < len(sides) - 1 and is_name(sides[names]):
        names += 1
    name = sides[0] if names else None
    rest, between = sides[names:], operators[names:]
    if name is None and is_name(sides[-1]) and not any(symbols(side) for side in sides[:-1]):
        name, rest, between = sides[-1], sides[:-1], operators[:-1]
    if name is None and any(symbols(side) for side in sides):
        return ("equation", *sides) if operators == ["="] else UNDEFINED
    value = rest[0] if len(rest) == 1 else ("chain", " ".join(between), *rest)
    return value if name is None else ("assign", name, value)


# --- lists ------------------------------------------------------------------------------------------------------


def _list(node: Node) -> Node:
    if any(part[0] == "dots" for part in node[1:]):
        return ("sequence", *node[1:])
    if all(part[0] == "rel" and not set(part[1].split(" ")) <= EQUALITIES for part in node[1:]):
        return node  # conditions on a region
    members = [simplify(part) for part in node[1:]]
    if members[0][0] == "assign" and members[0][1][0] == "tuple" and members[-1][0] == "assign":
        return ("list", *(member[2] if member[0] == "assign" else member for member in members))
    if all(member[0] == "assign" for member in members):
        names = [_plain_name(member[1]) for member in members]
        if len(set(names)) == len(names):
            return ("named", *(("entry", name, member[2]) for name, member in zip(names, members, strict=True)))
        if len(set(names)) == 1:
            return ("any", *_flat([member[2] for member in members]))
    if members[0][0] == "assign" and not any(member[0] in ("assign", "equation") for member in members[1:]):
        return ("any", *_flat([members[0][2], *members[1:]]))
    return (node[0], *_flat(members))


def _flat(members: list[Node]) -> list[Node]:
    """Members of which one stands for several (1 \\pm \\sqrt 5) are spread."""
    flat: list[Node] = []
    for member in members:
        if member[0] == "set" and len(member) == 3 and any(part[0] == "add" for part in member[1:]):
            flat += member[1:]
        else:
            flat += _spread(member) if member[0] in SCALARS else [member]
    return flat


def _plain_name(node: Node) -> str:
    return str(node[1]) if node[0] == "sym" else repr(node[:2] if node[0] == "call" and symbols(node) else node)


def components(node: Node) -> Node:
    """Give the members of ``(x, y) = (3, -1)`` their names."""
    if node[0] == "assign" and node[1][0] in ("tuple", "list"):
        names, values = node[1][1:], node[2]
        if values[0] in ("tuple", "bracket", "list") and len(values) == len(names) + 1:
            entries = zip(names, values[1:], strict=True)
            return ("named", *(("entry", _plain_name(name), value) for name, value in entries))
    return node


# --- quantities -------------------------------------------------------------------------------------------------


def _mixed(node: Node) -> Node:
    """2 hours 30 minutes, as so many of the last unit."""
    last = node[-1]
    if any(part[4] != last[4] for part in node[1:]):
        return node
    total: list[Node] = [
        ("mul", part[1], ("div", number(part[2] * last[3]), number(part[3] * last[2]))) for part in node[1:]
    ]
    return ("unit", ("add", *total), *last[2:])


# --- matrices ---------------------------------------------------------------------------------------------------

Matrix = list[list[Node]]


def evaluate_matrix(node: Node) -> Node:
    """Carry out sums and products of matrices; the entries stay trees."""
    found = _matrix_value(node)
    if not isinstance(found, list):
        return UNDEFINED
    return ("matrix", *(("row", *row) for row in found))


def _matrix_value(node: Node) -> Matrix | Node:
    kind = node[0]
    if kind == "matrix":
        return [list(row[1:]) for row in node[1:]]
    if not any(part[0] == "matrix" for part in walk(node)):
        return node
    parts = [_matrix_value(part) for part in children(node)]
    if kind == "neg":
        return _scaled(("neg", number(1)), parts[0])
    if kind == "div" and not isinstance(parts[1], list):
        return _scaled(("div", number(1), parts[1]), parts[0])
    if kind == "pow" and parts[1] == ("sym", "T") and isinstance(parts[0], list):
        return [list(row) for row in zip(*parts[0], strict=True)]
    if kind in ("add", "mul"):
        total = parts[0]
        for part in parts[1:]:
            total = _sum(total, part) if kind == "add" else _product(total, part)
        return total
    return UNDEFINED


def _scaled(factor: Node, value: Matrix | Node) -> Matrix | Node:
    if isinstance(value, list):
        return [[("mul", factor, entry) for entry in row] for row in value]
    return ("mul", factor, value)


def _sum(left: Matrix | Node, right: Matrix | Node) -> Matrix | Node:
    if not isinstance(left, list) or not isinstance(right, list) or _shape(left) != _shape(right):
        return UNDEFINED
    return [[("add", a, b) for a, b in zip(*rows, strict=True)] for rows in zip(left, right, strict=True)]


def _product(left: Matrix | Node, right: Matrix | Node) -> Matrix | Node:
    if not isinstance(left, list):
        return _scaled(left, right)
    if not isinstance(right, list):
        return _scaled(right, left)
    (rows, inner), (others, columns) = _shape(left), _shape(right)
    if inner != others or rows * columns * inner > 12 * MAX_ENTRIES:
        return UNDEFINED
    entries = [("add", *(("mul", left[i][k], right[k][j]) for k in range(inner))) for i, j in _cells(rows, columns)]
    return [entries[i * columns : (i + 1) * columns] for i in range(rows)]


def _cells(rows: int, columns: int) -> list[tuple[int, int]]:
    return list(combinations(range(rows), range(columns)))


def _shape(matrix: Matrix) -> tuple[int, int]:
    return len(matrix), len(matrix[0])
