"""A reward function of the user, with TRL's signature, in a process that can be killed.

def reward(prompts, completions, completion_ids, **columns): return [float or None for each completion]
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from oncurve.sandbox import FunctionWorker, Limits, Outcome
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

    memory_bytes: int | None = Field(None, ge=64 * 1024**2)
    """Address space of the process, enforced by the kernel; None for no limit."""

    show_output: bool = False
    """Pass what the function prints on to standard error instead of discarding it."""


def is_function_name(name: str) -> bool:
    """True for ``path/to/file.py:function``."""
    path, _, function = name.rpartition(":")
    return path.endswith(".py") and function.isidentifier()


class RewardFunction:
    """Calls the function and turns each value into a verdict.

    A value is the reward; it is correct from ``correct_at`` on. No verdict: None (``unscored``), an exception
    (``error``), no result in time (``timeout``), the process died (``crash``), NaN, infinity, something that is not
    a number of ordinary size, or not one value for each completion (``bad_value``).

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
        limits = Limits(timeout_s=timeout_s, memory_bytes=settings.memory_bytes)
        self._worker = FunctionWorker(file.resolve(), function, limits, show_output=settings.show_output)
        loaded = self._worker.start()
        if loaded.cause:
            self._worker.close()
            raise ConfigError(f"reward function {name} cannot be loaded ({loaded.cause}): {loaded.detail}")

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for start in range(0, len(items), self.settings.max_batch):
            batch = items[start : start + self.settings.max_batch]
            verdicts += self._verdicts(self._call(batch), len(batch))
        return verdicts

    def close(self) -> None:
        """End the process and everything it started."""
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, items: Sequence[Item]) -> Outcome:
        try:
            return self._worker.call(arguments(items))
        except TypeError as error:
            raise DataError(
                f"task {items[0].task.id} and others: a column cannot be sent to the reward function {self.name}: "
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
