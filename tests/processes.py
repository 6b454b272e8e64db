"""Looking at real processes, for tests that nothing is left of them."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def processes_with(marker: str) -> list[int]:
    """Process ids of the living processes whose command line contains the marker."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            is_match = marker.encode() in entry.read_bytes()
        except OSError:
            continue
        if is_match and int(entry.parent.name) != os.getpid():
            found.append(int(entry.parent.name))
    return found


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    """Wait for something to become true; say whether it did."""
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()
