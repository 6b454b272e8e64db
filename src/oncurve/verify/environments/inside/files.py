"""A small file system: text files in directories, below one directory that is the whole world.

No tool makes a link, and a path is followed component by component, so there is no way out of the directory.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_MAX_DEPTH = 8


class Files:
    """``list``, ``read``, ``write``, ``move`` and ``delete`` files.

    Args:
        directory: empty, and nobody else's.
        limits: ``files`` and ``bytes``, of all files together.
    """

    def __init__(self, directory: Path, limits: Mapping[str, Any]) -> None:
        self._root = directory
        self._limits = limits

    def reset(self, start: Mapping[str, Any]) -> None:
        """Write the files: text by path. Raises ValueError: one of them is not allowed."""
        for path, text in start.items():
            self._write(path, text)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Carry out a tool. Raises ValueError: it cannot be done."""
        if name == "list":
            return "\n".join(self.state()) or "no files"
        if name == "read":
            return _read(self._existing(arguments["path"]))
        if name == "write":
            self._write(arguments["path"], arguments["text"])
        elif name == "move":
            self._move(arguments["source"], arguments["target"])
        elif name == "delete":
            self._existing(arguments["path"]).unlink()
        else:
            raise ValueError(f"no tool {name[:40]}")
        return "ok"

    def state(self) -> dict[str, str]:
        """Text of every file by its path; directories count only as parts of paths."""
        found = {}
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = Path(folder) / name
                found[str(path.relative_to(self._root))] = _read(path)
        return dict(sorted(found.items()))

    def _write(self, path: str, text: str) -> None:
        place, data = self._place(path), text.encode("utf-8", "replace")
        sizes = {other: len(said.encode()) for other, said in self.state().items()}
        sizes[str(place.relative_to(self._root))] = len(data)
        if len(sizes) > self._limits["files"]:
            raise ValueError(f"at most {self._limits['files']} files")
        if sum(sizes.values()) > self._limits["bytes"]:
            raise ValueError(f"at most {self._limits['bytes']} bytes in all files")
        self._make_way(place, path)
        place.write_bytes(data)

    def _move(self, source: str, target: str) -> None:
        old, new = self._existing(source), self._place(target)
        if new.exists():
            raise ValueError(f"{target} exists")
        self._make_way(new, target)
        old.rename(new)

    def _make_way(self, place: Path, path: str) -> None:
        """Make the directories of a path. Raises ValueError: a file or a directory stands in its way."""
        if place.is_dir():
            raise ValueError(f"{path} is a directory")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ValueError(f"a part of {path} is a file") from None

    def _existing(self, path: str) -> Path:
        place = self._place(path)
        if not place.is_file():
            raise ValueError(f"no file {path}")
        return place

    def _place(self, path: str) -> Path:
        parts = path.split("/")
        if len(parts) > _MAX_DEPTH or not all(_NAME.fullmatch(part) for part in parts):
            raise ValueError(f"not a path: {path[:80]!r}. Paths are names with / between, relative and without dots")
        return self._root.joinpath(*parts)


def _read(path: Path) -> str:
    return path.read_bytes().decode()
