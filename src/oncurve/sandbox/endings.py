"""How programs end, and what is a fault of theirs and what of ours."""

import select
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

FaultKind = Literal["timeout", "ended", "memory", "processes", "output", "protocol"]


class JailError(Exception):
    """The sandbox failed, not the program: nobody knows what the program would have done."""


class ProgramFaultError(Exception):
    """The program did not do what a program does: it ended early, ran out of time or memory, or wrote too much."""

    def __init__(self, kind: FaultKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program's process ended."""

    status: int | None
    """Exit status, or minus the number of the signal; None when it was killed from outside."""
    exceeded: FaultKind | None = None
    """The limit that it was killed for."""

    def __str__(self) -> str:
        if self.exceeded:
            return f"was killed for its {self.exceeded}"
        if self.status is None:
            return "was killed"
        if self.status < 0:
            with suppress(ValueError):
                return f"was killed by {signal.Signals(-self.status).name}"
        return f"ended with exit status {self.status}"

    def fault(self, doing: str) -> ProgramFaultError:
        """The end as a fault."""
        return ProgramFaultError(self.exceeded or "ended", f"the program {self} {doing}")


def ready(interest: Mapping[int, int], deadline: float) -> set[int]:
    """Wait until one of the descriptors is ready. Empty when the deadline (monotonic clock) passes first."""
    poller = select.poll()
    for fd, events in interest.items():
        poller.register(fd, events)
    remaining_ms = (deadline - time.monotonic()) * 1000
    return {fd for fd, _ in poller.poll(max(remaining_ms, 0))}
