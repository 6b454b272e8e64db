"""KL divergence to the reference policy: three estimators, the exact value, the reward placement, the coefficient.

``d`` is logprobs - ref_logprobs of a token sampled from the policy.
"""

from typing import Literal

import torch
from torch import Tensor

from oncurve.algo.checks import at_least_float32, require_same_shape, require_temperature
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


def rewards_to_go(token_rewards: Tensor, loss_mask: Tensor | None = None, *, gamma: float = 1.0) -> Tensor:
    """Return what each token still earns: R_t = r_t + gamma * R_(t+1), with t + 1 the next trained token.

    Args:
        token_rewards: [B, T].
        loss_mask: [B, T] bool; other positions may hold anything and are stepped over without discount. None: all are
            trained.
        gamma: discount a token, in [0, 1].

    Returns:
        [B, T], 0 outside the mask.

    Raises:
        ValueError: the shapes differ, or gamma is outside [0, 1].
    """
    mask = torch.ones_like(token_rewards, dtype=torch.bool) if loss_mask is None else loss_mask
    require_same_shape(token_rewards=token_rewards, loss_mask=mask)
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must be in [0, 1], got {gamma}: it discounts rewards that are still to come")
    returns = torch.where(mask, token_rewards, 0.0)
    if gamma == 1.0:
        return torch.where(mask, returns.flip(1).cumsum(dim=1).flip(1), 0.0)
    ahead = returns.new_zeros(len(returns))
    for step in reversed(range(returns.shape[1])):
        ahead = torch.where(mask[:, step], returns[:, step] + gamma * ahead, ahead)
        returns[:, step] = torch.where(mask[:, step], ahead, 0.0)
    return returns


def exact_kl(logits: Tensor, ref_logits: Tensor, *, temperature: float = 1.0, top_k: int | None = None) -> Tensor:
    """Return KL(policy || reference) over the whole vocabulary, with its exact gradient.

    KL = sum over v of p_v (log p_v - log q_v), with p and q the two softmaxes at one temperature

    No sampling noise, but two [..., V] tensors. Rows do not depend on each other: call it on chunks of rows to bound
    the memory. With ``top_k`` the k tokens that the policy finds likeliest stay apart and all others share one bucket,
    a lower bound of the whole.

    Args:
        logits: [..., V] of the policy, -inf where a token is impossible; carries the gradient.
        ref_logits: [..., V] of the frozen reference; no gradient flows into it.
        temperature: of the sampler, > 0.
        top_k: in 1..V; None takes the whole vocabulary.

    Returns:
        [...] in nats, float32 (float64 for float64 input); inf where the reference excludes what the policy may say.

    Raises:
        ValueError: the shapes differ, temperature is not positive, or top_k is not in 1..V.
    """
    require_same_shape(logits=logits, ref_logits=ref_logits)
    require_temperature(temperature)
    logprobs = torch.log_softmax(at_least_float32(logits) / temperature, dim=-1)
    ref_logprobs = torch.log_softmax(at_least_float32(ref_logits.detach()) / temperature, dim=-1)
    if top_k is not None and not 1 <= top_k <= logits.shape[-1]:
        raise ValueError(f"top_k must be in 1..{logits.shape[-1]}, the size of the vocabulary, got {top_k}")
    if top_k is not None and top_k < logits.shape[-1]:
        likeliest = logprobs.topk(top_k, dim=-1).indices
        logprobs, ref_logprobs = _bucketed(logprobs, likeliest), _bucketed(ref_logprobs, likeliest)
    probabilities = logprobs.exp()
    return (probabilities * torch.where(probabilities > 0, logprobs - ref_logprobs, 0.0)).sum(dim=-1)


def _bucketed(logprobs: Tensor, kept: Tensor) -> Tensor:
    """Return [..., k + 1]: the kept tokens, then all the others together."""
    lowest = torch.finfo(logprobs.dtype).min  # the gradient of logsumexp is NaN when every term is -inf
    others = logprobs.scatter(-1, kept, -torch.inf).clamp(min=lowest)
    bucket = torch.logsumexp(others, dim=-1, keepdim=True)
    return torch.cat([logprobs.gather(-1, kept), torch.where(bucket > lowest, bucket, -torch.inf)], dim=-1)


def adapted_kl_coef(kl_coef: float, divergence: float, *, target: float, horizon: int, num_samples: int) -> float:
    """Return the coefficient that steers the KL towards a target: kl_coef * (1 + e * num_samples / horizon).

    e = clip(divergence / target - 1, -0.2, 0.2): one step changes the coefficient by at most a fifth of
    num_samples / horizon.

    Args:
        kl_coef: of this step, >= 0. From 0 it never leaves 0.
        divergence: measured KL, in the unit of the target: nats a token or nats a sequence.
        target: wanted KL, > 0.
        horizon: samples after which a full error has changed the coefficient by a fifth.
        num_samples: samples of this step.

    Raises:
        ValueError: target or horizon is not positive.

    Source:
        arXiv:1909.08593, section 2.2.
    """
    if not (target > 0 and horizon > 0):
        raise ValueError(f"target and horizon must be positive, got {target} and {horizon}")
    error = min(max(divergence / target - 1, -0.2), 0.2)
    return kl_coef * (1 + error * num_samples / horizon)
