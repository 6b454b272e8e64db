"""Where the seconds of an update go."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Sums wall seconds by name."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def reset(self) -> None:
        """Start again from nothing."""
        self._seconds = {}

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Count the block under this name."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - started

    def seconds(self) -> dict[str, float]:
        """Wall seconds by name."""
        return dict(self._seconds)
