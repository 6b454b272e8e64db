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


def descendants(pid: int) -> set[tuple[int, str]]:
    """Processes below this one that still run: id and start time, which together name a process for good."""
    found: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found[int(entry.parent.name)] = (int(fields[1]), fields[19])
    below, todo = set(), [pid]
    while todo:
        above = todo.pop()
        for child, (parent, started) in found.items():
            if parent == above:
                below.add((child, started))
                todo.append(child)
    return below


def is_running(process: tuple[int, str]) -> bool:
    """True while the process with this id and start time lives."""
    try:
        fields = Path(f"/proc/{process[0]}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return fields[19] == process[1] and fields[0] != "Z"


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    """Wait for something to become true; say whether it did."""
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()
