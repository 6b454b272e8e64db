"""Hydra overrides in plain lists, and in the shell scripts that people start verl with. Nothing is executed."""

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

_VARIABLE = re.compile(r"\$\{(\w+)(?::?-([^{}]*))?\}|\$(\w+)")
_ARITHMETIC = re.compile(r"\$\(\((.*?)\)\)(?!\))")
_OVERRIDE = re.compile(r"[+~]{0,2}([A-Za-z_][\w/]*(?:\.[\w/]+)+)=(.*)", re.DOTALL)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_CHOICE_OF_FILE = re.compile(r"(--config-(?:name|path|dir))=(.*)")
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


class ShellError(ValueError):
    """A script that cannot be understood without running it."""


def parse_overrides(text: str) -> dict[str, str]:
    """Find the ``key=value`` words of a script or list, with its variables put in.

    A key has a dot, or stands behind a command. Other assignments are variables of the script; in a list without any
    command they are keys as well, unless something uses them. Of ``+key=``, ``++key=`` and ``~key=`` only the key is
    kept; of a key given twice the last value counts, as in Hydra.

    Raises:
        ShellError: a quote is not closed, or an override needs something that only running the script would tell.
    """
    script = _Script()
    for line in _lines(text):
        script.read(_words(line))
    return script.overrides()


class _Script:
    def __init__(self) -> None:
        self._variables: dict[str, str] = {"HOME": str(Path.home())}
        self._found: dict[str, str] = {}
        self._used = {"HOME"}
        self._has_command = False

    def overrides(self) -> dict[str, str]:
        if self._has_command:
            return self._found
        return {name: value for name, value in self._variables.items() if name not in self._used} | self._found

    def read(self, words: list[str]) -> None:
        is_behind_command = False
        for word in words:
            if match := _OVERRIDE.fullmatch(word):
                self._found[match[1].replace("/", ".")] = self._expand(match[2], key=match[1])
            elif match := _CHOICE_OF_FILE.fullmatch(word):
                self._found[match[1]] = match[2]
            elif match := _ASSIGNMENT.fullmatch(word):
                if is_behind_command:
                    self._found[match[1]] = self._expand(match[2], key=match[1])
                else:
                    self._variables[match[1]] = self._expand(match[2])
            elif word not in ("export", "declare", "local"):
                is_behind_command = self._has_command = True

    def _expand(self, text: str, key: str = "") -> str:
        """Put variables in, from the inside out; for an override (``key``) nothing may stay open."""

        def put_in(match: re.Match[str]) -> str:
            name = match[1] or match[3]
            self._used.add(name)
            if name in self._variables:
                return self._variables[name]
            if match[2] is None and key:
                raise ShellError(f"{key} uses the variable {name}, which the script does not set: write its value")
            return match[0] if match[2] is None else match[2]

        def compute(match: re.Match[str]) -> str:
            return str(_compute(re.sub(r"\$?\{?\b([A-Za-z_]\w*)\}?", self._value, match[1]), key))

        text, before = _ARITHMETIC.sub(compute, text), ""
        while text != before:
            before, text = text, _VARIABLE.sub(put_in, text)
        if key and ("$(" in text or "`" in text):
            raise ShellError(f"{key}={text} is what a command prints, and nothing is run here: write its value")
        return text

    def _value(self, match: re.Match[str]) -> str:
        self._used.add(match[1])
        return self._variables.get(match[1], match[0])


def _lines(text: str) -> Iterator[str]:
    """Logical lines: comments left out, lines that end in a backslash joined."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return (line for line in re.sub(r"\\[ \t]*(?:\n|$)", " ", kept).splitlines() if line.strip())


def _words(line: str) -> list[str]:
    kept_whole = _ARITHMETIC.sub(lambda match: match[0].replace(" ", "\0"), line)
    try:
        return [word.replace("\0", " ") for word in shlex.split(kept_whole, comments=True)]
    except ValueError as error:
        raise ShellError(f"{str(error).lower()} in the line: {line.strip()[:80]}") from None


def _compute(expression: str, key: str) -> int:
    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise ValueError

    try:
        return value(ast.parse(expression.strip().replace("/", "//"), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError):
        raise ShellError(
            f"{key or 'a variable'} is $(({expression})), more than whole numbers with + - * /: write its value"
        ) from None
