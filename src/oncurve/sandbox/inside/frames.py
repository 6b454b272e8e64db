"""Messages on a stream: 8 bytes of length, then JSON in ASCII."""

import json
import os
import struct
from typing import Any

HEADER = struct.Struct(">Q")
_CHUNK_BYTES = 1 << 16
_encode = json.JSONEncoder(separators=(",", ":")).encode


class HungUpError(Exception):
    """The other side closed the stream."""


def pack(message: Any) -> bytes:
    """One message as bytes. Text is escaped to ASCII, so that lone surrogates survive."""
    body = _encode(message).encode("ascii")
    return HEADER.pack(len(body)) + body


class Stream:
    """Messages on a blocking descriptor.

    Args:
        fd: the descriptor.
        max_bytes: the longest message that is read.
    """

    def __init__(self, fd: int, max_bytes: int) -> None:
        self._fd, self._max_bytes = fd, max_bytes
        self._received = bytearray()

    def send(self, message: Any) -> None:
        """Write one message.

        Raises:
            HungUpError: nobody reads the other end.
        """
        data = pack(message)
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except (BrokenPipeError, ConnectionResetError):
            raise HungUpError from None

    def receive(self) -> Any:
        """Read one message.

        Raises:
            HungUpError: the stream ended.
            ValueError: the message is longer than ``max_bytes``, or not JSON.
        """
        size = HEADER.unpack(self._take(HEADER.size))[0]
        if size > self._max_bytes:
            raise ValueError(f"a message of {size} bytes, at most {self._max_bytes}")
        return json.loads(self._take(size))

    def _take(self, size: int) -> bytearray:
        while len(self._received) < size:
            try:
                piece = os.read(self._fd, max(size - len(self._received), _CHUNK_BYTES))
            except ConnectionResetError:
                raise HungUpError from None
            if not piece:
                raise HungUpError
            self._received += piece
        taken = self._received[:size]
        del self._received[:size]
        return taken
