"""Tasks of a source that lists all its problems: split by a hash of their content, the same for every seed."""

from collections.abc import Sequence

from oncurve.tasks.problem import Problem
from oncurve.tasks.prompts import pose
from oncurve.tasks.registry import SOURCES
from oncurve.tasks.settings import TaskSettings
from oncurve.tasks.taskset import HELD_OUT, MIN_TASKS, TRAIN, Note, TaskSet, split_position
from oncurve.types import ConfigError, DataError


def load_listed(settings: TaskSettings) -> TaskSet:
    """Hold out the problems whose hash falls below ``held_out_fraction``, or ``num_held_out`` of lowest hash.

    Training problems keep the order of the source; ``num_train`` takes the first of them.

    Raises:
        ConfigError: an optional package is missing.
        DataError: there are fewer problems than asked for.
    """
    source = SOURCES[settings.source]
    if source.problems is None:
        raise ConfigError(f"{settings.source} lists no problems")
    problems = source.problems(settings.source_options)
    held_out = _held_out(problems, settings)
    names = {(one.kind, one.canonical) for one in held_out}
    train = [one for one in problems if (one.kind, one.canonical) not in names]
    kept = train if settings.num_train is None else train[: settings.num_train]
    if min(len(kept), len(held_out)) < MIN_TASKS or len(kept) < (settings.num_train or 0):
        raise DataError(
            f"tasks.options leave {len(problems)} problems of {settings.source}, {len(train)} to train on and "
            f"{len(held_out)} held out: at least {max(MIN_TASKS, settings.num_train or 0)} and {MIN_TASKS} are needed. "
            "Widen them, or lower tasks.num_train and tasks.num_held_out."
        )
    unused = len(train) - len(kept)
    text = f"{unused} problems of {settings.source} are left out by tasks.num_train."
    return TaskSet(
        train=tuple(pose(one, source, settings, split=TRAIN) for one in kept),
        held_out=tuple(pose(one, source, settings, split=HELD_OUT) for one in held_out),
        notes=(Note(kind="unused_row", count=unused, text=text),) if unused else (),
    )


def _held_out(problems: Sequence[Problem], settings: TaskSettings) -> list[Problem]:
    def position(one: Problem) -> float:
        return split_position(one.kind, one.canonical)

    by_hash = sorted(problems, key=position)
    if settings.num_held_out is None:
        return [one for one in by_hash if position(one) < settings.held_out_fraction]
    return by_hash[: settings.num_held_out]
