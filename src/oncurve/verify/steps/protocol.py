"""What a step checker offers, and one number from its steps. Step checkers err: each states how often.

A checker cuts a completion into steps and says of each whether it is right, wrong, or beyond what it can decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

from oncurve.verify.items import Item


class StepStatus(StrEnum):
    """What a checker found out about one step."""

    RIGHT = "right"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    """It looks like a step and cannot be decided. Never counted as right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedStep:
    """One step of a completion."""

    text: str
    """The step as the checker read it."""
    status: StepStatus
    evidence: str = ""
    """Why it is wrong or unknown."""


@dataclass(frozen=True, slots=True)
class Unchecked:
    """The checker failed, and nobody knows anything about the steps."""

    cause: str
    """One word: ``timeout``, ``crash``, ``bad_gold``, ..."""
    detail: str


Checked = tuple[CheckedStep, ...] | Unchecked


class StepChecker(Protocol):
    """Checks steps. Hostile text gives steps, never an exception."""

    name: str
    """Also names the labelled rows that the checker's error rates are measured on."""

    def check(self, items: Sequence[Item]) -> list[Checked]:
        """Return the steps of each completion, in the order of the completions."""
        ...


Aggregate = Literal["share", "first_wrong", "all"]


def aggregate_steps(steps: Sequence[CheckedStep], how: Aggregate) -> float | None:
    """One number in [0, 1] from the steps of a completion.

        share        right / (right + wrong)
        first_wrong  steps that are right before the first wrong one / (right + wrong)
        all          1 when every step is right, an unknown one included among those that are not; else 0

    Args:
        steps: in the order of the completion.
        how: the rule.

    Returns:
        The value, or None when no step is right or wrong: nothing was checked.

    Source:
        The first wrong step as the measure of a solution: "Let's Verify Step by Step", arXiv:2305.20050.
    """
    statuses = [step.status for step in steps]
    decided = [status for status in statuses if status is not StepStatus.UNKNOWN]
    if not decided:
        return None
    if how == "all":
        return float(all(status is StepStatus.RIGHT for status in statuses))
    if how == "share":
        return decided.count(StepStatus.RIGHT) / len(decided)
    before = decided.index(StepStatus.WRONG) if StepStatus.WRONG in decided else len(decided)
    return before / len(decided)
