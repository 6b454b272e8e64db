"""A run that learns from completions that were there before it: pairs or examples."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from oncurve.config import RunConfig
from oncurve.learner import PreferenceLearner, SupervisedLearner, time_metrics
from oncurve.model import Policy, reference_of
from oncurve.report import RunFolder
from oncurve.tasks import TaskSet
from oncurve.train.checks import refuse_unusable_tasks
from oncurve.train.environment import memory_metrics
from oncurve.train.events import Stepped
from oncurve.train.given import load_given
from oncurve.train.plan import require_memory
from oncurve.train.session import Material, Resumable, Session
from oncurve.train.walk import Source


class OfflineLearner(Resumable, Protocol):
    """Takes one optimiser step on a batch."""

    def update(self, batch: Sequence[Any], /) -> dict[str, float]:
        """Learn from a batch; return numbers by slash-separated name."""

    def seconds(self) -> dict[str, float]:
        """Wall seconds of the parts of the latest update, by name."""


class OfflineSession(Session, methods=("dpo", "sft")):
    """Holds the data and the learner of pairs or of examples."""

    def __init__(self, folder: RunFolder, material: Material) -> None:
        super().__init__(folder, material)
        self._data: Source[Any] = material.source
        self.learner: OfflineLearner = _learner_of(self.config, self.policy)

    @classmethod
    def load(cls, config: RunConfig, policy: Policy, tasks: TaskSet) -> Material:
        """The pairs or examples, and how many steps they allow."""
        given = load_given(config, policy, tasks)
        return Material(
            config=config.model_copy(update={"steps": given.num_steps(config.steps)}),
            policy=policy,
            tasks=tasks,
            source=given.source,
            longest=given.longest,
            fingerprint=given.fingerprint,
            notes=given.notes,
        )

    @classmethod
    def refuse_unusable(cls, material: Material) -> None:
        """Golds, prompts and memory of the held-out tasks, and memory of the data. Raises DataError, RunError."""
        config, held_out = material.config, material.tasks.held_out
        longest = refuse_unusable_tasks(config, material.policy, held_out, num_held_out=len(held_out))
        require_memory(config, row_tokens=max(longest, material.longest))

    def take(self) -> Sequence[Any]:
        """The next batch."""
        return self._data.take(batch_size_of(self.config))

    def update(self, batch: Sequence[Any]) -> dict[str, float]:
        """Take the optimiser step of one batch, and the time it takes."""
        started = time.perf_counter()
        metrics = self.learner.update(batch)
        seconds = time.perf_counter() - started
        times = time_metrics(seconds, self.learner.seconds())
        rate = metrics["tokens/completion"] / seconds
        return metrics | times | {"tokens_per_second/update": rate} | memory_metrics()

    def record(self, step: int, metrics: Mapping[str, float]) -> Stepped:
        """Write what one step did; from here on it counts as done."""
        self.folder.append_metrics({"step": step, **metrics, **self.take_examined(), **self.seconds_between()})
        self.step = step + 1
        return Stepped(step=self.step, metrics=metrics)


def batch_size_of(config: RunConfig) -> int:
    """Pairs or examples of an optimiser step."""
    return config.dpo.batch_size if config.method == "dpo" else config.sft.batch_size


def _learner_of(config: RunConfig, policy: Policy) -> OfflineLearner:
    if config.method == "dpo":
        return PreferenceLearner(policy, config.learner, config.dpo)
    is_watched = config.learner.watch_kl_completions > 0
    return SupervisedLearner(policy, config.learner, reference=reference_of(policy) if is_watched else None)
