"""Checkpoints of the laboratory: one file each, whole or not there.

checkpoints/step_004500.pt holds weights, optimiser and counters, as tensors and plain data.
"""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from oncurve.model.state import read_state
from oncurve.report.storage import remove_leftovers, replacing, storage_errors

_NAME = re.compile(r"step_(\d{6,})\.pt")


def save_checkpoint(folder: Path, step: int, state: Mapping[str, Any], *, keep: int) -> Path:
    """Write a checkpoint in one rename, then remove all but the last ``keep``.

    Raises:
        StorageError: the disk refused; earlier checkpoints are untouched.
    """
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    path = folder / f"step_{step:06d}.pt"
    with storage_errors(folder, "create"):
        folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getvalue())
    with storage_errors(folder, "clean"):
        for old in list_checkpoints(folder)[:-keep]:
            old.unlink()
    return path


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints by ascending step; empty when there is no folder."""
    if not folder.is_dir():
        return []
    found = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    steps = {int(match[1]): path for match, path in found if match}
    return [steps[step] for step in sorted(steps)]


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint, as ``read_state``."""
    return read_state(path, remedy="Remove it to continue from the one before.")
