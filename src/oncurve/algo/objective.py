"""The loss of one micro-batch of tokens.

Shapes: tokens come as one vector [N] (packed) or as [B, T] with padding; every tensor has that same shape. An
objective that couples tokens needs [B, T] with whole completions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from oncurve.algo.checks import require_same_shape
from oncurve.algo.kl import importance_weighted_kl, kl_estimate
from oncurve.algo.objective_settings import ObjectiveSettings
from oncurve.algo.surrogate import policy_terms


@dataclass(frozen=True)
class LossTerms:
    """The loss of a micro-batch: scalars whose sums over the micro-batches are those of the whole step."""

    total: Tensor
    """What to call ``backward`` on: policy + kl_coef * kl - entropy_coef * entropy."""
    policy: Tensor
    """Weighted sum of the policy losses of the tokens."""
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
    sampler_logprobs: Tensor | None = None,
    entropy: Tensor | None = None,
    num_step_tokens: int | None = None,
    uniforms: Tensor | None = None,
) -> LossTerms:
    """Return the loss of one micro-batch of tokens.

    policy  = sum_t weights * policy loss of the token
    kl      = sum_t weights * kl_estimate
    entropy = sum_t [weights > 0] * entropy / num_step_tokens
    total   = policy + kl_coef * kl (when placed in the loss) - entropy_coef * entropy

    All denominators belong to the whole optimiser step, so the gradients of any split into micro-batches add up to the
    same sum. Do not divide by the number of micro-batches.

    Args:
        settings: loss, corrections, KL, entropy.
        logprobs: log-probs of the sampled tokens under the policy being trained; carries the gradient.
        old_logprobs: the same tokens under the policy before the step, or as recorded at sampling.
        advantages: per token; a sequence advantage is repeated over its tokens.
        weights: per token, from ``sequence_weights`` of all sequences of the step; 0 exactly where a position is not
            trained. Such positions may hold anything, also NaN.
        ref_logprobs: the same tokens under the reference; needed for a KL in the loss, else only measured.
        sampler_logprobs: the same tokens as recorded at sampling; needed for a correction and for max_divergence.
        entropy: exact entropy at each position; needed for an entropy bonus and a high-entropy filter, else only
            measured.
        num_step_tokens: trained tokens of the whole optimiser step; needed with ``entropy``.
        uniforms: per token, drawn uniformly from [0, 1); needed for the choice of ``clip_cov``.

    Raises:
        ValueError: shapes differ, something that the settings need is missing, or tokens come packed although the
            objective couples them.
    """
    if settings.has_kl_in_loss and ref_logprobs is None:
        raise ValueError(f"kl_coef is {settings.kl_coef} in the loss, but ref_logprobs is None: pass the reference's")
    if settings.entropy_coef > 0 and entropy is None:
        raise ValueError(f"entropy_coef is {settings.entropy_coef}, but entropy is None: pass the exact entropy")
    require_same_shape(logprobs=logprobs, weights=weights)
    trained = weights != 0

    def clean(tensor: Tensor) -> Tensor:
        require_same_shape(logprobs=logprobs, tensor=tensor)
        return torch.where(trained, tensor, 0.0)

    def optional(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else clean(tensor)

    current, old = clean(logprobs), clean(old_logprobs)
    terms = policy_terms(
        settings,
        logprobs=current,
        old_logprobs=old,
        advantages=clean(advantages),
        loss_mask=trained,
        sampler_logprobs=optional(sampler_logprobs),
        entropy=optional(entropy),
        uniforms=optional(uniforms),
    )
    token_weights = weights.detach().to(terms.dtype)
    policy = (token_weights * terms).sum()
    kl = entropy_mean = policy.new_zeros(())
    if ref_logprobs is not None:
        kl = (token_weights * _kl(settings, current, old, clean(ref_logprobs))).sum()
    if entropy is not None:
        if num_step_tokens is None or num_step_tokens < 1:
            raise ValueError(
                f"entropy needs num_step_tokens, the trained tokens of the whole step, at least 1, got "
                f"{num_step_tokens}: a mean over the micro-batch would make the gradient depend on its size"
            )
        entropy_mean = clean(entropy).sum() / num_step_tokens
    total = policy - settings.entropy_coef * entropy_mean if settings.entropy_coef > 0 else policy
    if settings.has_kl_in_loss:
        total = total + settings.kl_coef * kl
    return LossTerms(total=total, policy=policy, kl=kl, entropy=entropy_mean)


def _kl(settings: ObjectiveSettings, current: Tensor, old: Tensor, reference: Tensor) -> Tensor:
    if settings.kl_estimator == "k3_weighted":
        return importance_weighted_kl(current, old, reference)
    return kl_estimate(current, reference, settings.kl_estimator)
