"""A run that learns from its own samples: rollout, verify, update."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from oncurve.config import RunConfig
from oncurve.learner import Critic, Learner, UpdateResult, rollout_metrics, time_metrics
from oncurve.model import Policy
from oncurve.report import RunFolder
from oncurve.rollout import Collector, Rollout, collect_informative
from oncurve.tasks import CurriculumSampler, TaskSet
from oncurve.train.checks import refuse_unusable_tasks
from oncurve.train.environment import memory_metrics
from oncurve.train.events import Noted, Stepped
from oncurve.train.findings import Finding, inspect_rollout, share_without_verdict
from oncurve.train.plan import require_memory
from oncurve.train.session import Material, Session
from oncurve.types import DataError, Group, RunError, Status, Task
from oncurve.verify.code.counts import ProgramCounter

GOLDS_CHECKED = 512
"""Golds that must accept themselves before a run starts; ``oncurve check`` goes through all of a file."""


class OnlineSession(Session, methods=("online",)):
    """Holds the collector and the learner of groups."""

    def __init__(self, folder: RunFolder, material: Material) -> None:
        super().__init__(folder, material)
        config = self.config
        self._sampler: CurriculumSampler = material.source
        self._tokens_sampled = 0
        self._collector = Collector(self.policy, self._engine, self._judging, config.rollout, seed=config.seed)
        self._programs = ProgramCounter(self._scorer)
        self.learner: Learner = Learner(
            self.policy,
            config.learner,
            config.objective,
            sampling=config.rollout.sampling,
            primary=config.reward.primary_name,
            component_weights=config.reward.weights,
            critic=_critic_of(config, self.policy),
        )

    @property
    def is_finished(self) -> bool:
        """True when there is no further step, or the budget of sampled tokens is spent."""
        budget = self.config.rollout_tokens
        return super().is_finished or 0 < budget <= self._tokens_sampled

    @classmethod
    def load(cls, config: RunConfig, policy: Policy, tasks: TaskSet) -> Material:
        """The training tasks, walked over without replacement."""
        sampler = CurriculumSampler(tasks.train, config.tasks.curriculum, seed=config.seed)
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
        self._programs.mark()

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
        if step == 0 and self._engine.note:  # of the model, so the same at every step
            findings.append(Finding(kind="slow_sampling", message=f"{self._engine.note}. The samples are the same"))
        for finding in findings:
            self.folder.append_event(step, finding.kind, finding.message, **finding.counts)
            yield Noted(step=step, kind=finding.kind, message=finding.message)

    def update(self, rollout: Rollout) -> UpdateResult:
        """Take the optimiser steps of one rollout, and the time they take."""
        started = time.perf_counter()
        result = self.learner.update(rollout.groups)
        seconds = time.perf_counter() - started
        times = {
            **time_metrics(seconds, result.seconds),
            "tokens_per_second/update": _num_tokens(rollout.groups) / seconds,
        }
        return replace(result, metrics=result.metrics | times)

    def record(self, step: int, rollout: Rollout, update: UpdateResult) -> Stepped:
        """Write what one step did; from here on it counts as done."""
        started = time.perf_counter()
        metrics = {**rollout.metrics(), **update.metrics, **self._sampler.metrics(), **memory_metrics()}
        advantages = [*update.advantages, *([0.0] * len(group.completions) for group in rollout.set_aside)]
        if rollout.set_aside:  # rates describe the policy, not the selection that it is trained on
            metrics |= rollout_metrics(rollout.all_groups, advantages)
        self.folder.append_rollouts(step, rollout.all_groups, advantages)
        metrics |= self._programs.metrics(rollout.all_groups) | self.take_examined()
        metrics |= self.seconds_between() | {"seconds/record": time.perf_counter() - started}
        self.folder.append_metrics({"step": step, **metrics})
        self._learn_of_tasks(rollout.all_groups)
        self._tokens_sampled += _num_tokens(rollout.all_groups)
        self.step = step + 1
        return Stepped(step=self.step, metrics=metrics)

    def more_state(self) -> dict[str, Any]:
        """What the curriculum knows, and how much of the budget is spent."""
        return {"curriculum": self._sampler.state_dict(), "tokens_sampled": self._tokens_sampled}

    def load_more_state(self, state: Mapping[str, Any]) -> None:
        """Continue where ``more_state`` was taken."""
        self._sampler.load_state_dict(state["curriculum"])
        self._tokens_sampled = int(state["tokens_sampled"])

    def _learn_of_tasks(self, groups: Sequence[Group]) -> None:
        """Tell the curriculum what the policy passed."""
        scored = [group for group in groups if any(reward is not None for reward in group.rewards)]
        rewards = [reward for group in scored for reward in group.rewards if reward is not None]
        if rewards:
            self._sampler.observe([(group.task, _pass_rate(group)) for group in scored], fmean(rewards))


class CollectSession(OnlineSession, methods=("collect",)):
    """Samples and scores completions of the starting policy; the weights stay as they are."""

    def update(self, rollout: Rollout) -> UpdateResult:
        """Nothing but the figures of the rollout."""
        nothing = tuple(tuple(0.0 for _ in group.completions) for group in rollout.groups)
        return UpdateResult(metrics=rollout_metrics(rollout.groups), advantages=nothing)


def _critic_of(config: RunConfig, policy: Policy) -> Critic | None:
    if config.objective.advantage.estimator != "gae":
        return None
    return Critic(policy, config.critic, config.learner, seed=config.seed)


def _num_tokens(groups: Sequence[Group]) -> int:
    return sum(len(done.token_ids) for group in groups for done in group.completions)


def _pass_rate(group: Group) -> float:
    """Share of the completions with a verdict that are right."""
    statuses = [verdict.status for verdict in group.verdicts if verdict.status is not Status.NO_VERDICT]
    return statuses.count(Status.CORRECT) / len(statuses)
