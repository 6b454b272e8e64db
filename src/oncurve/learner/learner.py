"""The learner: a policy, its optimiser, and the whole optimiser phase on one rollout.

groups ──► grade (advantages, who takes part) ──► optimiser steps ──► micro-batches ──► chunks of logits ──► AdamW
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oncurve.algo import ObjectiveSettings, kl_estimate
from oncurve.learner.metrics import StepRecord, gap_metrics, update_metrics
from oncurve.learner.minibatch import Member, grade
from oncurve.learner.mode import evaluating
from oncurve.learner.packing import Row
from oncurve.learner.policy_step import StepLoss, join
from oncurve.learner.settings import LearnerSettings
from oncurve.learner.statistics import rollout_metrics
from oncurve.learner.stepper import Stepper, require_keys
from oncurve.model import Policy, Reference, reference_of
from oncurve.types import Completion, Group, NumericsError, Sampling

ByIndex = dict[int, Tensor]
"""[L] log-probs of a completion, by its place among all completions of the rollout."""


@dataclass(frozen=True)
class UpdateResult:
    """What the optimiser phase on one rollout did."""

    metrics: dict[str, float]
    """Numbers by slash-separated name. A name without a value in this step is left out."""
    advantages: tuple[tuple[float, ...], ...]
    """Per group and completion, in the order of the rollout; 0 where nothing was learned."""


class Learner:
    """Changes a policy.

    Args:
        policy: trained in place; its weights at this moment are the reference, unless one is given.
        settings: optimiser, memory budgets.
        objective: what is minimised; the same object that the printed formula is made from.
        sampling: how the completions are sampled. Its temperature divides the logits here too; its ``max_tokens`` is
            the constant of the ``constant`` aggregation.
        reference: the frozen starting policy, when that is not the policy as it is now.
        primary: the reward component by which a group counts as all-equal; None takes the whole reward.

    Raises:
        ValueError: the temperature is 0, or nothing in the policy can be trained.
    """

    def __init__(
        self,
        policy: Policy,
        settings: LearnerSettings,
        objective: ObjectiveSettings,
        *,
        sampling: Sampling,
        reference: Reference | None = None,
        primary: str | None = None,
    ) -> None:
        if sampling.temperature == 0:
            raise ValueError(
                "greedy completions (temperature 0) have no log-probabilities to train on: "
                "set rollout.sampling.temperature above 0"
            )
        self.policy = policy
        self.settings = settings
        self.objective = objective
        self.num_updates = 0
        """Rollouts learned from."""
        self._sampling = sampling
        self._primary = primary
        self._reference = reference
        if reference is None and (objective.needs_reference or settings.watch_kl_completions > 0):
            self._reference = reference_of(policy)
        self._stepper = Stepper(policy, settings)
        self._forward, self._model, self._dtype = self._stepper.forward, policy.model, self._stepper.dtype

    @property
    def num_steps(self) -> int:
        """Optimiser steps taken."""
        return self._stepper.num_steps

    def update(self, groups: Sequence[Group]) -> UpdateResult:
        """Learn from one rollout: ``updates_per_rollout`` optimiser steps, each on its share of the groups.

        A group with fewer than two scored members is dropped. Without any group to learn from, no step is taken.

        Args:
            groups: sampled by the policy as it is now.

        Returns:
            Metrics, and the advantages for the record.

        Raises:
            ValueError: the rollout is empty, or a completion's fields disagree.
            NumericsError: a log-prob or a gradient is NaN or inf, or the sampler's log-probs do not belong to these
                weights. The step in which that happens is not taken.
        """
        completions = _checked_completions(groups)
        penalties, old, ref = self._kl_penalties(groups, completions)
        graded = grade(groups, self.objective, penalties=penalties, primary=self._primary)
        steps = list(graded.minibatches(self.settings.updates_per_rollout, max_tokens=self._sampling.max_tokens))
        trained = [member.index for step in steps for member in step if member.weight > 0]
        if penalties is None:
            ref = self._reference_logprobs(completions, self._watched(steps, trained))
            if self.settings.old_logprobs == "recompute" and len(steps) > 1:
                old = self._logprobs(completions, trained)
        records = [self._policy_step(members, old, ref, number) for number, members in enumerate(steps)]
        advantages = graded.rows()
        metrics = {
            **rollout_metrics(groups, advantages),
            "groups/zero_variance": graded.is_silent.double().mean().item(),
            "groups/dropped": graded.is_dropped.double().mean().item(),
            "advantage/mean_abs": graded.advantages.abs().sum().item() / len(completions),
            **(update_metrics(records, self.objective) if records else self._idle(completions)),
            **_kl_metrics([record.logprobs for record in records], ref),
        }
        self.num_updates += 1
        return UpdateResult(metrics=metrics, advantages=tuple(advantages))

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on, exact to the bit: trained weights, moments, counters.

        Only tensors and plain data. The tensors are the live ones: write them before the next update.
        """
        return {"num_updates": self.num_updates, **self._stepper.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken. The reference stays that of construction.

        Raises:
            RunError: the state belongs to another model or is incomplete.
        """
        require_keys(state, "num_updates", "num_steps", "optimizer")
        self._stepper.load_state_dict(state)
        self.num_updates = int(state["num_updates"])

    def _policy_step(self, members: Sequence[Member], old: ByIndex, ref: ByIndex, number: int) -> StepRecord:
        """Take optimiser step ``number`` of this rollout, counted from 0."""
        trained = [member for member in members if member.weight > 0]
        loss = StepLoss(
            objective=self.objective,
            temperature=self._sampling.temperature,
            num_tokens=sum(len(member.completion.token_ids) for member in trained),
            members=trained,
            where=self._where(),
        )
        is_own = self.settings.old_logprobs == "recompute" and not old
        known = None if is_own else old or _sampler_logprobs(trained, self._dtype)
        has_loss_kl = self.objective.needs_reference and self.objective.kl_placement == "loss"
        parts, logprobs = [], ByIndex()
        with self._stepper.training():
            for batch in self._forward.pack([_row(member.completion) for member in trained]):
                tokens = loss.tokens_of(batch, known, ref if has_loss_kl else None, self._dtype)
                part = loss.accumulate(self._forward, self._model, batch, tokens, self._stepper.collect)
                places = [trained[place].index for place in batch.members]
                logprobs |= zip(places, torch.split(part.logprobs, list(batch.lengths)), strict=True)
                parts.append(part)
            gap = self._checked_gap({m.index: m.completion for m in trained}, logprobs) if number == 0 else {}
            grad_norm, lr = self._stepper.step(self._where())
        return StepRecord(tokens=join(parts), logprobs=logprobs, gap=gap, grad_norm=grad_norm, lr=lr)

    def _where(self) -> str:
        return f"rollout {self.num_updates}, optimiser step {self.num_steps}"

    def _kl_penalties(
        self, groups: Sequence[Group], completions: Sequence[Completion]
    ) -> tuple[list[list[float]] | None, ByIndex, ByIndex]:
        """Return kl_coef * sum_t KL of each completion, and the log-probs it took; None without KL in the reward."""
        if not (self.objective.needs_reference and self.objective.kl_placement == "reward"):
            return None, {}, {}
        everyone = [index for index, completion in enumerate(completions) if completion.token_ids]
        ref = self._reference_logprobs(completions, everyone)
        is_recomputed = self.settings.old_logprobs == "recompute"
        recorded = {i: torch.tensor(completions[i].old_logprobs, dtype=self._dtype) for i in everyone}
        old = self._logprobs(completions, everyone) if is_recomputed else recorded
        costs = [
            kl_estimate(old[i].cpu(), ref[i].cpu(), self.objective.kl_estimator).sum().item() if i in ref else 0.0
            for i in range(len(completions))
        ]
        flat = iter(costs)
        penalties = [[self.objective.kl_coef * next(flat) for _ in group.completions] for group in groups]
        return penalties, old, ref

    def _watched(self, steps: Sequence[Sequence[Member]], trained: Sequence[int]) -> Sequence[int]:
        """Completions whose KL to the reference is wanted: all that are trained, or some of the first step's."""
        if self.objective.needs_reference:
            return trained
        first = [member.index for member in steps[0] if member.weight > 0] if steps else []
        count = min(self.settings.watch_kl_completions, len(first))
        return [first[place * len(first) // count] for place in range(count)]

    def _reference_logprobs(self, completions: Sequence[Completion], chosen: Sequence[int]) -> ByIndex:
        if self._reference is None or not chosen:
            return {}
        with self._reference.weights() as model:
            found = self._forward.logprobs(model, [_row(completions[i]) for i in chosen], self._sampling.temperature)
        return {chosen[place]: logprobs for place, logprobs in found.items()}

    def _logprobs(self, completions: Sequence[Completion], chosen: Sequence[int]) -> ByIndex:
        with evaluating(self._model):
            rows = [_row(completions[i]) for i in chosen]
            found = self._forward.logprobs(self._model, rows, self._sampling.temperature)
        return {chosen[place]: logprobs for place, logprobs in found.items()}

    def _idle(self, completions: Sequence[Completion]) -> dict[str, float]:
        """Metrics of a rollout that nothing can be learned from; the sampler is checked all the same."""
        chosen = [index for index, completion in enumerate(completions) if completion.token_ids]
        logprobs = self._logprobs(completions, chosen)
        gap = self._checked_gap({i: completions[i] for i in chosen}, logprobs) if chosen else {}
        return {"loss/total": 0.0, "loss/policy": 0.0, "loss/kl": 0.0, "grad/norm": 0.0, **gap}

    def _checked_gap(self, completions: Mapping[int, Completion], logprobs: ByIndex) -> dict[str, float]:
        """Compare with the sampler's record, before the first step on a rollout.

        Raises:
            NumericsError: the two differ by more than rounding.
        """
        gap = gap_metrics(logprobs, {i: completion.old_logprobs for i, completion in completions.items()})
        limit = self.settings.gap_limit(self._model.dtype)
        if not gap["gap/mean_abs"] <= limit:
            raise NumericsError(
                f"{self._where()}: the log-probs recorded at sampling differ from the learner's by "
                f"{gap['gap/mean_abs']:.3g} nats on average (largest {gap['gap/max_abs']:.3g}), more than "
                f"learner.max_logprob_gap = {limit:g}. Ratios would start away from 1, so this step was not taken. "
                "Either the completions were sampled by other weights, at another temperature or with filtered "
                "log-probs, or the sampler computes in lower precision: then raise learner.max_logprob_gap and set "
                'learner.old_logprobs = "recompute".'
            )
        return gap


def _kl_metrics(logprobs: Sequence[ByIndex], ref: ByIndex) -> dict[str, float]:
    """Token mean of k3 between the policy, just before its step, and the reference, where both are known."""
    current = {index: found for part in logprobs for index, found in part.items() if index in ref}
    if not current:
        return {}
    pairs = [(found, ref[index]) for index, found in current.items()]
    estimate = kl_estimate(torch.cat([new for new, _ in pairs]), torch.cat([old for _, old in pairs]), "k3")
    return {"kl/reference": estimate.mean().item()}


def _row(completion: Completion) -> Row:
    return Row(completion.prompt_ids, completion.token_ids)


def _sampler_logprobs(members: Sequence[Member], dtype: torch.dtype) -> ByIndex:
    return {member.index: torch.tensor(member.completion.old_logprobs, dtype=dtype) for member in members}


def _checked_completions(groups: Sequence[Group]) -> list[Completion]:
    completions = [completion for group in groups for completion in group.completions]
    if not completions:
        raise ValueError("update needs at least one group with completions, got none: raise rollout.num_prompts")
    for completion in completions:
        if len(completion.old_logprobs) != len(completion.token_ids):
            raise ValueError(
                f"completion {completion.index} of task {completion.task_id} has {len(completion.token_ids)} tokens "
                f"but {len(completion.old_logprobs)} log-probs: the engine must record one for each sampled token"
            )
    return completions
