"""A running program: talk to it over its channel, or feed it and read what it prints."""

import json
import os
import select
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oncurve.sandbox.endings import Ending, JailError, ProgramFaultError, ready
from oncurve.sandbox.inside import frames
from oncurve.sandbox.jail import Jail

_CHUNK_BYTES = 1 << 18
_STDERR_BYTES = 4096


class Program:
    """A running program and our end of its channel.

    Args:
        jail: where it runs.
        kind: what runs in its process.
        limits: as ``run_limits`` gives them.
        fds: descriptors that it gets beside its channel, closed here.
        targets: their numbers there.
    """

    def __init__(
        self,
        jail: Jail,
        kind: str,
        limits: Mapping[str, Any],
        fds: Sequence[int] = (),
        targets: Sequence[int] = (),
    ) -> None:
        self._jail = jail
        try:
            self._number, self._channel = jail.start(kind, limits, fds, targets)
        finally:
            for fd in fds:
                os.close(fd)
        self._received = bytearray()
        self._ended: Ending | None = None

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> Ending:
        """End it with everything it started; returns when nothing of it is left. Ending twice is fine."""
        self._channel.close()
        if self._ended is None:
            self._ended = self._jail.kill(self._number)
        return self._ended

    def hand_over(self) -> int:
        """Give our end of its channel away, for a tester to talk to it. The caller closes the descriptor."""
        self._channel.setblocking(True)
        return self._channel.detach()

    def ending(self, timeout_s: float) -> Ending | None:
        """How it ended, when it does so by itself in time.

        Raises:
            JailError: the sandbox failed.
        """
        try:
            return self._jail.wait(self._number, timeout_s)
        except JailError:
            return self._jail.ending(self._number)

    def send(self, message: Any, deadline: float) -> None:
        """Write a message.

        Raises:
            ProgramFaultError: it ended or does not read.
            JailError: the sandbox failed.
        """
        view = memoryview(frames.pack(message))
        while view:
            try:
                view = view[self._channel.send(view[:_CHUNK_BYTES]) :]
            except BlockingIOError:
                self._wait({self._channel.fileno(): select.POLLOUT}, deadline)
            except OSError:
                raise self._hung_up() from None

    def receive(self, deadline: float, max_bytes: int) -> Any:
        """Read a message.

        Raises:
            ProgramFaultError: it ended, is late, writes too much, or writes what is no message.
            JailError: the sandbox failed.
        """
        body = self._read(frames.HEADER.unpack(self._read(frames.HEADER.size, deadline))[0], deadline, max_bytes)
        try:
            return json.loads(body, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise ProgramFaultError("protocol", f"the program wrote what is no answer ({error})") from None

    def _read(self, size: int, deadline: float, max_bytes: int = 64) -> bytes:
        if size > max_bytes:
            raise ProgramFaultError("output", f"the program answered with more than {max_bytes} bytes")
        while len(self._received) < size:
            self._wait({self._channel.fileno(): select.POLLIN}, deadline)
            try:
                piece = self._channel.recv(_CHUNK_BYTES)
            except BlockingIOError:
                continue  # the wait ended for a message of the server
            except OSError:
                piece = b""
            if not piece:
                raise self._hung_up()
            self._received += piece
        body = bytes(self._received[:size])
        del self._received[:size]
        return body

    def _wait(self, interest: dict[int, int], deadline: float) -> None:
        control = self._jail.control_fd()
        happened = ready(interest | {control: select.POLLIN}, deadline)
        if not happened:
            raise ProgramFaultError("timeout", "no answer in time")
        if control in happened:
            self._jail.take_note()
            ending = self._jail.ending(self._number)
            if ending is not None and not (happened - {control}):
                raise ending.fault("before it answered")

    def _hung_up(self) -> ProgramFaultError:
        """The channel is closed: give the process a moment to end by itself, to say how."""
        ending = self.ending(0.5)
        if ending is None:
            return ProgramFaultError("ended", "the program closed its channel before it answered")
        return ending.fault("before it answered")

    def communicate(self, streams: "Streams", deadline: float, max_bytes: int) -> "Output":
        """Feed standard input and read standard output and error until the program has ended.

        Raises:
            ProgramFaultError: it is late, or writes more than ``max_bytes`` to one of them.
            JailError: the sandbox failed.
        """
        while (ending := self._jail.ending(self._number)) is None:
            happened = ready(streams.interest() | {self._jail.control_fd(): select.POLLIN}, deadline)
            if not happened:
                raise ProgramFaultError("timeout", "it did not end in time")
            streams.transfer(happened, max_bytes)
            if self._jail.control_fd() in happened:
                self._jail.take_note()
        streams.drain(max_bytes)
        return Output(bytes(streams.out), bytes(streams.err[-_STDERR_BYTES:]), ending)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


@dataclass(frozen=True, slots=True)
class Output:
    """What a program wrote and how it ended."""

    out: bytes
    err: bytes
    """The end of it."""
    ending: Ending


class Streams:
    """Our ends of a program's standard input, output and error.

    Args:
        data: what it reads.
    """

    def __init__(self, data: bytes) -> None:
        their_in, self._in = os.pipe()
        self._out, their_out = os.pipe()
        self._err, their_err = os.pipe()
        self.theirs = (their_in, their_out, their_err)
        for fd in (self._in, self._out, self._err):
            os.set_blocking(fd, False)
        self._data = memoryview(data)
        self.out, self.err = bytearray(), bytearray()
        self._open = {self._in, self._out, self._err}
        if not data:
            self._close(self._in)

    def close(self) -> None:
        for fd in list(self._open):
            self._close(fd)

    def interest(self) -> dict[int, int]:
        """What to wait for."""
        return {fd: select.POLLOUT if fd == self._in else select.POLLIN for fd in self._open}

    def transfer(self, happened: set[int], max_bytes: int) -> None:
        """Move what can be moved without waiting."""
        for fd in happened & self._open:
            if fd == self._in:
                self._feed()
            else:
                self._take(fd, max_bytes)

    def drain(self, max_bytes: int) -> None:
        """Read what is left once nobody writes any more."""
        for fd in (self._out, self._err):
            while fd in self._open and self._take(fd, max_bytes):
                pass

    def _feed(self) -> None:
        try:
            self._data = self._data[os.write(self._in, self._data[:_CHUNK_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._data = memoryview(b"")
        if not self._data:
            self._close(self._in)

    def _take(self, fd: int, max_bytes: int) -> bool:
        try:
            piece = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not piece:
            self._close(fd)
            return False
        kept = self.out if fd == self._out else self.err
        kept += piece
        if len(kept) > max_bytes:
            where = "standard output" if fd == self._out else "standard error"
            raise ProgramFaultError("output", f"the program wrote more than {max_bytes} bytes to {where}")
        return True

    def _close(self, fd: int) -> None:
        self._open.discard(fd)
        os.close(fd)
