"""The policy loss of each token under an objective: its form, then corrections, then filters.

Shapes: [N] packed tokens, or [B, T] whole completions.
"""

import torch
from torch import Tensor

from oncurve.algo.clipping import clipped_surrogate, importance_ratio
from oncurve.algo.entropy_control import (
    clip_cov_dropped,
    clip_cov_eligible,
    entropy_threshold,
    kl_cov_tokens,
    num_controlled,
    token_covariance,
    top_entropy_mask,
)
from oncurve.algo.objective_settings import ObjectiveSettings
from oncurve.algo.off_policy import importance_weights, off_policy_keep
from oncurve.algo.sequence_losses import gmpo_loss, gspo_loss, gspo_token_loss, topr_loss, vespo_loss
from oncurve.algo.token_losses import cispo_loss, reinforce_loss, sapo_loss


def policy_terms(
    settings: ObjectiveSettings,
    *,
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    sampler_logprobs: Tensor | None = None,
    entropy: Tensor | None = None,
    uniforms: Tensor | None = None,
) -> Tensor:
    """Return the policy loss of each token, before aggregation.

    Args:
        settings: the objective.
        logprobs: under the policy being trained; carries the gradient.
        old_logprobs: the denominator of the ratio.
        advantages: per token.
        loss_mask: bool, True where the token is trained; all tensors are finite elsewhere.
        sampler_logprobs: as recorded at sampling.
        entropy: at each position.
        uniforms: in [0, 1), for the choice of ``clip_cov``.

    Returns:
        Losses of the common shape.

    Raises:
        ValueError: something that the settings need is missing, or a coupled objective got packed tokens.
    """
    if settings.couples_tokens and logprobs.ndim != 2:
        raise ValueError(
            f"this objective couples the tokens of a completion: pass [B, T] with whole completions, got "
            f"{list(logprobs.shape)}"
        )
    terms = _form(settings, logprobs, old_logprobs, advantages, loss_mask)
    if settings.needs_sampler_logprobs:
        if sampler_logprobs is None:
            raise ValueError("a correction needs sampler_logprobs: pass the log-probs recorded at sampling")
        terms = _corrected(settings, terms, logprobs, old_logprobs, advantages, loss_mask, sampler_logprobs)
    if settings.token_filter.mode == "all":
        return terms
    return _filtered(settings, terms, logprobs, old_logprobs, advantages, loss_mask, entropy, uniforms)


def _form(settings: ObjectiveSettings, current: Tensor, old: Tensor, gain: Tensor, mask: Tensor) -> Tensor:
    band = {"clip_low": settings.clip_low, "clip_high": settings.clip_high}
    if settings.loss == "clip":
        return clipped_surrogate(current, old, gain, **band, dual_clip=settings.dual_clip, ratio_cap=settings.ratio_cap)
    if settings.loss == "cispo":
        bounds = settings.cispo
        return cispo_loss(current, old, gain, ratio_min=bounds.ratio_min, ratio_max=bounds.ratio_max)
    if settings.loss == "sapo":
        gate = settings.sapo
        return sapo_loss(current, old, gain, tau_positive=gate.tau_positive, tau_negative=gate.tau_negative)
    if settings.loss == "reinforce":
        return reinforce_loss(current, gain)
    if settings.loss == "gspo_token":
        return gspo_token_loss(current, old, gain, mask, **band)
    of_completion = (gain * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
    if settings.loss == "gmpo":
        return gmpo_loss(current, old, of_completion, mask, **band)
    if settings.loss == "topr":
        return topr_loss(current, old, of_completion, mask)
    if settings.loss == "vespo":
        return vespo_loss(current, old, of_completion, mask, **settings.vespo.model_dump())
    return gspo_loss(current, old, of_completion, mask, **band)


def _corrected(
    settings: ObjectiveSettings,
    terms: Tensor,
    current: Tensor,
    old: Tensor,
    gain: Tensor,
    mask: Tensor,
    sampler: Tensor,
) -> Tensor:
    correction = settings.correction
    if correction.mode != "none":
        weights = importance_weights(
            _rows(old), _rows(sampler), _rows(mask), correction.mode, low=correction.low, high=correction.high
        )
        terms = terms * weights.view_as(terms).to(terms.dtype)
    if settings.max_divergence is not None:
        first = torch.where(mask, gain, 0.0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        keep = off_policy_keep(current, sampler, first, mask, max_divergence=settings.max_divergence)
        terms = torch.where(keep[:, None], terms, 0.0)
    return terms


def _rows(tensor: Tensor) -> Tensor:
    """[B, T] as it is; packed [N] as one row, which token-wise weights do not mind."""
    return tensor.view(-1, tensor.shape[-1])


def _filtered(
    settings: ObjectiveSettings,
    terms: Tensor,
    current: Tensor,
    old: Tensor,
    gain: Tensor,
    mask: Tensor,
    entropy: Tensor | None,
    uniforms: Tensor | None,
) -> Tensor:
    chosen = settings.token_filter
    if chosen.mode == "high_entropy":
        if entropy is None:
            raise ValueError("token_filter high_entropy needs the exact entropy of every token: pass entropy")
        threshold = entropy_threshold(entropy, mask, share=chosen.frac)
        return torch.where(top_entropy_mask(entropy, mask, threshold=threshold), terms, 0.0)
    covariance, count = token_covariance(current, gain, mask), num_controlled(int(mask.sum()), chosen.frac)
    if chosen.mode == "kl_cov":
        is_held = kl_cov_tokens(covariance, mask, count=count)
        return terms + torch.where(is_held, chosen.coef * (current - old).abs(), 0.0)
    if uniforms is None:
        raise ValueError("token_filter clip_cov drops tokens at random: pass uniforms in [0, 1), one a token")
    clipped = is_clipped(
        importance_ratio(current.detach(), old), gain, clip_low=settings.clip_low, clip_high=settings.clip_high
    )
    eligible = clip_cov_eligible(covariance, mask, low=chosen.low, high=chosen.high, clipped=clipped)
    return torch.where(clip_cov_dropped(eligible, uniforms, count=count), 0.0, terms)


def is_clipped(ratio: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """Say where the clip takes the gradient away: A > 0 above the band, A < 0 below it."""
    return ((advantages > 0) & (ratio > 1 + clip_high)) | ((advantages < 0) & (ratio < 1 - clip_low))
