"""The start of a ``Command``: bind this process to its parent's life, then become the command.

Run by path, standard library only. ``launch.py PARENT_PID PROGRAM WORDS...``
"""

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Die with the parent (Linux), which holds across ``exec``; do not start at all when it is gone already."""
    parent, *words = sys.argv[1:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(1)
    os.execv(words[0], words)  # noqa: S606  there is no shell, on purpose


if __name__ == "__main__":
    main()
