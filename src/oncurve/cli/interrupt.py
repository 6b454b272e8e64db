"""Ctrl-C: the first one asks the loop to stop with a checkpoint, the second one stops at once."""

import signal
import sys
from typing import Self

STOPPED = 130
"""Exit code of a command that was stopped before its end, orderly or not: what a shell gives for Ctrl-C."""


SAME_COMMAND = "the same command goes on where it was"


class Interrupt:
    """While open, turns SIGINT and SIGTERM into a question: calling it tells whether the loop should stop.

    The second signal raises KeyboardInterrupt, with how the work goes on as its message.
    """

    def __init__(self, goes_on: str) -> None:
        self._goes_on = goes_on
        self._is_asked = False
        self._before: dict[signal.Signals, object] = {}

    def __call__(self) -> bool:
        return self._is_asked

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, *_: object) -> None:
        if self._is_asked:
            raise KeyboardInterrupt(f"stopped at once; {self._goes_on}")
        self._is_asked = True
        print("\nFinishing this step, then writing a checkpoint. Once more to stop at once.", file=sys.stderr)
