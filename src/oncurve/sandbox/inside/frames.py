"""Messages on a stream: 8 bytes of length, then JSON in ASCII."""

import json
import os
import struct
from typing import Any

HEADER = struct.Struct(">Q")


class HungUpError(Exception):
    """The other side closed the stream."""


def pack(message: Any) -> bytes:
    """One message as bytes. Text is escaped to ASCII, so that lone surrogates survive."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    return HEADER.pack(len(body)) + body


def send(fd: int, message: Any) -> None:
    """Write one message to a blocking descriptor.

    Raises:
        HungUpError: nobody reads the other end.
    """
    view = memoryview(pack(message))
    try:
        while view:
            view = view[os.write(fd, view) :]
    except (BrokenPipeError, ConnectionResetError):
        raise HungUpError from None


def receive(fd: int, max_bytes: int) -> Any:
    """Read one message from a blocking descriptor.

    Raises:
        HungUpError: the stream ended.
        ValueError: the message is longer than ``max_bytes``, or not JSON.
    """
    size = HEADER.unpack(_read(fd, HEADER.size))[0]
    if size > max_bytes:
        raise ValueError(f"a message of {size} bytes, at most {max_bytes}")
    return json.loads(_read(fd, size))


def _read(fd: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        try:
            piece = os.read(fd, min(size - len(data), 1 << 20))
        except ConnectionResetError:
            raise HungUpError from None
        if not piece:
            raise HungUpError
        data += piece
    return bytes(data)
