"""A run that learns from its own samples: rollout, verify, update."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from oncurve.config import RunConfig
from oncurve.learner import Learner, UpdateResult, rollout_metrics
from oncurve.model import Policy
from oncurve.report import RunFolder
from oncurve.rollout import Collector, Rollout, collect_informative
from oncurve.tasks import TaskSampler, TaskSet
from oncurve.train.checks import refuse_unusable_tasks
from oncurve.train.events import Noted, Stepped
from oncurve.train.findings import inspect_rollout, share_without_verdict
from oncurve.train.plan import require_memory
from oncurve.train.session import Material, Session
from oncurve.types import DataError, RunError, Task

GOLDS_CHECKED = 512
"""Golds that must accept themselves before a run starts; ``oncurve check`` goes through all of a file."""


class OnlineSession(Session, methods=("online",)):
    """Holds the collector and the learner of groups."""

    def __init__(self, folder: RunFolder, material: Material) -> None:
        super().__init__(folder, material)
        config = self.config
        self._sampler: TaskSampler = material.source
        self._collector = Collector(self.policy, self._engine, self._scorer, config.rollout, seed=config.seed)
        self.learner: Learner = Learner(
            self.policy,
            config.learner,
            config.objective,
            sampling=config.rollout.sampling,
            primary=config.reward.primary_name,
        )

    @classmethod
    def load(cls, config: RunConfig, policy: Policy, tasks: TaskSet) -> Material:
        """The training tasks, walked over without replacement."""
        sampler = TaskSampler(tasks.train, seed=config.seed)
        return Material(config=config, policy=policy, tasks=tasks, source=sampler)

    @classmethod
    def refuse_unusable(cls, material: Material) -> None:
        """Golds, prompts and memory of the training and of the held-out tasks. Raises DataError, RunError."""
        config, tasks = material.config, material.tasks
        if len(tasks.train) < config.rollout.num_prompts:
            raise DataError(
                f"rollout.num_prompts is {config.rollout.num_prompts}, but there are only {len(tasks.train)} different "
                "training prompts. Lower it, or add problems."
            )
        first = tasks.train[: min(GOLDS_CHECKED, len(tasks.train))]
        checked = [*first, *tasks.held_out]
        longest = refuse_unusable_tasks(config, material.policy, checked, num_held_out=len(tasks.held_out))
        require_memory(config, row_tokens=longest)

    def collect(self, step: int) -> Rollout:
        """Sample and verify the groups of one step from the weights as they are now."""
        objective, num_prompts = self.config.objective, self.config.rollout.num_prompts

        def collect(tasks: Sequence[Task], round_index: int) -> Rollout:
            return self._collector.collect(
                tasks, policy_version=self.learner.num_steps, step=step, round_index=round_index
            )

        if objective.zero_variance != "resample":
            return collect(self._sampler.take(num_prompts), 0)
        rollout = collect_informative(
            collect,
            self._sampler.take,
            num_prompts=num_prompts,
            extra_rounds=objective.resample_rounds,
            primary=self.config.reward.primary_name,
            tolerance=objective.advantage.tolerance,
        )
        # Nothing informative within the budget: what was sampled is recorded, and teaches nothing.
        return rollout if rollout.groups else replace(rollout, groups=rollout.set_aside, set_aside=())

    def inspect(self, step: int, rollout: Rollout) -> Iterator[Noted]:
        """Record what the rollout shows; stop when too few completions have a verdict to train on the rest.

        Raises:
            RunError: more than ``max_no_verdict_frac`` of the completions have no verdict.
        """
        primary, tolerance = self.config.reward.primary_name, self.config.objective.advantage.tolerance
        findings = inspect_rollout(rollout, primary=primary, tolerance=tolerance)
        limit = self.config.max_no_verdict_frac
        if share_without_verdict(rollout) > limit:
            if self.saved_step != self.step:
                self.checkpoint(self.step)
            raise RunError(
                f"step {step}: {findings[0].message}\nThat is more than max_no_verdict_frac = {limit:g} allows. Mend "
                f"the verifier or the reward function, then continue with `oncurve resume {self.folder.path}`: nothing "
                "is lost. A slow one needs a higher reward.timeout_s."
            )
        for finding in findings:
            self.folder.append_event(step, finding.kind, finding.message, **finding.counts)
            yield Noted(step=step, kind=finding.kind, message=finding.message)

    def update(self, rollout: Rollout) -> UpdateResult:
        """Take the optimiser steps of one rollout, and the time they take."""
        started = time.perf_counter()
        result = self.learner.update(rollout.groups)
        seconds = time.perf_counter() - started
        num_tokens = sum(len(done.token_ids) for group in rollout.groups for done in group.completions)
        times = {"seconds/update": seconds, "tokens_per_second/update": num_tokens / seconds}
        return replace(result, metrics=result.metrics | times)

    def record(self, step: int, rollout: Rollout, update: UpdateResult) -> Stepped:
        """Write what one step did; from here on it counts as done."""
        metrics = {**rollout.metrics(), **update.metrics}
        advantages = [*update.advantages, *([0.0] * len(group.completions) for group in rollout.set_aside)]
        if rollout.set_aside:  # rates describe the policy, not the selection that it is trained on
            metrics |= rollout_metrics(rollout.all_groups, advantages)
        self.folder.append_rollouts(step, rollout.all_groups, advantages)
        self.folder.append_metrics({"step": step, **metrics})
        self.step = step + 1
        return Stepped(step=self.step, metrics=metrics)
