"""Worked examples as token ids: from a file, or from the task source."""

from collections.abc import Mapping, Set
from pathlib import Path

from oncurve.model import Policy
from oncurve.tasks import TaskSampler, TaskSet, read_examples, worked_example
from oncurve.train.encode import canonical, encode_completion
from oncurve.types import Task

Example = tuple[tuple[int, ...], tuple[int, ...]]
"""(prompt_ids, completion_ids)"""


def encode_example(policy: Policy, task: Task, text: str) -> Example:
    """Token ids of a task's prompt and of a completion for it."""
    return policy.encode_prompt(task.prompt), encode_completion(policy, task.prompt, text, where=f"task {task.id}")


def examples_of_file(path: Path, policy: Policy, held_out: Set[str]) -> tuple[list[Example], Mapping[str, int]]:
    """The examples of a file as token ids, and how many were left out by reason.

    Args:
        path: a .jsonl or .parquet file.
        policy: whose tokenizer and chat template are used.
        held_out: ``canonical`` prompts that must not be trained on.

    Raises:
        DataError: the file or a row cannot be used.
    """
    rows = read_examples(path)
    kept = [row for row in rows if canonical(row.prompt) not in held_out]
    examples = [
        (policy.encode_prompt(row.prompt), encode_completion(policy, row.prompt, row.completion, where=row.where))
        for row in kept
    ]
    return examples, {"held_out": len(rows) - len(kept)}


class WorkedExamples:
    """One example of each training task that the sampler hands out.

    Raises:
        ValueError: the task source has no worked examples.
    """

    def __init__(self, policy: Policy, tasks: TaskSet, *, seed: int) -> None:
        worked_example(tasks.train[0])  # a source without them says so now, not in the first step
        self._policy = policy
        self._sampler = TaskSampler(tasks.train, seed=seed)

    @property
    def cursor(self) -> int:
        """Tasks walked over so far; the whole state."""
        return self._sampler.cursor

    @cursor.setter
    def cursor(self, value: int) -> None:
        self._sampler.cursor = value

    def take(self, count: int, /) -> list[Example]:
        """The next ``count`` examples, of different tasks."""
        return [encode_example(self._policy, task, worked_example(task)) for task in self._sampler.take(count)]
