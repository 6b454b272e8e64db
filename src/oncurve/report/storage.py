"""Files that survive a crash: whole lines, whole files, and errors that name the path and the remedy."""

import errno
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any, BinaryIO

from oncurve.types import NumericsError, RunError, StorageError

_FULL = "Free space there; records up to the last checkpoint are whole, so `oncurve resume` continues from it."
_FORBIDDEN = "Choose a folder that you may write to."
_NOT_A_FOLDER = "A part of this path is a file: choose another folder."
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EROFS: _FORBIDDEN,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.ENOTDIR: _NOT_A_FOLDER,
    errno.EEXIST: _NOT_A_FOLDER,
}
_BLOCK_BYTES = 1 << 16


@contextmanager
def storage_errors(path: Path, action: str) -> Iterator[None]:
    """Turn any OSError inside into a StorageError: ``cannot <action> <path>: <reason>. <remedy>``."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "Check that the path exists and that its disk is mounted.")
        raise StorageError(f"cannot {action} {path}: {error.strerror or error}. {remedy}") from error


def sync_path(path: Path) -> None:
    """Wait until the disk holds a file, or the names in a folder. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path with nothing there; when the block ends well, what was written takes the place of ``path``.

    A crash at any instant leaves the old file or the new one, never a part of one.

    Raises:
        StorageError: the disk refused; ``path`` is as it was.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with storage_errors(path, "write"):
        temporary.unlink(missing_ok=True)  # a killed writer's: appending to it would record its lines twice
        try:
            yield temporary
            sync_path(temporary)
            temporary.replace(path)
            sync_path(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that a killed writer left in a folder. Raises StorageError."""
    with storage_errors(folder, "clean"):
        for temporary in folder.glob(".*.tmp"):
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Replace a whole file by ``text``, UTF-8, newlines untouched. Raises StorageError."""
    with replacing(path) as temporary:
        temporary.write_bytes(well_formed(text).encode())


def well_formed(text: str) -> str:
    """Spell lone surrogates as ``\\udXXX``: they cannot be stored as UTF-8. All other text is returned unchanged."""
    return text.encode("utf-8", "backslashreplace").decode()


def plain(value: Any, name: str) -> Any:
    """Copy ``value`` as data that JSON can hold exactly; mappings come out in the order of their keys.

    Args:
        value: None, bool, text, finite numbers (numpy's too), and mappings and sequences of them.
        name: what the value is, for the error.

    Raises:
        NumericsError: a number is NaN or infinite.
        ValueError: anything else that is not plain data.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return finite(float(value), name)
    if isinstance(value, Mapping):
        return {well_formed(str(key)): plain(value[key], f"{name}.{key}") for key in sorted(value, key=str)}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(item, f"{name}[{index}]") for index, item in enumerate(value)]
    raise ValueError(f"{name} is a {type(value).__name__}: only numbers, text, lists and mappings can be recorded.")


def finite(value: float, name: str) -> float:
    """Return ``value`` as a float. Raises NumericsError when it is NaN or infinite."""
    if not math.isfinite(value):
        raise NumericsError(f"{name} is {value}: a record holds finite numbers. Record None for what was not measured.")
    return float(value)


class LineFile:
    """A file of JSON objects, one a line, to which one process appends.

    A last line without its newline is torn: readers leave it out and the next append cuts it off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add whole lines and hand them to the operating system. Raises StorageError."""
        with storage_errors(self.path, "append to"), self.path.open("a+b") as file:
            size = file.seek(0, os.SEEK_END)
            whole = _after_last_newline(file, size)
            if whole < size:
                file.truncate(whole)
            file.writelines(_encoded(row) for row in rows)

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the objects of all whole lines; nothing when there is no file.

        Raises:
            RunError: a whole line is not a JSON object.
        """
        for _, row in self._lines():
            yield row

    def last(self) -> dict[str, Any] | None:
        """Return the object of the last whole line, or None."""
        if not self.path.exists():
            return None
        with storage_errors(self.path, "read"), self.path.open("rb") as file:
            end = _after_last_newline(file, file.seek(0, os.SEEK_END))
            start = _after_last_newline(file, max(0, end - 1))
            file.seek(start)
            line = file.read(end - start)
        return self._parse(line, "last line") if line else None

    def keep(self, is_wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Rewrite the file with its wanted whole lines, byte for byte. Raises StorageError, RunError."""
        if not self.path.exists():
            return
        with replacing(self.path) as temporary, temporary.open("wb") as out:
            for line, row in self._lines():
                if is_wanted(row):
                    out.write(line)

    def _lines(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        if not self.path.exists():
            return
        with storage_errors(self.path, "read"), self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                yield line, self._parse(line, f"line {number}")

    def _parse(self, line: bytes, where: str) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except ValueError as error:
            raise RunError(
                f"{self.path}, {where}: not JSON ({error}). Cut the file there and resume the run."
            ) from error
        if not isinstance(row, dict):
            raise RunError(f"{self.path}, {where}: not a JSON object. Cut the file there and resume the run.")
        return row


def _encoded(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _after_last_newline(file: BinaryIO, end: int) -> int:
    """Return the offset after the last newline before offset ``end``; 0 when there is none."""
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
