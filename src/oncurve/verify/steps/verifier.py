"""A step checker as a part of the reward."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from oncurve.types import Settings, Verdict
from oncurve.verify.items import Item, correct, no_verdict, one_line, wrong
from oncurve.verify.steps.protocol import (
    Aggregate,
    Checked,
    CheckedStep,
    StepChecker,
    StepStatus,
    Unchecked,
    aggregate_steps,
)


class StepRewardSettings(Settings):
    """From checked steps to a reward."""

    aggregate: Aggregate = "share"
    """``share``: right steps among those that were right or wrong. ``first_wrong``: how far it went before the first
    wrong one. ``all``: 1 when every step is right, unknown ones counted as not right."""

    correct_at: float = Field(1.0, gt=0, le=1)
    """The completion counts as correct when the value reaches this."""

    without_steps: Literal["wrong", "no_verdict"] = "wrong"
    """A completion in which no step could be checked. ``wrong``: reward 0, so that writing nothing checkable does not
    pay. ``no_verdict``: nothing is said about it, cause ``no_steps``."""


class StepsVerifier:
    """Rewards a completion for its steps, by any checker. Fallible: a wrong step may pass and a right one be refused.

    Args:
        checker: finds and checks the steps.
        settings: from steps to a reward.
    """

    def __init__(self, checker: StepChecker, settings: StepRewardSettings) -> None:
        self.name = checker.name
        self.checker = checker
        self.settings = settings

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict an item; the evidence begins with ``fallible``."""
        return [self._verdict(checked) for checked in self.checker.check(items)]

    def _verdict(self, checked: Checked) -> Verdict:
        if isinstance(checked, Unchecked):
            return no_verdict(checked.cause, f"fallible {self.name} check: {checked.detail}")
        value = aggregate_steps(checked, self.settings.aggregate)
        evidence = f"fallible {self.name} check: {_account(checked)}"
        if value is None:
            nothing = f"{evidence}; no step could be checked"
            return wrong(nothing) if self.settings.without_steps == "wrong" else no_verdict("no_steps", nothing)
        return correct(evidence, value) if value >= self.settings.correct_at else wrong(evidence, value)


def _account(steps: Sequence[CheckedStep]) -> str:
    """``3 of 4 steps right, 1 unknown; first wrong: 9+2=12, the sides are 11 and 12``."""
    statuses = [step.status for step in steps]
    right, unknown = statuses.count(StepStatus.RIGHT), statuses.count(StepStatus.UNKNOWN)
    account = f"{right} of {len(steps)} steps right" + (f", {unknown} unknown" if unknown else "")
    for status in (StepStatus.WRONG, StepStatus.UNKNOWN):
        for step in steps:
            if step.status is status:
                return f"{account}; first {status}: {one_line(step.text, 80)}, {step.evidence}"
    return account
