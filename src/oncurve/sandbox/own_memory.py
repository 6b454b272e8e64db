"""How much memory this process has held."""

import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_bytes() -> int | None:
    """Most bytes that this program has held so far; None where the system does not say.

    Linux tells it of the program alone. ``ru_maxrss``, which other systems have, counts what the process that started
    it held at that moment, and so a small program of a large one is said to be large.
    """
    if _STATUS.is_file():
        found = (line.split() for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines())
        return next((int(words[1]) * 1024 for words in found if words[:1] == ["VmHWM:"]), None)
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
