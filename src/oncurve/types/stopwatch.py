"""Wall seconds by name. Not among the names of ``oncurve.types``: what is pure mathematics may not reach a clock."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Sums wall seconds by name. A block inside another one belongs to the outer one, so that the names add up."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._is_running = False

    def reset(self) -> None:
        """Start again from nothing."""
        self._seconds = {}

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Count the block under this name, unless it is part of a block that is counted already."""
        if self._is_running:
            yield
            return
        self._is_running, started = True, time.perf_counter()
        try:
            yield
        finally:
            self._is_running = False
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - started

    def seconds(self) -> dict[str, float]:
        """Wall seconds by name."""
        return dict(self._seconds)
