"""The objective: its settings, and the loss of one micro-batch.

Shapes: tokens come as one vector [N] (packed) or as [B, T] with padding; every tensor has that same shape.
"""

from dataclasses import dataclass
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from oncurve.algo.advantage import AdvantageSettings
from oncurve.algo.aggregation import Aggregation
from oncurve.algo.checks import require_same_shape
from oncurve.algo.clipping import clipped_surrogate
from oncurve.algo.kl import KlEstimator, KlPlacement, kl_estimate
from oncurve.types import Settings


class ObjectiveSettings(Settings):
    """What one optimiser step minimises. ``oncurve explain`` prints it as a formula."""

    advantage: AdvantageSettings = AdvantageSettings()
    """How rewards become advantages."""

    clip_low: float = Field(0.2, gt=0, le=1)
    """Width of the ratio band below 1: a ratio under 1 - clip_low stops pushing a bad token down."""

    clip_high: float = Field(0.2, gt=0)
    """Width of the ratio band above 1: a ratio over 1 + clip_high stops pushing a good token up."""

    aggregation: Aggregation = "seq-mean-token-mean"
    """How token losses become one number; decides how hard long answers push."""

    kl_coef: float = Field(0.0, ge=0)
    """Weight of the KL to the starting policy; 0 switches the term off."""

    kl_estimator: KlEstimator = "k3"
    """Estimator of the KL; the printed formula says what its gradient really is."""

    kl_placement: KlPlacement = "loss"
    """``loss`` adds the KL to the token loss, ``reward`` subtracts it from the reward before the baseline."""

    entropy_coef: float = Field(0.0, ge=0)
    """Weight of the entropy bonus, a mean over tokens whatever the aggregation; 0 switches it off."""

    zero_variance: Literal["keep", "skip", "resample"] = "skip"
    """Groups whose task rewards are all equal: ``keep`` them in the denominators, ``skip`` them, or ``resample`` until
    the batch is full or the budget is spent."""

    resample_rounds: int = Field(4, ge=1, le=100)
    """Most extra rounds of rollouts a step when zero_variance is ``resample``; what is still missing is skipped."""

    mask_truncated: bool = False
    """True: a truncated completion counts in its group's statistics, but its tokens are not trained."""

    @model_validator(mode="after")
    def _refuse_nonsense(self) -> Self:
        if self.kl_coef == 0:
            return self
        if self.kl_placement == "loss" and self.kl_estimator == "k1":
            raise ValueError(
                "kl_estimator k1 in the loss only adds noise: on samples of the policy its expected gradient is 0. "
                'Set objective.kl_placement = "reward", or objective.kl_estimator = "k2".'
            )
        if self.kl_placement == "reward" and self.zero_variance == "keep" and self._scales_by_std:
            raise ValueError(
                "a KL in the reward with zero_variance keep and group_zscore blows the KL of an all-equal group up to "
                'full size, because there it is the only spread. Set objective.zero_variance = "skip", or '
                'objective.advantage.estimator = "group_mean".'
            )
        return self

    @property
    def _scales_by_std(self) -> bool:
        return self.advantage.estimator == "group_zscore"

    @property
    def needs_reference(self) -> bool:
        """True when the log-probs of the reference policy change the update."""
        return self.kl_coef > 0


@dataclass(frozen=True)
class LossTerms:
    """The loss of a micro-batch: scalars whose sums over the micro-batches are those of the whole step."""

    total: Tensor
    """What to call ``backward`` on: policy + kl_coef * kl - entropy_coef * entropy."""
    policy: Tensor
    """Weighted sum of the clipped surrogate."""
    kl: Tensor
    """Weighted sum of the KL estimates, without its coefficient; 0 without reference. Part of the total only when the
    KL is placed in the loss."""
    entropy: Tensor
    """Sum of the token entropies over the trained tokens of the step: a token mean; 0 when no entropy was given."""


def policy_loss(
    settings: ObjectiveSettings,
    *,
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    ref_logprobs: Tensor | None = None,
    entropy: Tensor | None = None,
    num_step_tokens: int | None = None,
) -> LossTerms:
    """Return the loss of one micro-batch of tokens.

    policy  = sum_t weights * clipped_surrogate
    kl      = sum_t weights * kl_estimate
    entropy = sum_t [weights > 0] * entropy / num_step_tokens
    total   = policy + kl_coef * kl (when placed in the loss) - entropy_coef * entropy

    All denominators belong to the whole optimiser step, so the gradients of any split into micro-batches add up to the
    same sum. Do not divide by the number of micro-batches.

    Args:
        settings: clip bounds, KL, entropy.
        logprobs: log-probs of the sampled tokens under the policy being trained; carries the gradient.
        old_logprobs: the same tokens under the policy that sampled them.
        advantages: per token; a sequence advantage is repeated over its tokens.
        weights: per token, from ``sequence_weights`` of all sequences of the step; 0 exactly where a position is not
            trained. Such positions may hold anything, also NaN.
        ref_logprobs: the same tokens under the reference; needed for a KL in the loss, else only measured.
        entropy: exact entropy at each position; needed for an entropy bonus, else only measured.
        num_step_tokens: trained tokens of the whole optimiser step; needed with ``entropy``.

    Raises:
        ValueError: shapes differ, or something that the settings need is missing.
    """
    if settings.needs_reference and settings.kl_placement == "loss" and ref_logprobs is None:
        raise ValueError(f"kl_coef is {settings.kl_coef} in the loss, but ref_logprobs is None: pass the reference's")
    if settings.entropy_coef > 0 and entropy is None:
        raise ValueError(f"entropy_coef is {settings.entropy_coef}, but entropy is None: pass the exact entropy")
    require_same_shape(logprobs=logprobs, weights=weights)
    trained = weights != 0

    def clean(tensor: Tensor) -> Tensor:
        require_same_shape(logprobs=logprobs, tensor=tensor)
        return torch.where(trained, tensor, 0.0)

    current = clean(logprobs)
    surrogate = clipped_surrogate(
        current, clean(old_logprobs), clean(advantages), clip_low=settings.clip_low, clip_high=settings.clip_high
    )
    token_weights = weights.detach().to(surrogate.dtype)
    policy = (token_weights * surrogate).sum()
    kl = entropy_mean = policy.new_zeros(())
    if ref_logprobs is not None:
        kl = (token_weights * kl_estimate(current, clean(ref_logprobs), settings.kl_estimator)).sum()
    if entropy is not None:
        if num_step_tokens is None or num_step_tokens < 1:
            raise ValueError(
                f"entropy needs num_step_tokens, the trained tokens of the whole step, at least 1, got "
                f"{num_step_tokens}: a mean over the micro-batch would make the gradient depend on its size"
            )
        entropy_mean = clean(entropy).sum() / num_step_tokens
    total = policy - settings.entropy_coef * entropy_mean if settings.entropy_coef > 0 else policy
    if settings.needs_reference and settings.kl_placement == "loss":
        total = total + settings.kl_coef * kl
    return LossTerms(total=total, policy=policy, kl=kl, entropy=entropy_mean)
