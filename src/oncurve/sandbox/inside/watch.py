"""How much memory and how many processes a program uses, all of its processes together."""

import os
import signal
import time
from contextlib import suppress
from typing import Any

_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Process:
    __slots__ = ("parent", "resident", "state")

    def __init__(self, stat: bytes) -> None:
        fields = stat.rpartition(b")")[2].split()
        self.state, self.parent, self.resident = fields[0], int(fields[1]), int(fields[21]) * _PAGE


def _processes() -> dict[int, _Process]:
    found = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208  many times a second
        if entry.isdigit():
            with suppress(OSError, IndexError, ValueError):
                fd = os.open(f"/proc/{entry}/stat", os.O_RDONLY)
                try:
                    found[int(entry)] = _Process(os.read(fd, 1024))
                finally:
                    os.close(fd)
    return found


def _tree(root: int, processes: dict[int, _Process]) -> list[int]:
    """The process and everything that descends from it."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        if pid in processes:
            found.append(pid)
        todo += children.get(pid, [])
    return found


def exceeded(root: int, limits: dict[str, Any]) -> str | None:
    """``memory`` or ``processes`` when the tree below ``root`` uses more than its limits, else None.

    Resident pages are counted first, which counts what processes share once for each; only above the limit each
    process is asked for its proportional share.
    """
    processes = _processes()
    tree = _tree(root, processes)
    if limits["processes_watched"] is not None and len(tree) > limits["processes_watched"]:
        return "processes"
    if sum(processes[pid].resident for pid in tree) <= limits["memory_bytes"]:
        return None
    share = sum(_proportional(pid, processes[pid].resident) for pid in tree)
    return "memory" if share > limits["memory_bytes"] else None


def _proportional(pid: int, resident: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return 0 if not os.path.exists(f"/proc/{pid}") else resident  # noqa: PTH110
    return resident


def end_orphans(known: set[int]) -> None:
    """Kill and reap every child of this process that is not known: orphans that it adopted, and theirs."""
    own = os.getpid()
    for _ in range(1000):
        left = [pid for pid, process in _processes().items() if process.parent == own and pid not in known]
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)
