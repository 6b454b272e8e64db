"""What loading gives: two sets of tasks without a common problem, and what was noticed on the way."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from oncurve.types import Task, unit_interval

TRAIN = "train"
HELD_OUT = "held_out"
MIN_TASKS = 2
"""Fewest prompts of a split: a run on one prompt learns its answer by heart and an interval needs two."""

UNBOUNDED = 2**62
"""Length of a training set that never ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """Something that happened to the data, for the user to know."""

    kind: str
    """``layout``, ``unused_column``, ``gold``, ``duplicate``, ``conflict``, ``leak``, ``split``, ``unused_row``, ..."""
    count: int
    """Rows, problems or columns concerned."""
    text: str
    """One sentence with names, numbers and rows."""


@dataclass(frozen=True, kw_only=True)
class TaskSet:
    """Training and held-out tasks; no problem is in both."""

    train: Sequence[Task]
    """Its length is ``UNBOUNDED`` for an endless generated source: index it, do not iterate over all of it."""
    held_out: Sequence[Task]
    notes: tuple[Note, ...] = ()

    @property
    def num_train(self) -> int | None:
        """Number of training tasks, None when endless."""
        return None if len(self.train) == UNBOUNDED else len(self.train)


def patience(num_found: int) -> int:
    """Fruitless draws in a row after which an endless source is taken to hold no further problem.

    20 for each one found: of m equally likely problems, a given one then stays hidden with probability e**-20.
    """
    return max(200, 20 * num_found)


def split_position(kind: str, canonical: str) -> float:
    """Where a problem falls in [0, 1), by its content alone; below the held-out fraction it is never trained on."""
    return unit_interval("split", kind, canonical)


def task_id(kind: str, canonical: str) -> str:
    """A name that equal problems share and different ones do not."""
    return f"{kind}-{blake2b(canonical.encode(), digest_size=8).hexdigest()}"
