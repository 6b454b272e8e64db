"""The learner: a policy, its optimiser, and the whole optimiser phase on one rollout.

groups ──► grade (advantages, who takes part) ──► optimiser steps ──► micro-batches ──► chunks of logits ──► AdamW
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from oncurve.algo import ObjectiveSettings, kl_estimate
from oncurve.learner.coefficients import Coefficients
from oncurve.learner.coupled_step import CoupledLoss
from oncurve.learner.critic import Critic
from oncurve.learner.metrics import StepRecord, gap_metrics, mean_metrics, update_metrics
from oncurve.learner.minibatch import GradedRollout, Judgement, Member, grade
from oncurve.learner.mode import evaluating
from oncurve.learner.packing import row_of
from oncurve.learner.policy_step import StepLoss, TokenRecord, join
from oncurve.learner.settings import LearnerSettings
from oncurve.learner.statistics import rollout_metrics
from oncurve.learner.stepper import Stepper, require_keys
from oncurve.model import Policy, Reference, reference_of
from oncurve.types import Completion, Group, NumericsError, Sampling, derive_seed

ByIndex = dict[int, Tensor]
"""[L] log-probs of a completion, by its place among all completions of the rollout."""


@dataclass(frozen=True)
class UpdateResult:
    """What the optimiser phase on one rollout did."""

    metrics: dict[str, float]
    """Numbers by slash-separated name. A name without a value in this step is left out."""
    advantages: tuple[tuple[float, ...], ...]
    """Per group and completion, in the order of the rollout; 0 where nothing was learned. Of an estimator that grades
    tokens: the mean over the completion."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall seconds of the parts of the update, by name, see ``stopwatch``; a part that did not occur is not there."""


@dataclass(frozen=True)
class Probe:
    """The gradient of one optimiser step that is not taken."""

    tokens: TokenRecord
    """Of the trained members, one after the other in the order of their micro-batches."""
    gradient: dict[str, Tensor]
    """By name of the weight, before clipping."""
    graded: GradedRollout
    members: tuple[Member, ...]
    """Those that are trained."""
    logprobs: ByIndex
    """Of the policy, by ``Member.index``."""
    old_logprobs: ByIndex
    """The denominators of the ratio."""


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
        component_weights: of the reward's components by name, for estimators that look at them (``gdpo``).
        critic: says what reward is to be expected; needed by the estimator ``gae`` and by no other.

    Raises:
        ValueError: the temperature is 0, nothing in the policy can be trained, the critic is missing or of no use, or a
            correction would be counted twice.
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
        component_weights: Mapping[str, float] | None = None,
        critic: Critic | None = None,
    ) -> None:
        if sampling.temperature == 0:
            raise ValueError(
                "greedy completions (temperature 0) have no log-probabilities to train on: "
                "set rollout.sampling.temperature above 0"
            )
        if (critic is not None) != (objective.advantage.estimator == "gae"):
            raise ValueError(
                f"estimator {objective.advantage.estimator} {'without' if critic is None else 'with'} a critic: gae "
                "needs one and no other estimator does. Pass critic, or set objective.advantage.estimator to another."
            )
        self.policy = policy
        self.settings = settings
        self.objective = objective
        self.num_updates = 0
        """Rollouts learned from."""
        self._recomputes = settings.recomputes(objective)
        self._coefficients = Coefficients(objective)
        self._critic = critic
        self._sampling = sampling
        self._primary = primary
        self._component_weights = component_weights or {}
        self._reference = reference
        if reference is None and (objective.needs_reference or settings.watch_kl_completions > 0):
            self._reference = reference_of(policy)
        self._stepper = Stepper(policy, settings)
        self._forward, self._model, self._dtype = self._stepper.forward, policy.model, self._stepper.dtype
        self._clock = self._stepper.clock

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
        self._clock.reset()
        penalties, old, ref = self._kl_penalties(completions)
        values = self._values(groups, completions)
        graded = self._graded(groups, penalties, values)
        steps = list(graded.minibatches(self.settings.updates_per_rollout, max_tokens=self._sampling.max_tokens))
        trained = [member.index for step in steps for member in step if member.weight > 0]
        is_warmup = self._critic is not None and self._critic.settings.is_warmup(self.num_updates)
        if penalties is None and not is_warmup:
            ref = self._reference_logprobs(completions, self._watched(steps, trained))
            if self._recomputes and len(steps) > 1:
                old = self._logprobs(completions, trained)
        coefficients = self._coefficients.metrics()
        records, judged = [], []
        for number, members in enumerate(steps):
            judged += self._critic_step(members, graded, values)
            if not is_warmup:
                records.append(self._policy_step(members, old, ref, number))
        advantages = graded.rows()
        metrics = {
            **rollout_metrics(groups, advantages),
            "groups/zero_variance": graded.is_silent.double().mean().item(),
            "groups/dropped": graded.is_dropped.double().mean().item(),
            "advantage/mean_abs": sum(abs(gain) for row in advantages for gain in row) / len(completions),
            **(update_metrics(records, self.objective) if records else self._idle(completions)),
            **mean_metrics(judged),
            **_kl_metrics([record.logprobs for record in records], ref),
            **coefficients,
        }
        self._coefficients.after_rollout(metrics.get("kl/reference"), len(completions))
        self.num_updates += 1
        return UpdateResult(metrics=metrics, advantages=tuple(advantages), seconds=self._clock.seconds())

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on, exact to the bit: trained weights, moments, counters.

        Only tensors and plain data. The tensors are the live ones: write them before the next update.
        """
        critic = {} if self._critic is None else {"critic": self._critic.state_dict()}
        coefficients = self._coefficients.state_dict()
        return {"num_updates": self.num_updates, "coefficients": coefficients, **critic, **self._stepper.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken. The reference stays that of construction.

        Raises:
            RunError: the state belongs to another model or is incomplete.
        """
        require_keys(state, "num_updates", "coefficients", *(["critic"] if self._critic is not None else []))
        self._stepper.load_state_dict(state)
        self._coefficients.load_state_dict(state["coefficients"])
        if self._critic is not None:
            self._critic.load_state_dict(state["critic"])
        self.num_updates = int(state["num_updates"])

    def _policy_step(self, members: Sequence[Member], old: ByIndex, ref: ByIndex, number: int) -> StepRecord:
        """Take optimiser step ``number`` of this rollout, counted from 0."""
        trained = [member for member in members if member.weight > 0]
        objective = self._coefficients.objective()
        is_own = self._recomputes and not old
        known = None if is_own else old or _sampler_logprobs(trained, self._dtype)
        wanted = ref if objective.has_kl_in_loss else None
        num_tokens = _num_tokens(trained)
        with self._stepper.training():
            tokens, logprobs = self._accumulate(objective, trained, known, wanted, num_tokens)
            gap = self._checked_gap({m.index: m.completion for m in trained}, logprobs) if number == 0 else {}
            grad_norm, lr = self._stepper.step(self._where())
        self._coefficients.after_step(tokens.entropy.double().mean().item())
        return StepRecord(tokens=tokens, logprobs=logprobs, gap=gap, grad_norm=grad_norm, lr=lr)

    def _accumulate(
        self,
        objective: ObjectiveSettings,
        trained: Sequence[Member],
        old: ByIndex | None,
        ref: ByIndex | None,
        num_tokens: int,
    ) -> tuple[TokenRecord, ByIndex]:
        """Add the gradient of one optimiser step, or of these members' part in it, to the weights.

        ``num_tokens`` are the trained tokens of the whole step.
        """
        temperature, where = self._sampling.temperature, self._where()
        if objective.couples_tokens:
            seed = derive_seed("clip_cov", self.num_steps)
            coupled = CoupledLoss(objective, temperature, trained, where, seed % 2**63, num_tokens)
            return coupled.accumulate(self._stepper, old, ref)
        loss = StepLoss(objective, temperature, num_tokens, trained, where)
        parts, logprobs = [], ByIndex()
        for batch in self._forward.pack([row_of(member.completion) for member in trained]):
            tokens = loss.tokens_of(batch, old, ref, self._dtype)
            part = loss.accumulate(self._forward, self._model, batch, tokens, self._stepper.collect)
            places = [trained[place].index for place in batch.members]
            logprobs |= zip(places, torch.split(part.logprobs, list(batch.lengths)), strict=True)
            parts.append(part)
        return join(parts), logprobs

    def gradient(self, groups: Sequence[Group]) -> Probe:
        """What one optimiser step on all of these groups would follow; the weights stay as they are.

        Args:
            groups: sampled by the policy as it is now.

        Raises:
            ValueError: nothing of the rollout can be learned from.
            NumericsError: as ``update``.
        """
        completions = _checked_completions(groups)
        penalties, old, ref = self._kl_penalties(completions)
        graded = self._graded(groups, penalties, self._values(groups, completions))
        steps = list(graded.minibatches(1, max_tokens=self._sampling.max_tokens))
        if not steps:
            raise ValueError("no group of this rollout can be learned from: look at another step")
        trained = [member for member in steps[0] if member.weight > 0]
        if self.objective.has_kl_in_loss:
            ref = self._reference_logprobs(completions, [member.index for member in trained])
        known = None if self._recomputes and not old else old or _sampler_logprobs(trained, self._dtype)
        objective = self._coefficients.objective()
        with self._stepper.training():
            wanted = ref if objective.has_kl_in_loss else None
            tokens, logprobs = self._accumulate(objective, trained, known, wanted, _num_tokens(trained))
            self._checked_gap({member.index: member.completion for member in trained}, logprobs)
            gradient = {name: found.clone() for name, found in self._stepper.gradient().items()}
        return Probe(
            tokens=tokens,
            gradient=gradient,
            graded=graded,
            members=tuple(trained),
            logprobs=logprobs,
            old_logprobs=logprobs if known is None else known,
        )

    def _graded(self, groups: Sequence[Group], penalties: ByIndex | None, values: ByIndex | None) -> GradedRollout:
        judgement = Judgement(
            primary=self._primary,
            component_weights=self._component_weights,
            penalties=penalties,
            values=values,
        )
        with self._clock.running("grade"):
            return grade(groups, self.objective, judgement)

    def _values(self, groups: Sequence[Group], completions: Sequence[Completion]) -> ByIndex | None:
        if self._critic is None:
            return None
        rewards = [reward for group in groups for reward in group.rewards]
        scored = {i: completion for i, completion in enumerate(completions) if rewards[i] is not None}
        with self._clock.running("critic"):
            return self._critic.values({i: completion for i, completion in scored.items() if completion.token_ids})

    def _critic_step(
        self, members: Sequence[Member], graded: GradedRollout, values: ByIndex | None
    ) -> list[dict[str, float]]:
        """One step of the critic on the completions of an optimiser step; nothing without a critic."""
        if self._critic is None or values is None:
            return []
        chosen = {member.index: member.completion for member in members if member.index in graded.returns}
        with self._clock.running("critic"):
            return [self._critic.update(chosen, graded.returns, values)] if chosen else []

    def _where(self) -> str:
        return f"rollout {self.num_updates}, optimiser step {self.num_steps}"

    def _kl_penalties(self, completions: Sequence[Completion]) -> tuple[ByIndex | None, ByIndex, ByIndex]:
        """Return kl_coef * KL of each token, and the log-probs it took; None without KL in the reward."""
        objective = self._coefficients.objective()
        if not objective.has_kl_in_reward:
            return None, {}, {}
        everyone = [index for index, completion in enumerate(completions) if completion.token_ids]
        ref = self._reference_logprobs(completions, everyone)
        recorded = {i: torch.tensor(completions[i].old_logprobs, dtype=self._dtype) for i in everyone}
        old = self._logprobs(completions, everyone) if self._recomputes else recorded
        estimator = objective.kl_estimator
        if estimator == "k3_weighted":
            raise ValueError("k3_weighted has no meaning in the reward")
        penalties = {i: objective.kl_coef * kl_estimate(old[i].cpu(), ref[i].cpu(), estimator) for i in everyone}
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
        with self._clock.running("reference"), self._reference.weights() as model:
            found = self._forward.logprobs(model, [row_of(completions[i]) for i in chosen], self._sampling.temperature)
        return {chosen[place]: logprobs for place, logprobs in found.items()}

    def _logprobs(self, completions: Sequence[Completion], chosen: Sequence[int]) -> ByIndex:
        with self._clock.running("recompute"), evaluating(self._model):
            rows = [row_of(completions[i]) for i in chosen]
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


def _num_tokens(members: Sequence[Member]) -> int:
    return sum(len(member.completion.token_ids) for member in members)


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
