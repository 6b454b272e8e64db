"""Keeping the policy from collapsing: the coefficient of an entropy bonus, and which tokens drive the entropy.

Nothing here draws a random number. Thresholds and counts belong to the whole step: with several workers gather the
entropies or covariances first. Shapes: any common shape, packed [N] or [B, T].
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from oncurve.algo.checks import at_least_float32, require_same_shape
from oncurve.algo.clipping import importance_ratio


@dataclass(frozen=True)
class EntropyCoef:
    """The coefficient of an entropy bonus that is on only while the entropy is low."""

    applied: float
    """For this step: 0 while the entropy is above the target."""
    next: float
    """To hand to the next step."""


def adapted_entropy_coef(
    coef: float, entropy: float, *, target: float, step: float, lowest: float = 0.0, highest: float
) -> EntropyCoef:
    """Raise the coefficient by a step while the entropy is at most the target, lower it otherwise.

    Args:
        coef: handed over by the step before.
        entropy: nats a token; take that of the previous optimiser step, so that all micro-batches agree.
        target: wanted entropy.
        step: change of the coefficient a step, >= 0.
        lowest: least coefficient.
        highest: largest coefficient.

    Raises:
        ValueError: step is negative, or lowest > highest.

    Source:
        Skywork-OR1, arXiv:2505.22312.
    """
    if step < 0 or lowest > highest:
        raise ValueError(f"need step >= 0 and lowest <= highest, got step {step}, lowest {lowest}, highest {highest}")
    if entropy <= target:
        return EntropyCoef(applied=coef, next=min(coef + step, highest))
    return EntropyCoef(applied=0.0, next=max(coef - step, lowest))


def token_covariance(logprobs: Tensor, advantages: Tensor, loss_mask: Tensor) -> Tensor:
    """Return (A - mean A) * (l - mean l) of each token, the means over all trained tokens.

    The entropy falls when tokens that are already likely have high advantages: their covariance is large.

    Args:
        logprobs: l, under the policy being trained.
        advantages: A, per token.
        loss_mask: bool; other positions may hold anything.

    Returns:
        The common shape, 0 outside the mask. No gradient.

    Raises:
        ValueError: the shapes differ.

    Source:
        arXiv:2505.22617.
    """
    require_same_shape(logprobs=logprobs, advantages=advantages, loss_mask=loss_mask)
    return _deviation(advantages, loss_mask) * _deviation(logprobs, loss_mask)


def clip_cov_eligible(
    covariance: Tensor, loss_mask: Tensor, *, low: float, high: float, clipped: Tensor | None = None
) -> Tensor:
    """Say which tokens Clip-Cov may drop: trained, low < covariance < high, and not clipped anyway.

    Args:
        covariance: of ``token_covariance``.
        loss_mask: bool.
        low: lower bound, excluded.
        high: upper bound, excluded.
        clipped: bool, True where the clip of the loss acts; None: nowhere.

    Raises:
        ValueError: the shapes differ.
    """
    untouched = loss_mask if clipped is None else loss_mask & ~clipped
    require_same_shape(covariance=covariance, loss_mask=loss_mask, untouched=untouched)
    return untouched & (covariance > low) & (covariance < high)


def num_controlled(num_tokens: int, frac: float) -> int:
    """Return how many of the trained tokens Clip-Cov drops or KL-Cov penalises: max(1, int(frac * num_tokens))."""
    return max(1, int(frac * num_tokens))


def clip_cov_dropped(eligible: Tensor, uniforms: Tensor, *, count: int) -> Tensor:
    """Choose ``count`` of the eligible tokens at random: those with the smallest uniforms. Give them no gradient.

    Args:
        eligible: bool, of ``clip_cov_eligible``.
        uniforms: one number in [0, 1) a token, from the caller's seeded generator: the same numbers, the same tokens.
        count: of ``num_controlled``; all eligible ones if there are fewer.

    Returns:
        Bool, True where the token is dropped.

    Raises:
        ValueError: the shapes differ.

    Source:
        Clip-Cov, arXiv:2505.22617.
    """
    require_same_shape(eligible=eligible, uniforms=uniforms)
    return _largest(-uniforms, eligible, count)


def kl_cov_tokens(covariance: Tensor, loss_mask: Tensor, *, count: int) -> Tensor:
    """Say which ``count`` trained tokens have the largest covariance; the earlier one on a tie.

    Args:
        covariance: of ``token_covariance``.
        loss_mask: bool.
        count: of ``num_controlled``.

    Raises:
        ValueError: the shapes differ.
    """
    require_same_shape(covariance=covariance, loss_mask=loss_mask)
    return _largest(covariance, loss_mask, count)


def kl_cov_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, penalised: Tensor, *, kl_coef: float
) -> Tensor:
    """Return -ratio * A of each token, plus kl_coef * abs(logprobs - old_logprobs) where it is penalised.

    Args:
        logprobs: under the policy being trained; carries the gradient.
        old_logprobs: the same tokens when sampled.
        advantages: per token.
        penalised: bool, of ``kl_cov_tokens``.
        kl_coef: weight of the penalty, in advantage a nat.

    Raises:
        ValueError: the shapes differ.

    Source:
        KL-Cov, arXiv:2505.22617.
    """
    require_same_shape(logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages, penalised=penalised)
    ratio = importance_ratio(logprobs, old_logprobs)
    moved = (at_least_float32(logprobs) - at_least_float32(old_logprobs.detach())).abs()
    return -ratio * advantages.detach().to(ratio.dtype) + torch.where(penalised, kl_coef * moved, 0.0)


def entropy_threshold(entropy: Tensor, loss_mask: Tensor, *, share: float) -> float:
    """Return the entropy that a ``share`` of the trained tokens reaches: their (1 - share)-quantile.

    Args:
        entropy: nats a token.
        loss_mask: bool; other positions may hold anything.
        share: in (0, 1].

    Returns:
        The quantile, interpolated linearly between neighbours.

    Raises:
        ValueError: the shapes differ, no token is trained, or share is outside (0, 1].
    """
    require_same_shape(entropy=entropy, loss_mask=loss_mask)
    if not 0 < share <= 1 or not bool(loss_mask.any()):
        raise ValueError(
            f"need a share in (0, 1] of at least one trained token, got share {share} of {int(loss_mask.sum())}"
        )
    ordered = entropy.detach()[loss_mask].double().sort().values
    position = round((1 - share) * (len(ordered) - 1), 9)  # a place that is whole but for rounding is whole
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return torch.lerp(ordered[below], ordered[above], position - below).item()


def top_entropy_mask(entropy: Tensor, loss_mask: Tensor, *, threshold: float) -> Tensor:
    """Say which trained tokens have at least the threshold's entropy: train the policy term of these alone.

    Args:
        entropy: nats a token.
        loss_mask: bool.
        threshold: of ``entropy_threshold`` over the whole step.

    Raises:
        ValueError: the shapes differ.

    Source:
        arXiv:2506.01939.
    """
    require_same_shape(entropy=entropy, loss_mask=loss_mask)
    return loss_mask & (entropy >= threshold)


def _deviation(values: Tensor, loss_mask: Tensor) -> Tensor:
    """Return the values minus their mean over the trained tokens, 0 elsewhere."""
    valid = torch.where(loss_mask, at_least_float32(values.detach()), 0.0)
    return torch.where(loss_mask, valid - valid.sum() / loss_mask.sum().clamp(min=1), 0.0)


def _largest(values: Tensor, candidates: Tensor, count: int) -> Tensor:
    """Return a mask of the ``count`` largest values among the candidates, earlier ones first on a tie."""
    places = candidates.flatten().nonzero().squeeze(1)
    order = values.flatten()[places].sort(descending=True, stable=True).indices
    chosen = torch.zeros(candidates.numel(), dtype=torch.bool, device=candidates.device)
    chosen[places[order[:count]]] = True
    return chosen.view(candidates.shape)
