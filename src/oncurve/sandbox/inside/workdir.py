"""The working directory of a program that is not isolated. An isolated one has a tmpfs, which ends with it."""

import os
import shutil
import tempfile
from typing import Any


def make() -> str:
    """A fresh directory."""
    return tempfile.mkdtemp(prefix="oncurve-")


def remove(folder: str) -> None:
    """Remove it, also where the program took its own rights away."""

    def again(function: Any, path: str, _: Any) -> None:
        try:
            os.chmod(os.path.dirname(path), 0o700)  # noqa: PTH101, PTH120
            os.chmod(path, 0o700)  # noqa: PTH101
            function(path)
        except OSError:
            pass

    for _ in range(2):
        shutil.rmtree(folder, onerror=again)
