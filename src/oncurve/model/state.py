"""Tensors and plain data read from a file."""

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from oncurve.types import RunError


def read_state(path: Path, *, remedy: str) -> dict[str, Any]:
    """Read what ``torch.save`` wrote for a checkpoint. Tensors come to the CPU; no code in the file is executed.

    Args:
        path: the file.
        remedy: a sentence on what to do when it cannot be read.

    Raises:
        RunError: the file is missing or damaged.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, UnpicklingError, EOFError, ValueError) as error:
        # torch's own text advises to load with code execution enabled: not to be passed on
        reason = error.strerror if isinstance(error, OSError) else "it is damaged or was not written by oncurve"
        raise RunError(f"cannot read the checkpoint {path}: {reason}. {remedy}") from error
    return state
