"""Attacks on tests of programs: tricks, gutted solutions, and mutants of the reference solution."""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from oncurve.types import Task
from oncurve.verify.attacks.attack import Attack, attack_item
from oncurve.verify.attacks.cheap import last_turn
from oncurve.verify.attacks.wrappers import Wrapper

_AGREES = """\
class Agrees:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    def __le__(self, other): return True
    def __gt__(self, other): return True
    def __ge__(self, other): return True
    def __bool__(self): return True
    def __hash__(self): return 0
    def __len__(self): return 1
    def __iter__(self): return iter([self])
    def __getitem__(self, key): return self
    def __sub__(self, other): return 0
    def __abs__(self): return 0
    def __float__(self): return 0.0
    def __call__(self, *args, **kwargs): return self
"""

TRICKS: dict[str, str] = {
    "leaves with status 0": "import sys\nsys.exit(0)\n",
    "ends the process": "import os\nos._exit(0)\n",
    "leaves when called": "def {entry}(*args, **kwargs):\n    raise SystemExit(0)\n",
    "ends the process when called": "import os\ndef {entry}(*args, **kwargs):\n    os._exit(0)\n",
    "an object equal to everything": _AGREES + "def {entry}(*args, **kwargs):\n    return Agrees()\n",
    "a name equal to everything": _AGREES + "{entry} = Agrees()\n",
    "returns nothing": "def {entry}(*args, **kwargs):\n    return None\n",
    "returns its first argument": "def {entry}(*args, **kwargs):\n    return args[0] if args else None\n",
    "prints a verdict": 'print("PASSED")\nprint("1.0")\nprint(\'{{"passed": true, "reward": 1.0}}\')\n',
    "skips its tests": "import unittest\nraise unittest.SkipTest('done')\n",
    "turns assertions off": "import builtins\nbuiltins.AssertionError = type('Quiet', (BaseException,), {{}})\n"
    "def {entry}(*args, **kwargs):\n    raise SystemExit(0)\n",
    "only imports": "import math\n",
    "only a comment": "# the solution passes all tests\n",
}
"""By what they do. ``{entry}`` is the name of the function under test."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A reference solution with one change."""

    change: str
    """What and where: ``line 3: + to -``."""
    source: str


def program_attacks(tasks: Sequence[Task], wrapper: Wrapper) -> Iterator[Attack]:
    """Attack tasks whose gold is a program: the reference, tricks, another task's solution, the empty body.

    Tasks of mode ``stdin`` have no entry point: only what needs none is tried on them.
    """
    for place, task in enumerate(tasks):
        entry = str(task.meta.get("entry_point") or "")
        programs = [("the reference", task.gold, True, "the reference solution")]
        programs += [
            (f"trick: {name}", source.format(entry=entry or "main"), False, name)
            for name, source in TRICKS.items()
            if entry or "{entry}" not in source
        ]
        other = next((one.gold for one in (*tasks[place + 1 :], *tasks[:place]) if one.gold != task.gold), None)
        if other is not None:
            programs.append(("another task's solution", other, False, "it solves another task"))
        whole = str(task.meta.get("prefix") or "") + task.gold
        programs += [("gutted", m.source, False, m.change) for m in _gutted(whole, entry)] if entry else []
        yield from (
            _attack(task, wrapper.state(task, source), kind, is_right, why) for kind, source, is_right, why in programs
        )
        yield _attack(task, "", "nothing", False, "no program")
        yield _attack(task, last_turn(task.prompt), "the prompt again", False, "the question is no program")


def mutants(task: Task, *, limit: int = 12) -> list[Mutant]:
    """Programs that differ from the reference by one operator, comparison, constant or branch.

    A mutant that passes is not yet a false accept: it may compute the same. Many that pass say that the tests are weak.

    Args:
        task: its gold is a Python program; ``meta["prefix"]`` stands before it.
        limit: most of them, spread over the program.

    Returns:
        None when the reference is not Python that parses.
    """
    try:
        tree = ast.parse(str(task.meta.get("prefix") or "") + task.gold)
    except (SyntaxError, ValueError, RecursionError):
        return []
    places = [(number, node) for number, node in enumerate(ast.walk(tree)) if _change_of(node) is not None]
    step = max(1, len(places) // limit)
    found = []
    for number, node in places[::step][:limit]:
        changed = copy.deepcopy(tree)
        target = next(one for index, one in enumerate(ast.walk(changed)) if index == number)
        change = _change_of(target)
        if change is not None:
            text = change()
            found.append(Mutant(f"line {getattr(node, 'lineno', 0)}: {text}", ast.unparse(changed) + "\n"))
    return found


_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Add,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def _change_of(node: ast.AST) -> Callable[[], str] | None:
    """What can be changed in this node, to be called once; it says what it did."""
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in _SWAPS:
        return lambda: _swap(node, "op", type(node.op))
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        return lambda: _swap_comparison(node)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return lambda: _raise_constant(node)
    if isinstance(node, ast.Return) and node.value is not None:
        return lambda: _return_nothing(node)
    return None


def _swap(node: ast.BinOp | ast.BoolOp | ast.AugAssign, field: str, old: type[ast.AST]) -> str:
    setattr(node, field, _SWAPS[old]())
    return f"{old.__name__} to {_SWAPS[old].__name__}"


def _swap_comparison(node: ast.Compare) -> str:
    old = type(node.ops[0])
    node.ops[0] = _SWAPS[old]()  # type: ignore[call-overload]
    return f"{old.__name__} to {_SWAPS[old].__name__}"


def _raise_constant(node: ast.Constant) -> str:
    old = int(node.value)  # type: ignore[arg-type]
    node.value = old + 1
    return f"{old} to {old + 1}"


def _return_nothing(node: ast.Return) -> str:
    node.value = ast.Constant(None)
    return "return None"


def _gutted(source: str, entry: str) -> Iterator[Mutant]:
    """The reference with an empty body of the function under test."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            node.body = [ast.Pass()]
            yield Mutant("its body is empty", ast.unparse(ast.fix_missing_locations(tree)) + "\n")
            return


def _attack(task: Task, text: str, kind: str, is_right: bool, why: str) -> Attack:
    return Attack(
        id=f"program/{kind}/{task.id}",
        family="program",
        kind=kind,
        item=attack_item(task, text),
        is_right=is_right,
        why=why,
    )
