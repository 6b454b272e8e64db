"""A disk that is full, for tests of what happens then."""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FILLER = "filler"


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A tmpfs of that size; the test is skipped where this user may not mount one."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"needs the right to mount a tmpfs (root): {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> None:
    """Write until the disk is full."""
    with (disk / FILLER).open("ab", buffering=0) as file:
        while True:
            try:
                file.write(b"\0" * 4096)
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    return
                raise
