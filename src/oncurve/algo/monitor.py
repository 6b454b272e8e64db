"""Ratios and log-probs to watch while training. Nothing here carries a gradient.

Shapes: B sequences, T positions. "Any shape" may also be packed [N] tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from oncurve.algo.checks import require_same_shape
from oncurve.algo.clipping import importance_ratio
from oncurve.algo.kl import kl_estimate


@dataclass(frozen=True)
class ClipFractions:
    """Shares of the trained tokens."""

    low: float
    """Ratio under 1 - clip_low with A < 0: no gradient."""
    high: float
    """Ratio over 1 + clip_high with A > 0: no gradient."""
    out_of_band: float
    """Ratio outside the band, whatever the sign of A; overstates clipping."""
    dual: float
    """Ratio over the dual-clip bound with A < 0; 0 without dual clip."""


def clip_fractions(
    ratio: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> ClipFractions:
    """Count the tokens whose gradient clipping removes.

    Args:
        ratio: importance ratios, any shape.
        advantages: per token, same shape.
        loss_mask: same shape, bool.
        clip_low: width of the band below 1.
        clip_high: width of the band above 1.
        dual_clip: bound on the ratio for A < 0, or None.

    Raises:
        ValueError: the shapes differ or no token is trained.
    """
    require_same_shape(ratio=ratio, advantages=advantages, loss_mask=loss_mask)
    rho, gain = _valid(ratio, loss_mask), _valid(advantages, loss_mask)
    below, above = rho < 1 - clip_low, rho > 1 + clip_high
    dual = (gain < 0) & (rho > dual_clip) if dual_clip is not None else torch.zeros_like(below)
    return ClipFractions(
        low=_share(below & (gain < 0)),
        high=_share(above & (gain > 0)),
        out_of_band=_share(below | above),
        dual=_share(dual),
    )


@dataclass(frozen=True)
class RatioStats:
    """How far the policy moved from the one that sampled."""

    kl_k1: float
    """Mean of old_logprobs - logprobs: estimates KL(old || policy); may be negative by noise."""
    kl_k3: float
    """Mean of ratio - 1 - log ratio: the same quantity, never negative."""
    mean: float
    min: float
    max: float
    effective_sample_frac: float
    """(sum ratio)^2 / (n * sum ratio^2), in (0, 1]; 1 when all tokens weigh the same."""


def ratio_stats(logprobs: Tensor, old_logprobs: Tensor, loss_mask: Tensor) -> RatioStats:
    """Summarise the importance ratios of the trained tokens.

    Args:
        logprobs: log-probs under the policy being trained, any shape.
        old_logprobs: the same tokens when sampled.
        loss_mask: same shape, bool.

    Raises:
        ValueError: the shapes differ or no token is trained.
    """
    require_same_shape(logprobs=logprobs, old_logprobs=old_logprobs, loss_mask=loss_mask)
    new, old = _valid(logprobs, loss_mask), _valid(old_logprobs, loss_mask)
    ratio = importance_ratio(new, old)
    return RatioStats(
        kl_k1=(old - new).mean().item(),
        kl_k3=kl_estimate(old, new, "k3").mean().item(),
        mean=ratio.mean().item(),
        min=ratio.min().item(),
        max=ratio.max().item(),
        effective_sample_frac=(ratio.sum().square() / (len(ratio) * ratio.square().sum())).item(),
    )


@dataclass(frozen=True)
class LogprobGap:
    """How differently sampler and trainer see the same tokens under the same weights. Measured before any masking."""

    mean_abs: float
    """Mean |trainer - sampler|, in nats."""
    max_abs: float
    kl_k1: float
    """Mean of sampler - trainer: estimates KL(sampler || trainer)."""
    kl_k3: float
    mean_exp_abs: float
    """Mean of exp |trainer - sampler|: 1 is perfect, above 1.02 something is wrong."""
    mean_weight: float
    """Mean of w = exp(trainer - sampler): about 1 when the sampler samples what it says."""
    chi2_token: float
    """Mean of w^2, minus 1."""
    chi2_sequence: float
    """The same for the product of w over each sequence."""
    perplexity_ratio: float
    """Mean over sequences of exp(mean_t(sampler - trainer))."""


def logprob_gap(trainer_logprobs: Tensor, sampler_logprobs: Tensor, loss_mask: Tensor) -> LogprobGap:
    """Compare the log-probs that the trainer computes with those that the sampler recorded.

    Args:
        trainer_logprobs: [B, T] under the weights that sampled, computed by the trainer.
        sampler_logprobs: [B, T] as recorded at sampling.
        loss_mask: [B, T] bool; other positions may hold anything.

    Raises:
        ValueError: the shapes differ, or no token is trained.
    """
    require_same_shape(trainer_logprobs=trainer_logprobs, sampler_logprobs=sampler_logprobs, loss_mask=loss_mask)
    trainer, sampler = _valid(trainer_logprobs, loss_mask), _valid(sampler_logprobs, loss_mask)
    weight = importance_ratio(trainer, sampler)
    difference = torch.where(loss_mask, trainer_logprobs.detach().double() - sampler_logprobs.detach().double(), 0.0)
    lengths = loss_mask.sum(dim=1)
    sums = difference.sum(dim=1)[lengths > 0]
    return LogprobGap(
        mean_abs=(trainer - sampler).abs().mean().item(),
        max_abs=(trainer - sampler).abs().max().item(),
        kl_k1=(sampler - trainer).mean().item(),
        kl_k3=kl_estimate(sampler, trainer, "k3").mean().item(),
        mean_exp_abs=(trainer - sampler).abs().exp().mean().item(),
        mean_weight=weight.mean().item(),
        chi2_token=(weight.square().mean() - 1).item(),
        chi2_sequence=((2 * sums).exp().mean() - 1).item(),
        perplexity_ratio=(-sums / lengths[lengths > 0]).exp().mean().item(),
    )


def _valid(values: Tensor, mask: Tensor) -> Tensor:
    """Return the entries inside the mask as a float64 vector."""
    if not bool(mask.any()):
        raise ValueError("no token is trained: there is nothing to summarise")
    return values.detach()[mask].double()


def _share(flags: Tensor) -> float:
    return flags.double().mean().item()
