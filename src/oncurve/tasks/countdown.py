"""Countdown: reach a target from given numbers, each used exactly once."""

import re
from collections.abc import Sequence
from random import Random

from pydantic import Field, field_validator

from oncurve.tasks.problem import Problem, Source
from oncurve.types import ConfigError, Settings, Task

MAX_DRAWS = 10_000
"""Random expressions tried for one problem before the options are called impossible."""


class CountdownOptions(Settings):
    """Which countdown problems are drawn."""

    num_numbers: int = Field(3, ge=2, le=8)
    """Numbers given in a problem; the answer uses each exactly once."""

    max_number: int = Field(30, ge=2, le=1000)
    """Numbers are drawn from 1 to this, repetitions allowed."""

    operators: str = Field("+-", pattern=r"^[-+*/]+$")
    """Operators that the answer may use, any of ``+-*/``; division only where it leaves no remainder."""

    max_result: int = Field(99, ge=1, le=1_000_000)
    """The target and every result on the way to it are whole numbers from 0 to this."""

    @field_validator("operators")
    @classmethod
    def _each_once(cls, value: str) -> str:
        if len(set(value)) < len(value):
            raise ValueError(f"each operator stands once, got {value!r}")
        return value


def countdown(rng: Random, options: CountdownOptions) -> Problem:
    """Draw numbers and an expression over them; what it evaluates to is the target, so the problem is solvable.

    Raises:
        ConfigError: the options leave (almost) no problem to draw.
    """
    numbers, operators, target = _draw(rng, options)
    shown = rng.sample(numbers, len(numbers))
    listed = ", ".join(map(str, shown[:-1])) + f" and {shown[-1]}"
    allowed = " ".join(options.operators)
    return Problem(
        kind="countdown",
        canonical=f"{','.join(map(str, sorted(numbers)))}:{target}",
        question=f"Use each of the numbers {listed} exactly once, with the operators {allowed} and brackets, "
        f"to write an expression that equals {target}.",
        compact=f"{','.join(map(str, shown))}:{target}=",
        gold=expression(numbers, operators),
        difficulty=float(len(operators) + sum(operator != "+" for operator in operators)),
        meta={"numbers": tuple(shown), "target": target, "operators": options.operators},
    )


def _draw(rng: Random, options: CountdownOptions) -> tuple[list[int], list[str], int]:
    for _ in range(MAX_DRAWS):
        numbers = [rng.randint(1, options.max_number) for _ in range(options.num_numbers)]
        operators = [rng.choice(options.operators) for _ in numbers[1:]]
        results = left_to_right(numbers, operators, max_result=options.max_result)
        if results is not None:
            return numbers, operators, results[-1]
    raise ConfigError(
        f"tasks.options: in {MAX_DRAWS} draws no expression over {options.num_numbers} numbers up to "
        f"{options.max_number} with {options.operators!r} stayed within 0..{options.max_result}. "
        "Raise max_result, lower num_numbers or max_number, or allow another operator."
    )


def left_to_right(
    numbers: Sequence[int], operators: Sequence[str], *, max_result: int | None = None
) -> list[int] | None:
    """Results of applying the operators one after the other, without precedence.

    Args:
        numbers: k + 1 operands.
        operators: k of ``+-*/``.
        max_result: largest result allowed; None allows any size.

    Returns:
        The k results in order, or None when one leaves 0..max_result or a division leaves a remainder.
    """
    results = [numbers[0]]
    for operator, number in zip(operators, numbers[1:], strict=True):
        total = _apply(results[-1], operator, number)
        if total is None or total < 0 or (max_result is not None and total > max_result):
            return None
        results.append(total)
    return results[1:]


def _apply(left: int, operator: str, right: int) -> int | None:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    return None if right == 0 or left % right else left // right


def expression(numbers: Sequence[int], operators: Sequence[str]) -> str:
    """Write left-to-right evaluation in ordinary notation: brackets where precedence would change the value."""
    text, has_sum = str(numbers[0]), False
    for operator, number in zip(operators, numbers[1:], strict=True):
        if operator in "*/" and has_sum:
            text, has_sum = f"({text})", False
        has_sum = has_sum or operator in "+-"
        text += f"{operator}{number}"
    return text


def explain_countdown(task: Task) -> str:
    """The steps of the gold expression, for example ``4+5=9;9+2=11``; each is true on its own."""
    first, *rest = re.findall(r"\d+|[-+*/]", task.gold)
    operators, numbers = rest[::2], [int(first), *map(int, rest[1::2])]
    results = left_to_right(numbers, operators)
    if results is None:
        raise ValueError(f"task {task.id}: gold {task.gold!r} does not stay whole and positive from left to right")
    lefts = [numbers[0], *results]
    steps = zip(lefts, operators, numbers[1:], results, strict=False)
    return ";".join(f"{left}{operator}{right}={total}" for left, operator, right, total in steps)


def guess_countdown(rng: Random, task: Task) -> str:
    """The given numbers in any order with any operators: right in form, and right only by luck."""
    numbers = rng.sample(task.meta["numbers"], len(task.meta["numbers"]))
    return expression(numbers, [rng.choice(task.meta["operators"]) for _ in numbers[1:]])


COUNTDOWN = Source(
    name="countdown",
    verifier="countdown",
    options=CountdownOptions,
    generate=countdown,
    explain=explain_countdown,
    guess=guess_countdown,
    has_compact=True,
)
