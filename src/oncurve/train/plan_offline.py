"""What a run on given pairs or examples would take, before it starts."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from oncurve.config import RunConfig
from oncurve.learner import PreferencePair
from oncurve.model import Policy
from oncurve.tasks import TaskSet
from oncurve.train.examples import Example
from oncurve.train.given import Given, load_given
from oncurve.types import weave

_TIMED_ROWS = 8
_BACKWARD = 2.0
"""Forward passes that a backward pass costs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OfflinePlan:
    """Sizes of the run, and rough wall seconds of a step, scaled up from a few rows run now."""

    given: Given
    steps: int
    """Optimiser steps, after the limit on passes."""
    completion_tokens: int
    """Of the first step: those that are learned."""
    row_tokens: int
    """Longest prompt and completion of all that is known."""
    seconds: float
    """One optimiser step."""


def plan_offline(config: RunConfig, policy: Policy, tasks: TaskSet) -> OfflinePlan:
    """Load the data, look at its first batch and time a part of it.

    Raises:
        DataError, RunError, ValueError: the data cannot be used.
    """
    given = load_given(config, policy, tasks)
    rows = [row for item in given.source.take(given.batch_size) for row in _rows(item)]
    sizes = [len(prompt) + len(weave(completion, inserted).token_ids) for prompt, completion, inserted in rows]
    return OfflinePlan(
        given=given,
        steps=given.num_steps(config.steps),
        completion_tokens=sum(len(completion) for _, completion, _ in rows),
        row_tokens=max(given.longest, *sizes),
        seconds=_forward_seconds(policy, rows[:_TIMED_ROWS]) * len(rows) / len(rows[:_TIMED_ROWS]) * _passes(config),
    )


def _rows(item: PreferencePair | Example) -> list[Example]:
    if isinstance(item, PreferencePair):
        return [(tuple(item.prompt_ids), tuple(ids), ()) for ids in (item.chosen_ids, item.rejected_ids)]
    return [item]


def _passes(config: RunConfig) -> float:
    """Forward passes over the rows of a step that it costs in all."""
    is_watched = config.learner.watch_kl_completions > 0
    if config.method == "sft":
        return 1 + _BACKWARD + min(1.0, config.learner.watch_kl_completions / config.sft.batch_size)
    return 2 + _BACKWARD + float(config.dpo.needs_reference or is_watched)


def _forward_seconds(policy: Policy, rows: Sequence[Example]) -> float:
    tensors = [torch.tensor([*prompt, *weave(said, inserted).token_ids]) for prompt, said, inserted in rows]
    padded = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)
    is_token = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in tensors], batch_first=True)
    started = time.perf_counter()
    with torch.inference_mode():
        policy.model(input_ids=padded, attention_mask=is_token)
    return time.perf_counter() - started
