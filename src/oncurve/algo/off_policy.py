"""Corrections for tokens that another policy, or another implementation of the same one, has sampled.

Shapes: B completions, T padded positions.
"""

from typing import Literal

import torch
from torch import Tensor

from oncurve.algo.checks import at_least_float32, require_same_shape
from oncurve.algo.clipping import MAX_LOG_RATIO

WeightMode = Literal["token_truncate", "token_mask", "seq_truncate", "seq_mask", "seq_geo_mask"]


def importance_weights(
    trainer_logprobs: Tensor,
    sampler_logprobs: Tensor,
    loss_mask: Tensor,
    mode: WeightMode,
    *,
    low: float,
    high: float,
) -> Tensor:
    """Weigh tokens by how likely the trainer finds what the sampler sampled.

    With w = exp(trainer - sampler) of a token, W the product of w over a completion and M its geometric mean:

    - ``token_truncate``: w limited to [low, high]
    - ``token_mask``: w inside [low, high], else 0
    - ``seq_truncate``: W limited to [low, high]
    - ``seq_mask``: W inside [low, high], else 0
    - ``seq_geo_mask``: w where M is inside [low, high], else 0

    Multiply the policy term only, not KL or entropy, and keep the denominators of the unmasked batch. When the ratio
    of the loss is taken against sampler_logprobs already, it contains w: do not multiply again.

    Args:
        trainer_logprobs: [B, T] under the weights at the start of the step, computed by the trainer.
        sampler_logprobs: [B, T] as recorded at sampling.
        loss_mask: [B, T] bool; other positions may hold anything.
        mode: one of the five above.
        low: lower bound.
        high: upper bound.

    Returns:
        [B, T] weights, 0 outside the mask. No gradient.

    Raises:
        ValueError: the shapes differ, or low > high.

    Source:
        IcePop: arXiv:2510.18855; truncated and masked sequence weights: common practice of open trainers.
    """
    require_same_shape(trainer_logprobs=trainer_logprobs, sampler_logprobs=sampler_logprobs, loss_mask=loss_mask)
    if low > high:
        raise ValueError(f"the bounds of an importance weight need low <= high, got {low} and {high}")
    difference = at_least_float32(trainer_logprobs.detach()) - at_least_float32(sampler_logprobs.detach())
    log_weight = torch.where(loss_mask, difference, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    token = log_weight.exp()
    sums = log_weight.sum(dim=1, keepdim=True)
    product = sums.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp().expand_as(token)
    if mode == "token_truncate":
        weights = token.clamp(low, high)
    elif mode == "token_mask":
        weights = _inside(token, token, low, high)
    elif mode == "seq_truncate":
        weights = product.clamp(low, high)
    elif mode == "seq_mask":
        weights = _inside(product, product, low, high)
    else:
        geometric = (sums / loss_mask.sum(dim=1, keepdim=True).clamp(min=1)).exp().expand_as(token)
        weights = _inside(token, geometric, low, high)
    return torch.where(loss_mask, weights, 0.0)


def off_policy_keep(
    logprobs: Tensor, sampler_logprobs: Tensor, advantages: Tensor, loss_mask: Tensor, *, max_divergence: float
) -> Tensor:
    """Say which completions stay in the policy term: dropped are bad ones that the policy has already left.

    Dropped exactly when A < 0 and the mean over its tokens of sampler - policy log-probs exceeds max_divergence. Zero
    the policy term of a dropped one; keep its KL term and the denominators.

    Args:
        logprobs: [B, T] under the policy being trained.
        sampler_logprobs: [B, T] as recorded at sampling.
        advantages: [B].
        loss_mask: [B, T] bool; other positions may hold anything.
        max_divergence: in nats a token.

    Returns:
        [B] bool, True where the completion is kept.

    Raises:
        ValueError: the shapes differ.

    Source:
        DeepSeek-V3.2, arXiv:2512.02556.
    """
    require_same_shape(logprobs=logprobs, sampler_logprobs=sampler_logprobs, loss_mask=loss_mask)
    require_same_shape(advantages=advantages, rows=loss_mask[:, 0])
    moved = torch.where(loss_mask, sampler_logprobs.detach() - logprobs.detach(), 0.0).sum(dim=1)
    mean = moved / loss_mask.sum(dim=1).clamp(min=1)
    return ~((advantages < 0) & (mean > max_divergence))


def _inside(values: Tensor, judged: Tensor, low: float, high: float) -> Tensor:
    return torch.where((judged >= low) & (judged <= high), values, 0.0)
