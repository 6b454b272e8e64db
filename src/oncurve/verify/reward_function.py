"""A reward function of the user, with TRL's signature, in processes that can be killed.

def reward(prompts, completions, completion_ids, **columns): return [float or None for each completion]
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from oncurve.sandbox import Limits, Outcome, WorkerPool
from oncurve.types import ConfigError, DataError, Prompt, Settings, Verdict
from oncurve.verify.items import Item, correct, no_verdict, one_line, wrong

MAX_REWARD = 1e30
"""Largest size of a value: weighted and summed it still fits the learner's float32."""


class RewardFunctionSettings(Settings):
    """How a reward function is called and read."""

    correct_at: float = 1.0
    """The completion counts as correct when the value reaches this."""

    max_batch: int = Field(64, ge=1)
    """Most completions a call. A call that hangs or dies leaves only its own completions without a verdict."""

    num_workers: int = Field(1, ge=0, le=1024)
    """Processes that are called at the same time, each with a part of the batch; 0 for one on each core that this
    process may use. With more than one, a function that remembers what it saw, or compares the completions of a call
    with each other, sees a part of them."""

    cpu_s: int | None = Field(None, ge=1, le=3600)
    """CPU seconds for one call, of each process, enforced by the kernel up to one second later; None for no limit."""

    memory_bytes: int | None = Field(None, ge=64 * 1024**2)
    """Address space of each process, enforced by the kernel; None for no limit."""

    show_output: bool = False
    """Pass what the function prints on to standard error instead of discarding it."""


def is_function_name(name: str) -> bool:
    """True for ``path/to/file.py:function``."""
    path, _, function = name.rpartition(":")
    return path.endswith(".py") and function.isidentifier()


class RewardFunction:
    """Calls the function and turns each value into a verdict.

    A value is the reward; it is correct from ``correct_at`` on. No verdict: None (``unscored``), an exception
    (``error``), no result in time (``timeout``), too much CPU time (``cpu``) or memory (``memory``), the process died
    twice (``crash``), NaN, infinity, something that is not a number of ordinary size, or not one value for each
    completion (``bad_value``).

    With one process, the default, calls follow each other in the order of the completions. Safe to use from several
    threads, whose calls then alternate.

    Args:
        name: ``path/to/file.py:function``; a relative path starts at ``base_dir``.
        settings: how values are read.
        timeout_s: wall seconds for one call.
        base_dir: where relative paths start.

    Raises:
        ConfigError: the file or the function cannot be loaded.
    """

    def __init__(self, name: str, settings: RewardFunctionSettings, *, timeout_s: float, base_dir: Path) -> None:
        self.name = name
        self.settings = settings
        path, _, function = name.rpartition(":")
        file = base_dir / path
        if not file.is_file():
            raise ConfigError(f"reward function {name}: no file {file}. Relative paths start at {base_dir.resolve()}.")
        limits = Limits(timeout_s=timeout_s, cpu_s=settings.cpu_s, memory_bytes=settings.memory_bytes)
        self._pool = WorkerPool(
            file.resolve(), function, limits, num_workers=settings.num_workers, show_output=settings.show_output
        )
        loaded = self._pool.start()
        if loaded.cause:
            self._pool.close()
            raise ConfigError(f"reward function {name} cannot be loaded: {loaded.detail}")

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        size = min(self.settings.max_batch, math.ceil(len(items) / self._pool.num_workers) or 1)
        batches = [items[start : start + size] for start in range(0, len(items), size)]
        outcomes = zip(batches, self._call(batches), strict=True)
        return [verdict for batch, outcome in outcomes for verdict in self._verdicts(outcome, len(batch))]

    def close(self) -> None:
        """End the processes and everything they started."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, batches: Sequence[Sequence[Item]]) -> list[Outcome]:
        try:
            return self._pool.map(list(map(arguments, batches)))
        except TypeError as error:
            task = batches[0][0].task
            raise DataError(
                f"task {task.id} and others: a column cannot be sent to the reward function {self.name}: "
                f"{error}. Keep plain data (text, numbers, lists) in the task file."
            ) from error

    def _verdicts(self, outcome: Outcome, num_items: int) -> list[Verdict]:
        if outcome.cause:
            return [no_verdict(outcome.cause, outcome.detail)] * num_items
        values = outcome.value
        if not isinstance(values, list):
            bad = f"{self.name} returned {values!r}, not a list with one value for each completion"
        elif len(values) != num_items:
            bad = f"{self.name} returned {len(values)} values for {num_items} completions"
        else:
            return [self._verdict(value) for value in values]
        return [no_verdict("bad_value", bad)] * num_items

    def _verdict(self, value: Any) -> Verdict:
        if value is None:
            return no_verdict("unscored", f"{self.name} returned None")
        if not isinstance(value, int | float) or not abs(value) <= MAX_REWARD:
            shown = one_line(repr(value), 60)
            return no_verdict("bad_value", f"{self.name} returned {shown}, not None or a number within ±{MAX_REWARD:g}")
        evidence = f"{self.name} returned {value}"
        reward = float(value)
        return correct(evidence, reward) if reward >= self.settings.correct_at else wrong(evidence, reward)


def arguments(items: Sequence[Item]) -> dict[str, Any]:
    """Arguments of one call: a list for each name, one entry a completion.

    ``prompts`` and ``completions`` are text, or lists of messages where the task's prompt is a chat. ``gold`` is also
    passed as ``answer`` and ``solution``; every column that a task keeps in its meta is passed under its own name.
    """
    columns: dict[str, list[Any]] = {
        "task_id": [item.task.id for item in items],
        "kind": [item.task.kind for item in items],
        "gold": [item.task.gold for item in items],
        "answer": [item.task.gold for item in items],
        "solution": [item.task.gold for item in items],
    }
    for name in dict.fromkeys(name for item in items for name in item.task.meta):
        columns[name] = [item.task.meta.get(name) for item in items]
    return columns | {
        "prompts": [_prompt(item.task.prompt) for item in items],
        "completions": [_completion(item) for item in items],
        "completion_ids": [list(item.token_ids) for item in items],
    }


def _prompt(prompt: Prompt) -> str | list[Mapping[str, str]]:
    if isinstance(prompt, str):
        return prompt
    return [{"role": message.role, "content": message.content} for message in prompt]


def _completion(item: Item) -> str | list[Mapping[str, str]]:
    return item.text if isinstance(item.task.prompt, str) else [{"role": "assistant", "content": item.text}]
