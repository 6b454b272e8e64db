"""KL divergence to the reference policy: three estimators, and the reward placement.

``d`` is logprobs - ref_logprobs of a token sampled from the policy.
"""

from typing import Literal

import torch
from torch import Tensor

from oncurve.algo.checks import at_least_float32, require_same_shape
from oncurve.algo.clipping import importance_ratio

KlEstimator = Literal["k1", "k2", "k3"]
KlPlacement = Literal["loss", "reward"]


def kl_estimate(logprobs: Tensor, ref_logprobs: Tensor, estimator: KlEstimator) -> Tensor:
    """Estimate KL(policy || reference) from each sampled token.

    - ``k1`` = d: unbiased, signed, noisy
    - ``k2`` = d^2 / 2: biased, never negative
    - ``k3`` = exp(-d) - 1 + d: unbiased, never negative

    The *gradients* are another matter: 1, d and 1 - exp(-d). On samples of the policy itself their expectations
    are 0, the gradient of KL(policy || reference), and the gradient of KL(reference || policy).

    Args:
        logprobs: log-probs of the sampled tokens, any shape; carries the gradient.
        ref_logprobs: the same tokens under the frozen reference; no gradient flows into it.
        estimator: which of the three.

    Returns:
        Estimates of the common shape, in nats, float32 (float64 for float64 input). For ``k3`` exp(-d) is taken of
        d clamped to [-20, 20].

    Raises:
        ValueError: the shapes differ.

    Source:
        Values: joschu.net/blog/kl-approx.html. Gradients: arXiv:2506.09477, arXiv:2510.01555.
    """
    require_same_shape(logprobs=logprobs, ref_logprobs=ref_logprobs)
    difference = at_least_float32(logprobs) - at_least_float32(ref_logprobs.detach())
    if estimator == "k1":
        return difference
    if estimator == "k2":
        return difference.square() / 2
    bounded = difference.clamp(-20.0, 20.0)
    return torch.expm1(-bounded) + bounded


def importance_weighted_kl(logprobs: Tensor, old_logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Return ratio * k3 with a differentiable ratio, per token.

    Its token gradient is ratio * d: the gradient of KL(policy || reference) in expectation, also when the tokens were
    sampled by an older policy. Detaching the ratio would bring the bias of k3 back.

    Args:
        logprobs: log-probs of the sampled tokens, any shape; carries the gradient.
        old_logprobs: the same tokens under the policy that sampled them.
        ref_logprobs: the same tokens under the frozen reference.

    Returns:
        Estimates of the common shape, in nats.

    Raises:
        ValueError: the shapes differ.

    Source:
        DeepSeek-V3.2, arXiv:2512.02556.
    """
    return importance_ratio(logprobs, old_logprobs) * kl_estimate(logprobs, ref_logprobs, "k3")


def kl_token_rewards(
    rewards: Tensor,
    old_logprobs: Tensor,
    ref_logprobs: Tensor,
    loss_mask: Tensor,
    *,
    kl_coef: float,
    estimator: KlEstimator = "k1",
) -> Tensor:
    """Put the KL into the reward: -kl_coef * kl on every token, plus the reward on the last one.

    Subtract it before the baseline, or the group statistics never see it.

    Args:
        rewards: [B] rewards of the sequences.
        old_logprobs: [B, T] log-probs when sampled.
        ref_logprobs: [B, T] under the frozen reference.
        loss_mask: [B, T] bool, True where the token is trained; other positions may hold anything.
        kl_coef: weight of the KL, in reward a nat.
        estimator: which value; only ``k1`` gives the gradient of KL(policy || reference).

    Returns:
        [B, T] token rewards, 0 outside the mask. Their row sum is the penalised reward of the sequence. No gradient.

    Raises:
        ValueError: the shapes differ, or a sequence has no trained token to carry its reward.

    Source:
        InstructGPT, arXiv:2203.02155.
    """
    require_same_shape(old_logprobs=old_logprobs, ref_logprobs=ref_logprobs, loss_mask=loss_mask)
    if rewards.shape != loss_mask.shape[:1] or not bool(loss_mask.any(dim=1).all()):
        raise ValueError(
            f"rewards must be [B] and every row of loss_mask needs a trained token, got rewards {list(rewards.shape)} "
            f"and {loss_mask.sum(dim=1).tolist()} trained tokens a row. A sequence of length 0 cannot carry a reward."
        )
    divergence = kl_estimate(old_logprobs.detach(), ref_logprobs, estimator)
    token_rewards = torch.where(loss_mask, -kl_coef * divergence, 0.0)
    positions = torch.arange(loss_mask.shape[1], device=loss_mask.device)
    last = torch.where(loss_mask, positions, -1).amax(dim=1, keepdim=True)
    return token_rewards.scatter_add(1, last, rewards.detach().to(token_rewards.dtype)[:, None])


def rewards_to_go(token_rewards: Tensor) -> Tensor:
    """Return [B, T] sums of the rewards from each position to the end of its row."""
    return token_rewards.flip(1).cumsum(dim=1).flip(1)
