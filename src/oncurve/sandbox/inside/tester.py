"""A test text in another process than the program it tests.

Every value that the text compares is here, in a process that runs the data set's text and none of the program. The
program is asked for calls over the link. Names that the text uses and does not define come, in this order, from the
task's ``setup``, from Python, from the standard library (a module of that name, or a name of ``math``, ``collections``
and the like), and last from the program (as handles): so no program can hand a test its own ``abs`` or ``isclose``.

The server holds this module for all its forks, so what only a tester needs is imported where it is used.

It reports one of: passed; failed (with the line); the program ended; the test text cannot be used.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from . import confine, frames
from .proxies import Link, ProgramEndedError, UnsendableError

if TYPE_CHECKING:
    import ast
    import unittest

MAX_REQUEST_BYTES = 64 * 1024**2
FILE = "tests.py"
SETUP_FILE = "setup.py"
_MODULES = ("math", "collections", "itertools", "functools", "statistics", "fractions", "decimal", "typing", "copy")
_ALIASES = {"np": "numpy", "pd": "pandas"}


class BadTestsError(Exception):
    """The test text cannot be used, whatever the program does."""


class Tests:
    """A test text: what it defines, what it needs, how it is run."""

    def __init__(self, text: str, setup: str, entry: str) -> None:
        import ast
        import linecache

        self.entry = entry
        self.tree = _parse(text, FILE)
        self.setup = _parse(setup, SETUP_FILE)
        self.namespace: dict[str, Any] = {"__name__": "tests"}
        if not any(isinstance(node, ast.Assert | ast.Raise) or _is_unittest(node) for node in ast.walk(self.tree)):
            raise BadTestsError("the tests assert nothing")
        for name, source in ((FILE, text), (SETUP_FILE, setup)):
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)

    def run(self, link: Link) -> None:
        """Run the text to its end, then what it defines to be run. Whatever fails is raised."""
        self._execute(self.setup)
        known = self.namespace.get(self.entry)
        link.tests_a_class = self.entry[:1].isupper() if known is None else isinstance(known, type)
        self.namespace[self.entry] = link.name(self.entry)
        for name in sorted(_free_names(self.tree) - set(self.namespace) - set(dir(builtins))):
            self.namespace[name] = self._find(name, link)
        self._execute(self.tree)
        for function in self._functions():
            function()
        if not link.num_calls:
            raise BadTestsError("the tests never call the program")

    def _execute(self, tree: ast.Module) -> None:
        name = FILE if tree is self.tree else SETUP_FILE
        exec(compile(tree, name, "exec"), self.namespace)  # noqa: S102  the data set's text, in its own sandbox

    def _find(self, name: str, link: Link) -> Any:
        import importlib

        if name == "candidate":
            return self.namespace[self.entry]
        if name in sys.stdlib_module_names or name in _ALIASES:
            return importlib.import_module(_ALIASES.get(name, name))
        for module in map(importlib.import_module, _MODULES):
            if name in vars(module):
                return vars(module)[name]
        try:
            return link.name(name)
        except KeyError:
            raise NameError(f"neither the tests nor the program define {name}") from None

    def _functions(self) -> list[Callable[[], Any]]:
        """``check(candidate)``, functions named ``test...`` that the text does not call itself, ``unittest`` cases."""
        import ast

        called = {node.func.id for node in _calls(self.tree.body)}
        found: list[Callable[[], Any]] = []
        for node in self.tree.body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            defined = self.namespace[node.name]
            if isinstance(node, ast.ClassDef):
                if "unittest" in sys.modules and _is_case(defined):
                    found.append(partial(_run_case, defined))
            elif node.name == "check" and "check" not in called:
                found.append(partial(defined, self.namespace[self.entry]))
            elif node.name.startswith("test") and node.name not in called and not node.args.args:
                found.append(defined)
        return found


def _parse(text: str, name: str) -> ast.Module:
    import ast

    try:
        return ast.parse(text, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadTestsError(f"{name}: {error}") from None


def _calls(body: list[ast.stmt]) -> list[Any]:
    """Calls of plain names in statements at the top level."""
    import ast

    top = [node for node in body if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)]
    inner = [node for statement in top for node in ast.walk(statement)]
    return [node for node in inner if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]


def _is_unittest(node: ast.AST) -> bool:
    import ast

    return isinstance(node, ast.Attribute) and node.attr.startswith("assert")


def _is_case(value: Any) -> bool:
    import unittest

    return isinstance(value, type) and issubclass(value, unittest.TestCase)


def _run_case(case: type[unittest.TestCase]) -> None:
    import unittest

    for name in unittest.defaultTestLoader.getTestCaseNames(case):
        case(name).debug()


def _free_names(tree: ast.Module) -> set[str]:
    """Names that the text reads and binds nowhere."""
    import ast

    read: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return (read - bound) | ({"candidate"} & read)


def _place(error: BaseException) -> str:
    """The last line of the test text on the way to the error."""
    import traceback

    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in (FILE, SETUP_FILE)]
    return f"{lines[-1].filename.removesuffix('.py')} line {lines[-1].lineno}: {lines[-1].line}" if lines else "tests"


def judge(request: dict[str, Any]) -> dict[str, Any]:
    """Run the tests and say what came of it."""
    link = Link(confine.LINK, request["max_bytes"])
    try:
        tests = Tests(request["tests"], request["setup"], request["program"]["entry"])
        loaded = link.load(request["program"])
        if "failed" in loaded:
            return {"outcome": "program", "stage": str(loaded["failed"]), "text": str(loaded.get("text", ""))[:400]}
        tests.run(link)
    except ProgramEndedError as error:
        return {"outcome": "ended", "text": f"{error}; {_place(error)}"}
    except (BadTestsError, UnsendableError, SystemExit) as error:
        return {"outcome": "bad_tests", "text": f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001  the border: reported as data
        return _failure(error)
    return {"outcome": "passed"}


def _failure(error: Exception) -> dict[str, Any]:
    """An exception that the text did not expect. Only what it imports itself can be missing through no fault of the
    program's: an ``ImportError`` that the program raised is its failure like any other."""
    said = getattr(error, "program_said", None)
    if said is None and isinstance(error, ImportError):
        return {"outcome": "bad_tests", "text": f"{type(error).__name__}: {error}"}
    what = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}; "
    return {"outcome": "failed", "text": f"{what}{_place(error)}{f' (the program raised {said})' if said else ''}"}


def run(_request: dict[str, Any]) -> None:
    """Judge the test text that comes on the channel and report."""
    stream = frames.Stream(confine.CHANNEL, MAX_REQUEST_BYTES)
    try:
        report = judge(stream.receive())
        report["text"] = str(report.get("text", ""))[:1000]
        stream.send(report)
    except frames.HungUpError:
        pass  # nobody waits for the report any more
