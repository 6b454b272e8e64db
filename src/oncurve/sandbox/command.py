"""One command in a process group of its own, its output in a file."""

import os
import signal
import subprocess  # noqa: TID251  this package is its home
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self

from oncurve.sandbox import launch
from oncurve.types import StorageError


class Command:
    """Runs while it is open; leaving the block ends it and its process group.

    Signals of the terminal do not reach it: Ctrl-C is for whoever opened it, who asks it to end with ``terminate``.
    On Linux it dies with the thread that opened it, also when that is killed.

    Args:
        words: the program's path and its arguments; no shell reads them.
        log: receives standard output and standard error, after what it holds already.

    Raises:
        StorageError: the log cannot be written, or the program not be started.
    """

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self._words = [sys.executable, "-P", launch.__file__, str(os.getpid()), *words]
        self._log = log
        self._file: BinaryIO | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._file = self._log.open("ab")
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=self._file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._close_log()
            raise StorageError(f"cannot start {self._words[4]} with its output in {self._log}: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._close_log()

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end, at most so long: the exit status, minus the signal that killed it, or None while it runs.

        Raises:
            ValueError: it was not started.
        """
        if self._process is None:
            raise ValueError("a command runs inside its `with` block only")
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Ask it to end (SIGTERM); nothing when it has ended."""
        if self._process is not None:
            self._process.terminate()

    def _close_log(self) -> None:
        if self._file is not None:
            self._file.close()
