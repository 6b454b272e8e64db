"""A sampler that chooses among the next tasks by what the policy can do: a curriculum.

The walk of ``TaskSampler`` offers a window of candidates; difficulty or pass rates decide which of them are taken. What
was seen of the policy, and the place on the walk, are the whole state.
"""

from collections.abc import Mapping, Sequence
from math import inf, log
from typing import Any, Literal

from oncurve.tasks.curriculum import CurriculumSettings, adarft_target, nearest_in_difficulty, priority_weights
from oncurve.tasks.sampler import TaskSampler
from oncurve.types import DataError, Task, unit_interval

UNSEEN_RATE = 0.5
"""Pass rate that a task is taken to have before anything like it was seen."""


class CurriculumSampler:
    """Hands out tasks as ``TaskSampler`` does, choosing among the next ones.

    Args:
        tasks: finite, or endless from a generated source.
        settings: mode and its numbers.
        seed: decides the walk and the draws.
    """

    def __init__(self, tasks: Sequence[Task], settings: CurriculumSettings, *, seed: int) -> None:
        self._walk = TaskSampler(tasks, seed=seed)
        self._settings = settings
        self._seed = seed
        self._target = settings.lowest
        self._rates: dict[str, float] = {}

    @property
    def cursor(self) -> int:
        """Tasks walked over so far, those that were not chosen included."""
        return self._walk.cursor

    @cursor.setter
    def cursor(self, value: int) -> None:
        self._walk.cursor = value

    def take(self, num_tasks: int) -> list[Task]:
        """The next ``num_tasks`` different tasks.

        Raises:
            DataError: there are fewer, or mode ``difficulty`` meets a task without a difficulty.
        """
        if self._settings.mode == "none":
            return self._walk.take(num_tasks)
        place = self._walk.cursor
        wanted = min(num_tasks * self._settings.window, max(num_tasks, self._walk.num_distinct))
        candidates = self._walk.take(wanted)
        chosen = self._choose(candidates, num_tasks, place)
        return [candidates[index] for index in sorted(chosen)]

    def observe(self, results: Sequence[tuple[Task, float]], mean_reward: float) -> None:
        """Tell what a rollout showed.

        Args:
            results: task and its pass rate in [0, 1].
            mean_reward: of the rollout.
        """
        settings = self._settings
        for task, rate in results:
            for key in _keys(task):
                before = self._rates.get(key)
                self._rates[key] = rate if before is None else settings.memory * before + (1 - settings.memory) * rate
        if settings.mode == "difficulty":
            self._target = adarft_target(
                self._target,
                mean_reward,
                wanted_reward=settings.wanted_reward,
                sensitivity=settings.sensitivity,
                step=settings.step,
                lowest=settings.lowest,
                highest=settings.highest,
            )

    def metrics(self) -> dict[str, float]:
        """``curriculum/target`` of mode ``difficulty``; ``curriculum/seen_rate``, the mean of the known pass rates."""
        found = {}
        if self._settings.mode == "difficulty":
            found["curriculum/target"] = self._target
        if self._settings.mode != "none" and self._rates:
            found["curriculum/seen_rate"] = sum(self._rates.values()) / len(self._rates)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"cursor": self._walk.cursor, "target": self._target, "rates": dict(self._rates)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._walk.cursor = int(state["cursor"])
        self._target = float(state["target"])
        self._rates = dict(state["rates"])

    def _choose(self, candidates: Sequence[Task], num_tasks: int, place: int) -> list[int]:
        fresh = [index for index, task in enumerate(candidates) if not self._is_retired(task)]
        if len(fresh) < num_tasks:
            fresh += [index for index in range(len(candidates)) if index not in set(fresh)][: num_tasks - len(fresh)]
        tasks = [candidates[index] for index in fresh]
        if self._settings.mode == "difficulty":
            return [fresh[index] for index in nearest_in_difficulty(_difficulties(tasks), self._target, num_tasks)]
        mode: Literal["failure", "variance"] = "failure" if self._settings.mode == "failure" else "variance"
        weights = priority_weights([self._rate(task) for task in tasks], mode=mode, eps=self._settings.variance_floor)
        # Largest of u^(1/w): a draw without replacement in proportion to the weights.
        keys = [
            log(max(unit_interval("curriculum", self._seed, place, task.id), 1e-300)) / weight if weight > 0 else -inf
            for task, weight in zip(tasks, weights, strict=True)
        ]
        best = sorted(range(len(tasks)), key=lambda index: -keys[index])[:num_tasks]
        return [fresh[index] for index in best]

    def _rate(self, task: Task) -> float:
        """Of the task itself, or of its kind and difficulty, or nothing known."""
        return next((self._rates[key] for key in _keys(task) if key in self._rates), UNSEEN_RATE)

    def _is_retired(self, task: Task) -> bool:
        limit = self._settings.retire_at
        return limit is not None and self._rate(task) >= limit


def _keys(task: Task) -> tuple[str, str]:
    return f"task {task.id}", f"kind {task.kind} {task.difficulty}"


def _difficulties(tasks: Sequence[Task]) -> list[float]:
    missing = next((task.id for task in tasks if task.difficulty is None), None)
    if missing is not None:
        raise DataError(
            f"task {missing} has no difficulty, and tasks.curriculum.mode = difficulty chooses by it. Add a column "
            'difficulty, or set tasks.curriculum.mode = "variance", which needs none.'
        )
    return [task.difficulty for task in tasks if task.difficulty is not None]
