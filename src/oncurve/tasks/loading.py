"""From settings to tasks, and a small look at them for people."""

from dataclasses import dataclass

from oncurve.tasks.filesource import load_file
from oncurve.tasks.generated import load_generated
from oncurve.tasks.listed import load_listed
from oncurve.tasks.registry import SOURCES
from oncurve.tasks.settings import TaskSettings
from oncurve.tasks.taskset import Note, TaskSet
from oncurve.types import Task


def load_tasks(settings: TaskSettings, *, seed: int) -> TaskSet:
    """Load or prepare the tasks of a run.

    Training and held-out problems are disjoint by a hash of their content, whatever the seed. The seed decides which
    problems a generated source draws; a file or a list of problems gives the same tasks for every seed.

    Raises:
        ConfigError: options of a generated source contradict each other, or an optional package is missing.
        DataError: a file or its rows cannot be used, or there are too few different problems.
    """
    if settings.path is not None:
        return load_file(settings, settings.path)
    if SOURCES[settings.source].problems is not None:
        return load_listed(settings)
    return load_generated(settings, seed=seed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """What ``oncurve check`` shows before anything is trained."""

    source: str
    num_train: int | None
    """None: endless."""
    num_held_out: int
    samples: tuple[Task, ...]
    """The first training tasks, prompts and golds as they will be used."""
    notes: tuple[Note, ...]


def preview(settings: TaskSettings, *, seed: int = 0, num_samples: int = 3) -> Preview:
    """Load the tasks and keep what a person needs to see of them.

    Raises:
        ConfigError, DataError: as ``load_tasks``.
    """
    tasks = load_tasks(settings, seed=seed)
    return Preview(
        source=settings.source if settings.path is None else str(settings.path),
        num_train=tasks.num_train,
        num_held_out=len(tasks.held_out),
        samples=tuple(tasks.train[:num_samples]),
        notes=tasks.notes,
    )
