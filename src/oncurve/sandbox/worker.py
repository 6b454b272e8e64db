"""One function of a user's file in a process of its own, with a deadline for every call."""

import json
import os
import select
import signal
import subprocess  # noqa: TID251  this package is its home
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from oncurve.sandbox import child
from oncurve.types import Settings

MAX_REPLY_BYTES = 64 * 1024**2
_CHUNK_BYTES = 1 << 16

Cause = Literal["error", "timeout", "cpu", "memory", "crash"]


class Limits(Settings):
    """What one process may use."""

    timeout_s: float = Field(10.0, gt=0, le=3600)
    """Wall seconds for one call."""

    start_timeout_s: float = Field(120.0, gt=0, le=3600)
    """Wall seconds to start the process and import the file."""

    cpu_s: int | None = Field(None, ge=1, le=3600)
    """CPU seconds for one call, of each process, enforced by the kernel up to one second later; None for no limit."""

    memory_bytes: int | None = Field(None, ge=64 * 1024**2)
    """Address space, enforced by the kernel; None for no limit."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call."""

    value: Any = None
    """What the function returned, as plain JSON data."""
    cause: Cause | None = None
    """Why there is no value: it raised (``error``), took too long (``timeout``, ``cpu``), was refused memory
    (``memory``), or the process died (``crash``: also when it was killed from outside)."""
    detail: str = ""
    seconds: float = 0.0
    """Wall seconds that the call took, without waiting for a process."""


class _EndedError(Exception):
    """The process hung up."""


class _LateError(Exception):
    """The deadline passed."""


class FunctionWorker:
    """Calls one function in a child process; a call that hangs or dies costs only itself.

    The process is started by the first use and again after it had to be killed. No signals are used in this
    process, so it works from any thread; calls from several threads wait for each other (``WorkerPool`` has several
    processes). When the child ends, for whatever reason, everything that the function started ends with it, also when
    this process is killed. A forked process starts a child of its own.

    Args:
        file: the Python file.
        function: name of a function in it, sync or async.
        limits: what a call may use.
        show_output: pass what the function prints on to standard error; otherwise it is discarded.
    """

    def __init__(self, file: Path, function: str, limits: Limits, *, show_output: bool = False) -> None:
        own = {"memory_bytes": limits.memory_bytes, "cpu_s": limits.cpu_s}
        self._target = {"file": str(file), "function": function} | own
        self._limits = limits
        self._stderr = None if show_output else subprocess.DEVNULL
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        _workers.add(self)

    @property
    def is_started(self) -> bool:
        """True while there is a process; it may have died since the last call."""
        return self._process is not None

    def start(self) -> Outcome:
        """Start the process and load the function, unless that is done. The outcome says whether it worked."""
        with self._lock:
            return self._ensure_started()

    def call(self, arguments: Mapping[str, Any]) -> Outcome:
        """Call the function with keyword arguments of plain data.

        Raises:
            TypeError: an argument cannot be written as JSON.
        """
        return self.send(child.encode_frame(arguments))

    def send(self, frame: bytes, timeout_s: float | None = None) -> Outcome:
        """Call the function with arguments that are encoded already (``child.encode_frame``).

        ``timeout_s``: wall seconds, where they are not those of the limits.
        """
        with self._lock:
            started = self._ensure_started()
            return started if started.cause else self._exchange(frame, timeout_s or self._limits.timeout_s)

    def kill(self) -> None:
        """End the process under a call that another thread has running: for that call, a crash."""
        process = self._process
        if process is not None:
            process.terminate()

    def close(self) -> None:
        """End the process and everything it started. A later call starts a fresh one."""
        with self._lock:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ensure_started(self) -> Outcome:
        if self._process is not None:
            return Outcome()
        target = json.dumps(self._target | {"parent": os.getpid()})
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", child.__file__, target],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            return Outcome(cause="crash", detail=f"no process could be started: {error}")
        loaded = self._exchange(b"", self._limits.start_timeout_s)
        if loaded.cause:
            self._end()
        return loaded

    def _exchange(self, frame: bytes, timeout_s: float) -> Outcome:
        """Send a request and wait for the reply. A process that gave none is ended."""
        started = time.monotonic()
        try:
            reply = self._transfer(frame, started + timeout_s)
            seconds = time.monotonic() - started
            if set(reply) == {"value"}:
                return Outcome(reply["value"], seconds=seconds)
            cause: Cause = "memory" if reply.get("cause") == "memory" else "error"
            return Outcome(cause=cause, detail=str(reply["error"]), seconds=seconds)
        except _LateError:
            self._end()
            late = f"no result after {timeout_s:g} s; the process was killed"
            return Outcome(cause="timeout", detail=late, seconds=timeout_s)
        except _EndedError:
            return self._death(time.monotonic() - started)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._end()
            return Outcome(cause="crash", detail=f"the process sent no valid reply ({error}) and was killed")
        except BaseException:  # Ctrl-C: the reply that is still to come must not answer a later request
            self._end()
            raise

    def _death(self, seconds: float) -> Outcome:
        """What came of a call during which the process died."""
        status = self._end(own_end_s=2.0)
        if status == 128 + signal.SIGXCPU and self._limits.cpu_s is not None:
            spent = f"more than {self._limits.cpu_s} s of CPU time; the process was killed"
            return Outcome(cause="cpu", detail=spent, seconds=seconds)
        return Outcome(cause="crash", detail=f"the process died: {_how_it_ended(status)}", seconds=seconds)

    def _transfer(self, frame: bytes, deadline: float) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise _EndedError
        _write(process.stdin.fileno(), frame, deadline)
        size = child.HEADER.unpack(_read(process.stdout.fileno(), child.HEADER.size, deadline))[0]
        if size > MAX_REPLY_BYTES:
            raise ValueError(f"{size} bytes, at most {MAX_REPLY_BYTES}")
        reply: dict[str, Any] = json.loads(_read(process.stdout.fileno(), size, deadline))
        return reply

    def _forget(self) -> None:
        """In a forked process: the child belongs to the parent, and another thread may have held the lock."""
        self._lock = threading.Lock()
        process, self._process = self._process, None
        for pipe in (process.stdin, process.stdout) if process is not None else ():
            if pipe is not None:
                pipe.close()

    def _end(self, *, own_end_s: float = 0.0) -> int:
        """Hang up, wait until the supervisor has ended everything, and return its exit status.

        ``own_end_s``: seconds that a supervisor gets to notice by itself how its worker died.
        """
        process, self._process = self._process, None
        if process is None or process.stdin is None or process.stdout is None:
            return 0
        if not _has_ended(process, own_end_s):
            process.stdin.close()
            process.terminate()
            if not _has_ended(process, 10.0):
                process.kill()
                process.wait()
        process.stdin.close()
        process.stdout.close()
        return process.returncode


def _wait(fd: int, event: int, deadline: float) -> None:
    poller = select.poll()
    poller.register(fd, event)
    remaining_s = deadline - time.monotonic()
    if remaining_s <= 0 or not poller.poll(remaining_s * 1000):
        raise _LateError


def _write(fd: int, data: bytes, deadline: float) -> None:
    os.set_blocking(fd, False)
    view = memoryview(data)
    while view:
        _wait(fd, select.POLLOUT, deadline)
        try:
            view = view[os.write(fd, view[:_CHUNK_BYTES]) :]
        except BlockingIOError:
            continue
        except BrokenPipeError:
            raise _EndedError from None


def _read(fd: int, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        _wait(fd, select.POLLIN, deadline)
        piece = os.read(fd, min(size - len(data), _CHUNK_BYTES))
        if not piece:
            raise _EndedError
        data += piece
    return bytes(data)


def _has_ended(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _how_it_ended(status: int) -> str:
    """The supervisor passes on the worker's exit status, a signal as 128 + its number, as shells do."""
    if status < 0:
        return f"its supervisor was killed by signal {-status}"
    return f"signal {status - 128}" if status > 128 else f"exit status {status}"


_workers: "weakref.WeakSet[FunctionWorker]" = weakref.WeakSet()


def _forget_all() -> None:
    for worker in list(_workers):
        worker._forget()


os.register_at_fork(after_in_child=_forget_all)
