"""What an offline run learns from: completions that were there before it, with what was left out of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from oncurve.config import RunConfig
from oncurve.learner import PreferencePair
from oncurve.model import Policy
from oncurve.tasks import Note, TaskSet
from oncurve.train.encode import canonical
from oncurve.train.examples import Example, WorkedExamples, examples_of_file
from oncurve.train.pairs import pairs_of_file, pairs_of_run
from oncurve.train.walk import Source, Walk
from oncurve.types import DataError, weave

_REASONS = {
    "all_right": "groups whose completions are all right",
    "all_wrong": "groups whose completions are all wrong",
    "unscored": "groups without any verdict",
    "equal_text": "pairs of two equal completions",
    "over_limit": "pairs beyond dpo.max_per_task",
    "held_out": "with the prompt of a held-out task",
    "empty": "with a completion of no tokens",
    "too_long": "longer than the model's context",
}


@dataclass(frozen=True, kw_only=True)
class Given:
    """Pairs or examples, ready for the learner."""

    source: Source[Any]
    what: str
    """``pairs`` or ``examples``."""
    batch_size: int
    """Of an optimiser step."""
    passes: int
    """Most passes over the data."""
    count: int | None = None
    """How many there are; None when endless."""
    longest: int = 0
    """Most tokens of a prompt and a completion together, as far as they are known beforehand."""
    fingerprint: str | None = None
    """Equal exactly when all token ids are; None for generated examples, which the settings decide."""
    notes: tuple[Note, ...] = ()

    def num_steps(self, steps: int) -> int:
        """Optimiser steps of a run: ``steps``, or those of ``passes`` over the data when they are fewer."""
        return steps if self.count is None else min(steps, self.passes * (self.count // self.batch_size))


def load_given(config: RunConfig, policy: Policy, tasks: TaskSet) -> Given:
    """Load what the method of ``config`` learns from.

    Raises:
        DataError: the file or the rollouts cannot be used, or there is too little for one batch.
        RunError: ``dpo.rollouts`` is no run.
        ValueError: the task source has no worked examples.
    """
    held_out = {canonical(task.prompt) for task in tasks.held_out}
    if config.method == "dpo":
        pairs, dropped = _pairs(config, policy, held_out)
        return _finite(config, "pairs", pairs, dropped, policy.context_length)
    if config.sft.examples is not None:
        examples, dropped = examples_of_file(config.sft.examples, policy, held_out)
        return _finite(config, "examples", examples, dropped, policy.context_length)
    source = WorkedExamples(policy, tasks, seed=config.seed)
    return Given(source=source, what="examples", batch_size=config.sft.batch_size, passes=config.sft.passes)


def _pairs(config: RunConfig, policy: Policy, held_out: set[str]) -> tuple[list[PreferencePair], Mapping[str, int]]:
    settings = config.dpo
    if settings.pairs is not None:
        return pairs_of_file(settings.pairs, policy, held_out)
    if settings.rollouts is not None:
        return pairs_of_run(settings.rollouts, policy, held_out, seed=config.seed, max_per_task=settings.max_per_task)
    raise ValueError("dpo needs dpo.pairs or dpo.rollouts")


def _finite(
    config: RunConfig, what: str, items: Sequence[PreferencePair | Example], dropped: Mapping[str, int], longest: int
) -> Given:
    """Data of known size: ``items`` of at most ``longest`` tokens."""
    settings = config.dpo if what == "pairs" else config.sft
    fitting = [item for item in items if _length(item) <= longest]
    dropped = {**dropped, "too_long": len(items) - len(fitting)}
    lost = ", ".join(f"{count} {_REASONS[reason]}" for reason, count in dropped.items() if count)
    if len(fitting) < settings.batch_size:
        raise DataError(
            f"{config.method}.batch_size is {settings.batch_size}, but there are only {len(fitting)} {what}"
            f"{f' (left out: {lost})' if lost else ''}. Lower it, or give more {what}."
        )
    return Given(
        source=Walk(fitting, seed=config.seed),
        what=what,
        batch_size=settings.batch_size,
        passes=settings.passes,
        count=len(fitting),
        longest=max(map(_length, fitting)),
        fingerprint=blake2b(repr(fitting).encode(), digest_size=16).hexdigest(),
        notes=(
            Note(kind="given", count=len(fitting), text=f"{len(fitting)} {what} to learn from."),
            *(
                Note(kind=reason, count=count, text=f"{count} {_REASONS[reason]}: left out.")
                for reason, count in dropped.items()
                if count
            ),
        ),
    )


def _length(item: PreferencePair | Example) -> int:
    if isinstance(item, PreferencePair):
        return len(item.prompt_ids) + max(len(item.chosen_ids), len(item.rejected_ids))
    prompt, completion, inserted = item
    return len(prompt) + len(weave(completion, inserted).token_ids)
