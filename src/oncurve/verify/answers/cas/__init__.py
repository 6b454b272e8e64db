"""What exact arithmetic leaves open (radicals, logarithms, identities) is decided in processes that can be killed."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from oncurve.sandbox import Limits, Outcome, WorkerPool
from oncurve.verify.answers.nodes import Node

Mode = Literal["equal", "proportional", "equation"]

VERDICT_S = 1.5
"""Wall seconds for all the decisions of one verdict together."""


class NoDecisionError(Exception):
    """The process timed out, died or ran out of memory; ``cause`` is that of the sandbox."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause


class Decider(Protocol):
    """Who decides what exact arithmetic leaves open."""

    def decide(self, mode: Mode, trees: Sequence[Node]) -> bool | None:
        """True when the trees agree, False when they differ, None when the budget did not suffice to say.

        Raises:
            NoDecisionError: nobody knows.
        """
        ...


class Cas:
    """Warm processes that decide whether trees are equal; started as needed, killed by a time-out.

    Safe to use from several threads, whose decisions are made at the same time.

    Args:
        limits: of one decision.
        num_workers: processes at the same time; 0 for one on each core that this process may use.
    """

    limits = Limits(timeout_s=1.0, start_timeout_s=60.0, memory_bytes=512 * 1024**2)
    """Of one decision. A request also has a budget of evaluations, which hostile input meets long before."""

    def __init__(self, limits: Limits = limits, *, num_workers: int = 0) -> None:
        self._pool = WorkerPool(Path(__file__).with_name("child.py"), "decide", limits, num_workers=num_workers)

    @property
    def num_workers(self) -> int:
        """Decisions that are made at the same time."""
        return self._pool.num_workers

    def decide(self, mode: Mode, trees: Sequence[Node]) -> bool | None:
        """See ``Decider``."""
        return decision(self.ask(mode, trees))

    def ask(self, mode: Mode, trees: Sequence[Node], timeout_s: float | None = None) -> Outcome:
        """Have a process decide; ``decision`` reads the outcome."""
        return self._pool.call({"mode": mode, "trees": list(trees)}, timeout_s=timeout_s)

    def close(self) -> None:
        """End the processes. A later call starts fresh ones."""
        self._pool.close()


def decision(outcome: Outcome) -> bool | None:
    """What a process decided; see ``Decider``."""
    if outcome.cause:
        raise NoDecisionError(outcome.cause, outcome.detail)
    return {"equal": True, "different": False}.get(outcome.value)


class Allowance:
    """The CAS for one verdict: its decisions together may take ``seconds``, however many there are."""

    def __init__(self, cas: Cas, seconds: float = VERDICT_S) -> None:
        self._cas = cas
        self._left_s = self._seconds = seconds

    def decide(self, mode: Mode, trees: Sequence[Node]) -> bool | None:
        """See ``Decider``."""
        if self._left_s <= 0:
            raise NoDecisionError("timeout", f"all decisions together took more than {self._seconds:g} s")
        outcome = self._cas.ask(mode, trees, min(self._cas.limits.timeout_s, self._left_s))
        self._left_s -= outcome.seconds
        return decision(outcome)


_shared: dict[int, Cas] = {}
_lock = threading.Lock()


def shared_cas(num_workers: int = 0) -> Cas:
    """The one that all verifiers of this process with as many workers share. It ends with the process."""
    num_workers = num_workers or len(os.sched_getaffinity(0))
    with _lock:
        if num_workers not in _shared:
            _shared[num_workers] = Cas(num_workers=num_workers)
        return _shared[num_workers]


def _forget() -> None:
    """Another thread may have held the lock of a process that forked; the pools look after themselves."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)
