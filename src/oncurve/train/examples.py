"""Worked examples as token ids: from a file, or from the task source."""

import weakref
from collections.abc import Mapping, Set
from pathlib import Path

from oncurve.model import Policy
from oncurve.rollout import encode_episode
from oncurve.tasks import TaskSampler, TaskSet, read_examples, worked_example
from oncurve.train.encode import canonical, encode_completion
from oncurve.types import Inserted, Task
from oncurve.verify.environments import Stage, environment_of

Example = tuple[tuple[int, ...], tuple[int, ...], tuple[Inserted, ...]]
"""(prompt_ids, completion_ids, what an environment answered between them)"""


def encode_example(policy: Policy, task: Task, text: str) -> Example:
    """Token ids of a task's prompt and of a completion for it."""
    completion = encode_completion(policy, task.prompt, text, where=f"task {task.id}")
    return policy.encode_prompt(task.prompt), completion, ()


def encode_worked(policy: Policy, task: Task, stage: Stage) -> Example:
    """Token ids of a task and of its worked example; of a tool task, of the calls and answers that do it.

    Raises:
        ValueError: the task source has no worked examples.
    """
    if environment_of(task) is None:
        return encode_example(policy, task, worked_example(task))
    last_words = "" if isinstance(task.prompt, str) else "Done."
    end = encode_completion(policy, task.prompt, last_words, where=f"task {task.id}")
    token_ids, inserted = encode_episode(policy, task, stage, end=end)
    return policy.encode_prompt(task.prompt), token_ids, inserted


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
    examples: list[Example] = [
        (policy.encode_prompt(row.prompt), encode_completion(policy, row.prompt, row.completion, where=row.where), ())
        for row in kept
    ]
    return examples, {"held_out": len(rows) - len(kept)}


class WorkedExamples:
    """One example of each training task that the sampler hands out.

    Raises:
        ValueError: the task source has no worked examples.
    """

    def __init__(self, policy: Policy, tasks: TaskSet, *, seed: int) -> None:
        self._stage = Stage()
        weakref.finalize(self, self._stage.close)  # it has a process only where the tasks have environments
        encode_worked(policy, tasks.train[0], self._stage)  # a source without them says so now, not in the first step
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
        return [encode_worked(self._policy, task, self._stage) for task in self._sampler.take(count)]
