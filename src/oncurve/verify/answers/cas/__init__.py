"""What exact arithmetic leaves open (radicals, logarithms, identities) is decided in a process that can be killed."""

import atexit
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from oncurve.sandbox import FunctionWorker, Limits
from oncurve.verify.answers.nodes import Node

Mode = Literal["equal", "proportional", "equation"]


class NoDecisionError(Exception):
    """The process timed out or died; ``cause`` is that of the sandbox."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause


class Cas:
    """One warm process that decides whether trees are equal; started by the first use, killed by a time-out.

    Safe to use from several threads, which wait for each other.
    """

    limits = Limits(timeout_s=1.0, start_timeout_s=60.0, memory_bytes=512 * 1024**2)
    """Of one decision. A request also has a budget of evaluations, which hostile input meets long before."""

    def __init__(self, limits: Limits = limits) -> None:
        self._worker = FunctionWorker(Path(__file__).with_name("child.py"), "decide", limits)

    def decide(self, mode: Mode, trees: Sequence[Node]) -> bool | None:
        """True when the trees agree, False when they differ, None when the budget did not suffice to say.

        Raises:
            NoDecisionError: the process timed out, died, or failed.
        """
        outcome = self._worker.call({"mode": mode, "trees": list(trees)})
        if outcome.cause:
            raise NoDecisionError(outcome.cause, outcome.detail)
        return {"equal": True, "different": False}.get(outcome.value)

    def close(self) -> None:
        """End the process. A later call starts a fresh one."""
        self._worker.close()


_shared: dict[int, Cas] = {}
_lock = threading.Lock()


def shared_cas() -> Cas:
    """The one that all verifiers of this process share; a forked process gets its own. Ends with the process."""
    with _lock:
        found = _shared.get(os.getpid())
        if found is None:
            found = _shared[os.getpid()] = Cas()
            atexit.register(found.close)
        return found
