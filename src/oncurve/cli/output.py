"""What is printed, where nobody may read it: a closed pipe, a full disk, a terminal without Greek.

Stderr is commentary. It never ends a command: a training goes on when the terminal it was started from is gone. Stdout
is the result: a command that cannot print it says so, once.
"""

import codecs
import io
import json
import os
import sys

_ESCAPED = "oncurve.escaped"


def open_output() -> None:
    """Make stderr one that never fails, and have both streams escape what their encoding lacks, as JSON does."""
    codecs.register_error(_ESCAPED, _escape)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_ESCAPED)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors=_ESCAPED)
        sys.stderr = _Commentary(sys.stderr)


def flush_output() -> None:
    """Write what stdout still holds.

    Raises:
        OSError: it cannot be written. What remains is dropped, so that the interpreter does not fail on it once more.
    """
    if sys.stdout is None:  # it was closed before the command began
        return
    try:
        sys.stdout.flush()
    except OSError:
        _drop(sys.stdout.fileno())
        raise


class _Commentary(io.TextIOBase):
    """A stream that swallows the first failure to write, and all text from there on."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the stream: rich asks which characters it may draw with."""
        return self._stream.encoding

    def write(self, text: str, /) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            _drop(self.fileno())
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            _drop(self.fileno())

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def writable(self) -> bool:
        return True


def _drop(descriptor: int) -> None:
    """Let everything that is written there vanish from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _escape(error: UnicodeError) -> tuple[str, int]:
    """``\\u03c1`` for a character that the encoding lacks: inside a JSON string it still means that character."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
