"""The ``countdown`` verifier: combine given numbers to reach a target.

    task.meta = {"numbers": [4, 5, 2], "target": 11}          correct: <answer>4+5+2</answer>

The expression is read by an own parser and computed with exact fractions. Nothing that the completion claims about
its value is read, let alone trusted.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field

from oncurve.types import Settings, Task, Verdict
from oncurve.verify.answers import extract
from oncurve.verify.items import Item, correct, no_verdict, one_line, wrong

MAX_CHARS = 500
MAX_DEPTH = 30
MAX_DIGITS = 12

Operator = Literal["+", "-", "*", "/"]
OPERATORS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-"})


class CountdownSettings(Settings):
    """The rules of the game."""

    use: Literal["all", "at_most_once"] = "all"
    """``all``: each given number exactly once. ``at_most_once``: numbers may be left out, never repeated."""

    operators: tuple[Operator, ...] = Field(("+", "-", "*", "/"), min_length=1)
    """Allowed operators; ``operators`` in a task's meta takes precedence."""

    tag: str = Field("answer", pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    """The expression stands alone inside this tag."""

    thinking_tag: str = Field("think", pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    """Nothing inside this tag is an answer."""


class ExpressionError(ValueError):
    """Text is not an arithmetic expression, breaks a rule, or has no value."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that was read and computed."""

    value: Fraction
    numbers: tuple[int, ...]
    """Every number written in it, in order."""


def read_expression(text: str, operators: Sequence[str] = tuple(OPERATORS)) -> Expression:
    """Compute an arithmetic expression exactly.

        sum     := product ((``+`` | ``-``) product)*
        product := atom ((``*`` | ``/``) atom)*
        atom    := digits | ``(`` sum ``)``

    Args:
        text: the expression and nothing else; blanks between symbols are free, signs are not allowed.
        operators: those that may be used.

    Raises:
        ExpressionError: anything else stands there, an operator is not allowed, a division by zero, or more than
            ``MAX_CHARS`` characters, ``MAX_DEPTH`` parentheses or ``MAX_DIGITS`` digits in a number.
    """
    if len(text) > MAX_CHARS:
        raise ExpressionError(f"longer than {MAX_CHARS} characters")
    reader = _Reader(text.translate(_SPELLINGS), operators)
    value = reader.sum(0)
    if reader.peek():
        raise ExpressionError(f"{one_line(reader.peek())!r} at position {reader.position} is not part of an expression")
    return Expression(value, tuple(reader.numbers))


class _Reader:
    def __init__(self, text: str, operators: Sequence[str]) -> None:
        self.text = text
        self.position = 0
        self.operators = operators
        self.numbers: list[int] = []

    def peek(self) -> str:
        while self.text[self.position : self.position + 1].isspace():
            self.position += 1
        return self.text[self.position : self.position + 1]

    def sum(self, depth: int) -> Fraction:
        value = self.product(depth)
        while (symbol := self.peek()) in ("+", "-"):
            value = self.apply(symbol, value, lambda: self.product(depth))
        return value

    def product(self, depth: int) -> Fraction:
        value = self.atom(depth)
        while (symbol := self.peek()) in ("*", "/"):
            value = self.apply(symbol, value, lambda: self.atom(depth))
        return value

    def apply(self, symbol: str, left: Fraction, read_right: Callable[[], Fraction]) -> Fraction:
        if symbol not in self.operators:
            raise ExpressionError(f"operator {symbol} is not allowed here")
        self.position += 1
        right = read_right()
        if symbol == "/" and right == 0:
            raise ExpressionError("division by zero")
        return OPERATORS[symbol](left, right)

    def atom(self, depth: int) -> Fraction:
        if self.peek() == "(":
            return self.group(depth + 1)
        start = self.position
        while self.text[self.position : self.position + 1] in _DIGITS:
            self.position += 1
        digits = self.text[start : self.position]
        if not 0 < len(digits) <= MAX_DIGITS:
            raise ExpressionError(f"a number of at most {MAX_DIGITS} digits is missing at position {start}")
        self.numbers.append(int(digits))
        return Fraction(int(digits))

    def group(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise ExpressionError(f"more than {MAX_DEPTH} nested parentheses")
        self.position += 1
        value = self.sum(depth)
        if self.peek() != ")":
            raise ExpressionError("a parenthesis is never closed")
        self.position += 1
        return value


_DIGITS = frozenset("0123456789")


@dataclass(frozen=True, slots=True)
class _Puzzle:
    numbers: tuple[int, ...]
    target: int
    operators: tuple[str, ...]


class CountdownVerifier:
    """Read the expression in the answer tag, check the rules, compare its exact value with the target."""

    name = "countdown"

    def __init__(self, settings: CountdownSettings) -> None:
        self.settings = settings

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        return [self._judge(item) for item in items]

    def state_gold(self, task: Task) -> str:
        return f"<{self.settings.tag}>{task.gold}</{self.settings.tag}>"

    def _judge(self, item: Item) -> Verdict:
        puzzle = _puzzle(item.task, self.settings)
        if isinstance(puzzle, str):
            return no_verdict("bad_gold", f"task {item.task.id}: {puzzle}")
        found = extract(item.text, "tag", tag=self.settings.tag, thinking_tag=self.settings.thinking_tag)
        if found.problem:
            return wrong(found.problem)
        if len(set(found.offers)) > 1:
            return wrong("different answers offered")
        return self._check(found.offers[-1], puzzle)

    def _check(self, answer: str, puzzle: _Puzzle) -> Verdict:
        shown = one_line(answer, 80)
        try:
            expression = read_expression(answer, puzzle.operators)
        except ExpressionError as error:
            return wrong(f"{shown}: {error}")
        used, given = Counter(expression.numbers), Counter(puzzle.numbers)
        if used != given and (self.settings.use == "all" or not used <= given):
            return wrong(f"{shown} uses {list(expression.numbers)}, given {list(puzzle.numbers)}")
        if expression.value != puzzle.target:
            return wrong(f"{shown} = {one_line(str(expression.value), 40)}, target {puzzle.target}")
        return correct(f"{shown} = {puzzle.target}")


def _puzzle(task: Task, settings: CountdownSettings) -> _Puzzle | str:
    """The puzzle of a task, or what is wrong with it."""
    numbers, target = task.meta.get("numbers"), task.meta.get("target")
    operators = task.meta.get("operators", settings.operators)
    if not isinstance(numbers, Sequence) or not numbers or not all(map(_is_integer, numbers)):
        return f"meta.numbers must be a list of integers, got {numbers!r}"
    if not isinstance(target, int) or isinstance(target, bool):
        return f"meta.target must be an integer, got {target!r}"
    if not isinstance(operators, Sequence) or not operators or not set(operators) <= set(OPERATORS):
        return f"meta.operators must be some of {' '.join(OPERATORS)}, got {operators!r}"
    return _Puzzle(tuple(map(int, numbers)), target, tuple(operators))


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
