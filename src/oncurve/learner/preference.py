"""Learn from pairs of completions: the DPO family.

pairs ──► log-probs of policy and reference ──► loss of each pair ──► weight of each token ──► one optimiser step

Shapes: B pairs; rows 0..B-1 are the chosen completions, B..2B-1 the rejected ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oncurve.algo import PreferenceSettings, PreferenceTerms, preference_loss
from oncurve.learner.likelihood import TEMPERATURE, ByIndex, add_gradient, drift_metrics
from oncurve.learner.packing import Row
from oncurve.learner.settings import LearnerSettings
from oncurve.learner.stepper import Stepper
from oncurve.model import Policy, Reference, reference_of
from oncurve.types import NumericsError


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two completions of one prompt as token ids, terminators included; the first is preferred."""

    prompt_ids: tuple[int, ...]
    chosen_ids: tuple[int, ...]
    rejected_ids: tuple[int, ...]


class PreferenceLearner:
    """Makes a policy prefer the chosen completions of pairs.

    The loss is not linear in the log-probs of tokens, so a step goes over its pairs twice: once for the log-probs of
    whole completions, from which the loss of each pair and its derivative by each log-prob follow, and once for the
    gradient, in which every token has that derivative as its weight. This is the gradient of the loss, whatever the
    micro-batches.

    Args:
        policy: trained in place; its weights at this moment are the reference, unless one is given.
        settings: optimiser, memory budgets. ``simpo`` needs no reference: with ``watch_kl_completions`` 0 it has none,
            and neither drift nor rewards relative to the start are measured.
        preference: the loss; the same object that the printed formula is made from.
        reference: the frozen starting policy, when that is not the policy as it is now.

    Raises:
        ValueError: nothing in the policy can be trained.
    """

    def __init__(
        self,
        policy: Policy,
        settings: LearnerSettings,
        preference: PreferenceSettings,
        *,
        reference: Reference | None = None,
    ) -> None:
        self.preference = preference
        is_wanted = preference.needs_reference or settings.watch_kl_completions > 0
        self._reference = reference_of(policy) if reference is None and is_wanted else reference
        self._stepper = Stepper(policy, settings)
        self._clock = self._stepper.clock

    @property
    def num_steps(self) -> int:
        """Optimiser steps taken."""
        return self._stepper.num_steps

    def update(self, pairs: Sequence[PreferencePair]) -> dict[str, float]:
        """Take one optimiser step on the mean loss of the pairs, at temperature 1.

        Returns:
            All before the step: ``loss/total``; ``dpo/accuracy``, the share of pairs with the right order (gap > 0);
            ``dpo/margin`` with ``dpo/chosen_reward`` and ``dpo/rejected_reward``, the implicit rewards;
            ``dpo/chosen_logprob`` and ``dpo/rejected_logprob`` in nats a completion: both may fall while the margin
            grows; ``drift/kl`` from the reference, where there is one; ``grad/norm``; ``learner/lr``;
            ``tokens/completion``.

        Raises:
            ValueError: there is no pair, or a completion without tokens.
            NumericsError: loss or gradient is NaN or inf; the step is not taken.
        """
        rows = _rows(pairs)
        self._clock.reset()
        stepper, where = self._stepper, f"preference step {self.num_steps}"
        with (
            self._clock.running("recompute"),
            stepper.training(),
        ):  # the same random state twice: LoRA drops the same units in both passes
            logprobs = stepper.forward.logprobs(stepper.model, rows, TEMPERATURE)
        ref_logprobs = self._reference_logprobs(rows)
        terms, chosen, rejected = self._terms(rows, logprobs, ref_logprobs)
        _refuse_non_finite(terms, where)
        weights = torch.cat(torch.autograd.grad(terms.loss.mean(), (chosen, rejected))).tolist()
        with stepper.training():
            add_gradient(stepper, rows, weights)
            grad_norm, lr = stepper.step(where)
        return {
            "loss/total": terms.loss.mean().item(),
            "dpo/accuracy": (terms.gap > 0).double().mean().item(),
            "dpo/margin": terms.margin.mean().item(),
            "dpo/chosen_reward": terms.chosen_reward.mean().item(),
            "dpo/rejected_reward": terms.rejected_reward.mean().item(),
            "dpo/chosen_logprob": chosen.mean().item(),
            "dpo/rejected_logprob": rejected.mean().item(),
            **drift_metrics(logprobs, ref_logprobs),
            "grad/norm": grad_norm,
            "learner/lr": lr,
            "tokens/completion": float(sum(len(row.token_ids) for row in rows)),
        }

    def seconds(self) -> dict[str, float]:
        """Wall seconds of the parts of the latest update, by name, see ``stopwatch.PARTS``."""
        return self._clock.seconds()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on, exact to the bit. The tensors are the live ones."""
        return self._stepper.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken. The reference stays that of construction.

        Raises:
            RunError: the state belongs to another model or is incomplete.
        """
        self._stepper.load_state_dict(state)

    def _reference_logprobs(self, rows: Sequence[Row]) -> ByIndex:
        if self._reference is None:
            return {}
        with self._clock.running("reference"), self._reference.weights() as model:
            return self._stepper.forward.logprobs(model, rows, TEMPERATURE)

    def _terms(
        self, rows: Sequence[Row], logprobs: ByIndex, ref_logprobs: ByIndex
    ) -> tuple[PreferenceTerms, Tensor, Tensor]:
        """The terms of each pair, and the two leaves that they are differentiated by."""
        chosen, rejected = (half.requires_grad_() for half in _sums(logprobs).chunk(2))
        ref_chosen, ref_rejected = _sums(ref_logprobs).chunk(2) if ref_logprobs else (None, None)
        len_chosen, len_rejected = torch.tensor([len(row.token_ids) for row in rows]).chunk(2)
        terms = preference_loss(
            self.preference,
            chosen=chosen,
            rejected=rejected,
            ref_chosen=ref_chosen,
            ref_rejected=ref_rejected,
            len_chosen=len_chosen,
            len_rejected=len_rejected,
        )
        return terms, chosen, rejected


def _rows(pairs: Sequence[PreferencePair]) -> list[Row]:
    if not pairs:
        raise ValueError("an update needs at least one pair: raise dpo.batch_size")
    for index, pair in enumerate(pairs):
        if not (pair.chosen_ids and pair.rejected_ids):
            raise ValueError(f"pair {index} has a completion without tokens: it has no log-prob. Leave the pair out.")
    chosen = [Row(pair.prompt_ids, pair.chosen_ids) for pair in pairs]
    return [*chosen, *(Row(pair.prompt_ids, pair.rejected_ids) for pair in pairs)]


def _sums(logprobs: ByIndex) -> Tensor:
    """Log-probs of whole completions, in the order of the rows; sums in float64, so that their order hardly matters."""
    return torch.stack([logprobs[index].double().sum() for index in range(len(logprobs))]).cpu()


def _refuse_non_finite(terms: PreferenceTerms, where: str) -> None:
    is_bad = ~terms.loss.isfinite()
    if bool(is_bad.any()):
        raise NumericsError(
            f"{where}: the loss of {int(is_bad.sum())} of {len(is_bad)} pairs is NaN or inf. This step was not taken; "
            "the weights are those before it. Continue from the last checkpoint with a lower learner.lr, or with "
            'model.dtype = "float32".'
        )
