"""Checkpoints that are either whole or not there.

checkpoints/
├── step_000050/     a directory that transformers loads, plus state.pt: everything else that resuming needs
├── step_000100/
└── .tmp-...         one that was being written when the process ended: ignored, and removed by the next save
"""

import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from oncurve.model import Policy, save_policy
from oncurve.model.state import read_state
from oncurve.types import StorageError

STATE_FILE = "state.pt"
_TEMPORARY = ".tmp-"
_NAME = re.compile(r"step_(\d{6,})")


def save_checkpoint(
    checkpoints: Path, step: int, policy: Policy, state: Mapping[str, Any], *, keep_last: int | None = None
) -> Path:
    """Write policy and state, then let them appear under their name in one rename.

    All files are on the disk before the rename, so a process killed at any instant leaves the older checkpoints and
    either the whole new one or none. One process writes to a folder at a time.

    Args:
        checkpoints: folder of the checkpoints; made if needed.
        step: names the checkpoint. One of the same step is replaced; for an instant only older ones are there.
        policy: saved as a Hugging Face directory.
        state: tensors and plain data (numbers, strings, lists, tuples, dictionaries, None).
        keep_last: after the new one is safe, older ones are removed until this many are left; None keeps all.

    Returns:
        The new checkpoint's folder.

    Raises:
        ValueError: step is negative, keep_last is below 1, or the state holds something that could not be read back.
        StorageError: the disk is full, read-only or not permitted. Earlier checkpoints are untouched.
    """
    if step < 0 or (keep_last is not None and keep_last < 1):
        raise ValueError(f"step must be >= 0 and keep_last >= 1, got {step} and {keep_last}")
    _refuse_unreadable(dict(state), "state")
    target = checkpoints / f"step_{step:06d}"
    temporary = checkpoints / f"{_TEMPORARY}{target.name}-{os.getpid()}"
    with _storage_errors(checkpoints):
        checkpoints.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(checkpoints)
        try:
            save_policy(policy, temporary)
            with (temporary / STATE_FILE).open("wb") as file:
                torch.save(dict(state), file)
            _sync_tree(temporary)
            _swap_in(temporary, target)
            _sync(checkpoints)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        _remove_old(checkpoints, keep_last)
    return target


def list_checkpoints(checkpoints: Path) -> list[Path]:
    """Whole checkpoints, by ascending step; empty when the folder does not exist."""
    if not checkpoints.is_dir():
        return []
    found = ((_NAME.fullmatch(path.name), path) for path in checkpoints.iterdir())
    steps = {int(match[1]): path for match, path in found if match and (path / STATE_FILE).is_file()}
    return [steps[step] for step in sorted(steps)]


def latest_checkpoint(checkpoints: Path) -> Path | None:
    """The whole checkpoint of the highest step; None when there is none."""
    found = list_checkpoints(checkpoints)
    return found[-1] if found else None


def load_state(checkpoint: Path) -> dict[str, Any]:
    """Read the state of a checkpoint. Tensors come to the CPU; no code in the file is executed.

    Raises:
        RunError: the file is missing or damaged.
    """
    remedy = f"Remove the folder {checkpoint} to resume from the checkpoint before it."
    return read_state(checkpoint / STATE_FILE, remedy=remedy)


def _swap_in(temporary: Path, target: Path) -> None:
    if target.exists():
        replaced = temporary.with_name(f"{temporary.name}-replaced")
        target.rename(replaced)
        temporary.rename(target)
        shutil.rmtree(replaced)
    else:
        temporary.rename(target)


def _remove_leftovers(checkpoints: Path) -> None:
    for path in checkpoints.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(path)


def _remove_old(checkpoints: Path, keep_last: int | None) -> None:
    if keep_last is None:
        return
    for path in list_checkpoints(checkpoints)[:-keep_last]:
        going = path.with_name(f"{_TEMPORARY}{path.name}-old")
        path.rename(going)  # first out of sight: a half-removed checkpoint must not be found
        shutil.rmtree(going)


def _sync_tree(directory: Path) -> None:
    for folder, _, files in os.walk(directory):
        for name in files:
            _sync(Path(folder) / name)
        _sync(Path(folder))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_DISK = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota is used up",
    errno.EFBIG: "a file would be larger than this process may write",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "writing there is not permitted",
    errno.EPERM: "writing there is not permitted",
}


@contextmanager
def _storage_errors(checkpoints: Path) -> Iterator[None]:
    """Turn what the writers of three libraries raise when a disk refuses into one error."""
    try:
        yield
    except Exception as error:
        reason = _disk_reason(error)
        if reason is None:
            raise
        raise StorageError(
            f"cannot write a checkpoint to {checkpoints}: {reason}. Earlier checkpoints there are untouched. "
            "Make room or permit writing, then run oncurve resume; or choose another run_dir."
        ) from error


def _disk_reason(error: BaseException | None) -> str | None:
    """Why the disk refused, from an error or what caused it; None when it is about something else.

    torch hides the cause behind a RuntimeError, safetensors and tokenizers state the number only in their text.
    """
    reason = None
    while error is not None:
        stated = re.search(r"os error (\d+)", str(error))
        number = error.errno if isinstance(error, OSError) else int(stated[1]) if stated else None
        if number in _DISK:
            return _DISK[number]
        if number is not None:
            reason = str(error)
        error = error.__cause__ or error.__context__
    return reason


def _refuse_unreadable(value: object, where: str) -> None:
    kind = type(value)  # exactly: a subclass of int or str is pickled by its class, which loading refuses
    if isinstance(value, torch.Tensor) or kind in (type(None), bool, int, float, str):
        return
    if isinstance(value, dict) and kind is dict:
        for key, item in value.items():
            _refuse_unreadable(key, f"a key of {where}")
            _refuse_unreadable(item, f"{where}[{key!r}]")
    elif isinstance(value, (list, tuple)) and kind in (list, tuple):
        for index, item in enumerate(value):
            _refuse_unreadable(item, f"{where}[{index}]")
    else:
        raise ValueError(
            f"{where} is a {kind.__name__}, which a checkpoint cannot hold: "
            "use tensors, numbers, strings, lists, tuples or dictionaries"
        )
