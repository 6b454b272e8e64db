"""What came of running a program's tests."""

from dataclasses import dataclass

from oncurve.sandbox import ProgramFaultError

FAULTS = {"timeout": "time-out", "ended": "ended early", "memory": "memory", "processes": "too many processes"}
FAULTS |= {"output": "too much output", "protocol": "no answer"}
"""What a fault of a program is called at the head of the evidence."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Every test passed."""

    evidence: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The program failed; the evidence begins with the kind of failure."""

    evidence: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """The failure is not the program's."""

    cause: str
    evidence: str


Outcome = Passed | Failed | Unusable


def failed_by(fault: ProgramFaultError, where: str) -> Failed:
    """A fault of the program as its failure."""
    return Failed(f"{FAULTS[fault.kind]}: {where}: {fault}")
