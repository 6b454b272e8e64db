"""Checks the arithmetic of a trace: every equality between numbers, exactly. Fallible: it reads English by word lists.

``4+5=9;9+2=11`` has two steps, ``12 * 3 = 36 = 40 - 4`` too. A step that the words around make part of something
larger, or that has variables, is unknown.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import islice

from pydantic import Field

from oncurve.verify.answers.exact import UndefinedError, rational
from oncurve.verify.items import Item
from oncurve.verify.steps.expression import Side, UnreadableError, read_side
from oncurve.verify.steps.protocol import Checked, CheckedStep, StepStatus
from oncurve.verify.steps.scan import Claim, find_claims, refuse, show
from oncurve.verify.steps.verifier import StepRewardSettings, StepsVerifier


class ArithmeticSettings(StepRewardSettings):
    """Which text is checked, and what counts as right."""

    thinking_tag: str = Field("think", pattern=r"^([A-Za-z][A-Za-z0-9_-]*)?$")
    """Steps stand inside this tag; one that is never closed goes to the end. Empty: in the whole completion."""

    accept_rounded: bool = True
    """``10/3 = 3.33`` is right: at least two places, correctly rounded, and no finite decimal says it exactly."""

    max_chars: int = Field(100_000, ge=1, le=10_000_000)
    """Text beyond it is not read."""

    max_steps: int = Field(1000, ge=1, le=100_000)
    """Equalities beyond it are not checked."""


class ArithmeticChecker:
    """Finds and checks equalities between numbers.

    Right: the exact values of both sides are equal (``≈``: within half a unit of the last digit; ``≠``: differ). Wrong:
    they are not, or a side divides by zero. Unknown: variables, words that may belong to a side, mixed units,
    questions, denials, numbers beyond the bounds. ``9 = 9`` and ``4+5 = 4+5`` say nothing and are no steps, and a step
    that is repeated counts once: there is nothing to gain by padding.
    """

    name = "arithmetic_steps"

    def __init__(self, settings: ArithmeticSettings) -> None:
        self.settings = settings

    def check(self, items: Sequence[Item]) -> list[Checked]:
        """The steps of each completion."""
        return [self.steps_of(item.text) for item in items]

    def steps_of(self, text: str) -> tuple[CheckedStep, ...]:
        """The steps of one completion, in order; of a step that is repeated, the first time that it can be decided."""
        claims = find_claims(self._trace(text)[: self.settings.max_chars])
        steps: dict[str, CheckedStep] = {}
        for claim in islice(claims, self.settings.max_steps):
            known = steps.get(claim.text)
            if known is not None and known.status is not StepStatus.UNKNOWN:
                continue
            if (step := self._step(claim)) is not None:
                steps[claim.text] = step
        return tuple(steps.values())

    def _trace(self, text: str) -> str:
        tag = self.settings.thinking_tag
        if not tag:
            return text
        inside, closing, _ = text.partition(f"</{tag}>")
        before, opening, inside_opened = inside.partition(f"<{tag}>")
        if opening:
            return inside_opened
        return before if closing else ""  # the prompt may have opened the tag

    def _step(self, claim: Claim) -> CheckedStep | None:
        try:
            refuse(claim)
            left, right = read_side(claim.left), read_side(claim.right)
            if not (left.has_operation or right.has_operation) and claim.is_word:
                return None
            values = _value(left), _value(right)
        except UnreadableError as error:
            if claim.is_word or claim.is_definition:
                return None
            return CheckedStep(text=claim.text, status=StepStatus.UNKNOWN, evidence=str(error))
        except UndefinedError:
            return CheckedStep(text=claim.text, status=StepStatus.WRONG, evidence="it divides by zero")
        if show(claim.left) == show(claim.right) or (values[0] == values[1] and _is_bare(left, right)):
            return None
        return self._judged(claim, left, right, values)

    def _judged(self, claim: Claim, left: Side, right: Side, values: tuple[Fraction, Fraction]) -> CheckedStep:
        if claim.relation == "≈" and left.places is None and right.places is None:
            return CheckedStep(text=claim.text, status=StepStatus.UNKNOWN, evidence="how near is near enough?")
        if self._holds(claim.relation, left, right, values):
            return CheckedStep(text=claim.text, status=StepStatus.RIGHT)
        sides = " and ".join(_shown(value) for value in values)
        return CheckedStep(text=claim.text, status=StepStatus.WRONG, evidence=f"the sides are {sides}")

    def _holds(self, relation: str, left: Side, right: Side, values: tuple[Fraction, Fraction]) -> bool:
        if relation == "≠":
            return values[0] != values[1]
        difference = abs(values[0] - values[1])
        if difference == 0:
            return True
        if relation == "≈":
            literal = right if right.places is not None else left
            return difference <= _half_unit(literal)
        if not self.settings.accept_rounded:
            return False
        return _is_rounding(right, values[0], difference) or _is_rounding(left, values[1], difference)


class ArithmeticVerifier(StepsVerifier):
    """The arithmetic checker as a part of the reward."""

    name = ArithmeticChecker.name

    def __init__(self, settings: ArithmeticSettings) -> None:
        super().__init__(ArithmeticChecker(settings), settings)


def _value(side: Side) -> Fraction:
    value = rational(side.node)
    if value is None:
        raise UnreadableError("a side is not rational, or too large")
    return value


def _is_bare(left: Side, right: Side) -> bool:
    return not (left.has_operation or right.has_operation)


def _half_unit(literal: Side) -> Fraction:
    return Fraction(10) ** (literal.trailing_zeros - (literal.places or 0)) / 2


def _is_rounding(literal: Side, exact: Fraction, difference: Fraction) -> bool:
    """The literal has two places or more, and rounds a value that has no finite decimal."""
    if literal.places is None or literal.places < 2:
        return False
    bottom = exact.denominator
    for prime in (2, 5):
        while bottom % prime == 0:
            bottom //= prime
    return bottom > 1 and difference <= _half_unit(literal)


def _shown(value: Fraction) -> str:
    text = str(value) if max(value.numerator.bit_length(), value.denominator.bit_length()) < 100 else ""
    return text or "a number of many digits"
