"""Which tasks come next: every task once an epoch, in an order that a hash decides, resumable from one number."""

from collections.abc import Sequence
from random import Random

from oncurve.tasks.generated import GeneratedTasks
from oncurve.tasks.taskset import patience
from oncurve.types import DataError, Task, derive_seed


class TaskSampler:
    """Hands out tasks without replacement.

    The walk runs over epochs, each a new permutation that depends on (seed, epoch) alone; an endless source is
    walked in its own order. ``cursor`` is the position on the walk and the whole state: a sampler with the same
    tasks, seed and cursor continues with the same tasks.

    No task comes twice in one ``take``. A call that crosses into the next epoch therefore passes over the tasks it
    already holds, and these sit out that epoch.

    Args:
        tasks: finite, or endless from a generated source.
        seed: decides the permutations.
        cursor: where to continue.

    Raises:
        DataError: there are no tasks.
        ValueError: the cursor is negative.
    """

    def __init__(self, tasks: Sequence[Task], *, seed: int, cursor: int = 0) -> None:
        if len(tasks) == 0:
            raise DataError("there are no tasks to sample from")
        self._tasks = tasks
        self._seed = seed
        self._is_endless = isinstance(tasks, GeneratedTasks)
        self._num_distinct = len(tasks) if self._is_endless else len({task.id for task in tasks})
        self._epoch = -1
        self._order: list[int] = []
        self.cursor = cursor

    @property
    def num_distinct(self) -> int:
        """Different tasks that one ``take`` can give; of an endless source, those it can still find."""
        return self._num_distinct

    @property
    def cursor(self) -> int:
        """Tasks walked over so far."""
        return self._cursor

    @cursor.setter
    def cursor(self, value: int) -> None:
        if value < 0:
            raise ValueError(f"a cursor counts tasks walked over, got {value}")
        self._cursor = value

    def take(self, num_tasks: int) -> list[Task]:
        """The next ``num_tasks`` different tasks.

        Raises:
            DataError: there are fewer different tasks than that; the cursor stays where it was.
            ValueError: num_tasks is negative.
        """
        if num_tasks < 0:
            raise ValueError(f"take needs a count of tasks, got {num_tasks}")
        if num_tasks > self._num_distinct:
            raise DataError(self._too_few(num_tasks, self._num_distinct))
        taken: dict[str, Task] = {}
        position, fruitless = self._cursor, 0
        while len(taken) < num_tasks:
            task = self._task_at(position)
            fruitless = fruitless + 1 if task.id in taken else 0
            if self._is_endless and fruitless > patience(len(taken)):
                raise DataError(self._too_few(num_tasks, len(taken)))
            taken.setdefault(task.id, task)
            position += 1
        self._cursor = position
        return list(taken.values())

    def _task_at(self, position: int) -> Task:
        if self._is_endless:
            return self._tasks[position]
        epoch, index = divmod(position, len(self._tasks))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, _permutation(len(self._tasks), derive_seed("epoch", self._seed, epoch))
        return self._tasks[self._order[index]]

    def _too_few(self, wanted: int, found: int) -> str:
        return (
            f"{wanted} different tasks are wanted at once, but there are only {found}. "
            "Lower rollout.num_prompts, or add problems (tasks.num_train, tasks.options, more rows)."
        )


def _permutation(length: int, seed: int) -> list[int]:
    """Sort by random keys: ``Random.random`` gives the same numbers in every Python version, ``shuffle`` need not."""
    rng = Random(seed)  # noqa: S311
    keys = [rng.random() for _ in range(length)]
    return sorted(range(length), key=keys.__getitem__)
