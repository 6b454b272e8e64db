"""Tasks drawn from a generated source: endless for training, a fixed number held out."""

from collections.abc import Sequence
from random import Random
from typing import overload

from oncurve.tasks.problem import Problem
from oncurve.tasks.prompts import pose, state_answer
from oncurve.tasks.registry import SOURCES
from oncurve.tasks.settings import DEFAULT_HELD_OUT, TaskSettings
from oncurve.tasks.taskset import HELD_OUT, TRAIN, UNBOUNDED, Note, TaskSet, patience, split_position
from oncurve.types import DataError, Task, derive_seed

MAX_DRAWS = 10_000
"""Problems drawn in search of one of the wanted split, or of one not seen yet."""


class GeneratedTasks(Sequence[Task]):
    """An endless sequence of tasks of one split; item ``index`` depends on (source, split, seed, index) alone.

    A problem belongs to the held-out split when the hash of its content falls below ``held_out_fraction``, whatever
    the seed; problems of the other split are drawn again. The same problem can come back at another index: its task
    then has the same id.
    """

    def __init__(self, settings: TaskSettings, *, seed: int, split: str) -> None:
        self._source = SOURCES[settings.source]
        if self._source.generate is None:
            raise ValueError(f"{settings.source} draws no problems, it lists them: load_tasks gives all there are")
        self._generate = self._source.generate
        self._options = settings.source_options
        self._settings = settings
        self._seed = seed
        self._split = split

    def __len__(self) -> int:
        return UNBOUNDED

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Task, ...]: ...
    def __getitem__(self, index: int | slice) -> Task | tuple[Task, ...]:
        if isinstance(index, slice):
            return tuple(self[position] for position in range(*index.indices(UNBOUNDED)))
        if not 0 <= index < UNBOUNDED:
            raise IndexError(f"an endless sequence is indexed from 0, got {index}")
        return pose(self._draw(index), self._source, self._settings, split=self._split)

    def _draw(self, index: int) -> Problem:
        rng = Random(derive_seed(self._source.name, self._split, self._seed, index))  # noqa: S311
        for _ in range(MAX_DRAWS):
            problem = self._generate(rng, self._options)
            is_held_out = split_position(problem.kind, problem.canonical) < self._settings.held_out_fraction
            if is_held_out == (self._split == HELD_OUT):
                return problem
        raise DataError(
            f"tasks.options: {MAX_DRAWS} problems of {self._source.name} were drawn and none belongs to the "
            f"{self._split} split: the options leave too few different problems. Widen them."
        )


def load_generated(settings: TaskSettings, *, seed: int) -> TaskSet:
    """Draw the held-out tasks, and the training tasks too when their number is set.

    Raises:
        ConfigError: the options contradict each other, or an optional package is missing.
        DataError: the options leave fewer different problems than asked for.
    """
    held_out_seed = seed if settings.held_out_seed is None else settings.held_out_seed
    stream = GeneratedTasks(settings, seed=held_out_seed, split=HELD_OUT)
    held_out, repeats = distinct(stream, settings.num_held_out or DEFAULT_HELD_OUT)
    if settings.num_held_out is not None:
        _require(held_out, settings.num_held_out, "num_held_out")
    train: Sequence[Task] = GeneratedTasks(settings, seed=seed, split=TRAIN)
    if settings.num_train is not None:
        train, more_repeats = distinct(train, settings.num_train)
        _require(train, settings.num_train, "num_train")
        repeats += more_repeats
    text = f"{repeats} problems were drawn a second time and passed over."
    return TaskSet(
        train=train, held_out=held_out, notes=(Note(kind="duplicate", count=repeats, text=text),) if repeats else ()
    )


def distinct(tasks: Sequence[Task], count: int) -> tuple[tuple[Task, ...], int]:
    """The first ``count`` different tasks of an endless sequence, fewer when it seems to hold no more.

    Returns:
        The tasks in order, and how many draws repeated one of them.
    """
    found: dict[str, Task] = {}
    draws = fruitless = 0
    while len(found) < count and fruitless < patience(len(found)):
        task = tasks[draws]
        fruitless = fruitless + 1 if task.id in found else 0
        found.setdefault(task.id, task)
        draws += 1
    return tuple(found.values()), draws - len(found)


def _require(tasks: Sequence[Task], count: int, setting: str) -> None:
    if len(tasks) < count:
        raise DataError(
            f"tasks.{setting} asks for {count} different problems, but the options leave only {len(tasks)}. "
            "Lower it, or widen tasks.options."
        )


def worked_example(task: Task) -> str:
    """A correct completion of a generated task: true reasoning, then the answer where the prompt asks for it.

    For countdown, for example, ``<think>4+5=9;9+2=11</think><answer>4+5+2</answer>``.

    Raises:
        ValueError: the task comes from a file, or its source offers no reasoning.
    """
    source = SOURCES.get(task.meta.get("generator", ""))
    if source is None or source.explain is None:
        raise ValueError(f"task {task.id} ({task.kind}) has no worked example: only generated sources that explain do")
    return state_answer(task.gold, source.explain(task), task.meta["answer_format"])


def guessed_example(task: Task, *, seed: int) -> str:
    """A completion that guesses: right in form, ``guess`` for its reasoning, and an answer that is right only by luck.

    For countdown, for example, ``<think>guess</think><answer>4-2+5</answer>``. Of a tool task: calls, in the form of
    its gold, that change something without looking.

    Args:
        task: of a generated source.
        seed: decides the guess, together with the task.

    Raises:
        ValueError: the task comes from a file, or its source offers no guesses.
    """
    source = SOURCES.get(task.meta.get("generator", ""))
    if source is None or source.guess is None:
        raise ValueError(
            f"task {task.id} ({task.kind}) has no guessed example: of the sources, countdown, files and database do"
        )
    rng = Random(derive_seed("guess", seed, task.id))  # noqa: S311
    if source.has_tools:
        return source.guess(rng, task)
    return state_answer(source.guess(rng, task), "guess", task.meta["answer_format"])
