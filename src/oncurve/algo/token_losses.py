"""Policy losses that need one token at a time, beside the clipped surrogate.

All of them have the gradient -A at ratio 1: they differ only off-policy.
Shapes: any common shape, packed [N] or [B, T].
"""

from typing import Literal

import torch
from torch import Tensor

from oncurve.algo.checks import at_least_float32, require_same_shape
from oncurve.algo.clipping import clipped_surrogate, importance_ratio


def cispo_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, ratio_min: float, ratio_max: float
) -> Tensor:
    """Return -stop_gradient[clip(ratio, ratio_min, ratio_max)] * A * logprobs, per token.

    Every token keeps a gradient, -clip(ratio) * A. The bounds are absolute: a band of 0.2 / 0.28 around 1 is 0.8 and
    1.28. The value depends on the log-probs themselves and is not comparable with other losses.

    Args:
        logprobs: log-probs under the policy being trained; carries the gradient.
        old_logprobs: the same tokens under the policy that sampled them.
        advantages: per token.
        ratio_min: lower bound of the ratio; 0 for none.
        ratio_max: upper bound of the ratio.

    Raises:
        ValueError: the shapes differ.

    Source:
        MiniMax-M1, arXiv:2506.13585.
    """
    require_same_shape(logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages)
    weight = importance_ratio(logprobs.detach(), old_logprobs).clamp(ratio_min, ratio_max)
    return -weight * advantages.detach() * at_least_float32(logprobs)


def sapo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    tau_positive: float = 1.0,
    tau_negative: float = 1.05,
) -> Tensor:
    """Return -(4 / tau) * sigmoid(tau * (ratio - 1)) * A, per token: a soft gate in place of the hard clip.

    The gradient is -4 s (1 - s) * ratio * A with s the sigmoid: -A at ratio 1, fading smoothly on both sides.

    Args:
        logprobs: log-probs under the policy being trained; carries the gradient.
        old_logprobs: the same tokens under the policy that sampled them.
        advantages: per token.
        tau_positive: sharpness of the gate for A > 0.
        tau_negative: sharpness of the gate for A <= 0.

    Raises:
        ValueError: the shapes differ.

    Source:
        arXiv:2511.20347.
    """
    require_same_shape(logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages)
    ratio = importance_ratio(logprobs, old_logprobs)
    gain = advantages.detach().to(ratio.dtype)
    tau = torch.where(gain > 0, gain.new_tensor(tau_positive), gain.new_tensor(tau_negative))
    return -4 / tau * torch.sigmoid(tau * (ratio - 1)) * gain


def reinforce_loss(logprobs: Tensor, advantages: Tensor, *, scale: float = 1.0) -> Tensor:
    """Return -scale * A * logprobs, per token: no ratio, no clip.

    Args:
        logprobs: log-probs under the policy being trained; carries the gradient.
        advantages: per token.
        scale: B / (B - M) of ``informative_scale`` makes it GPG.

    Raises:
        ValueError: the shapes differ.

    Source:
        REINFORCE; GPG, arXiv:2504.02546.
    """
    require_same_shape(logprobs=logprobs, advantages=advantages)
    return -scale * advantages.detach() * at_least_float32(logprobs)


def decoupled_loss(
    logprobs: Tensor,
    proximal_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    cap: float,
    cap_mode: Literal["truncate", "mask"] = "mask",
) -> Tensor:
    """Return stop_gradient[v] * the clipped surrogate around a recent policy, per token.

    v = exp(proximal_logprobs - old_logprobs) corrects for the policy that sampled; clipping is around the proximal
    policy, the one at the start of the step. When proximal_logprobs *are* old_logprobs, v is 1 and this is the clipped
    surrogate.

    Args:
        logprobs: log-probs under the policy being trained; carries the gradient.
        proximal_logprobs: the same tokens under the policy at the start of the step.
        old_logprobs: the same tokens when sampled, possibly by an older policy.
        advantages: per token.
        clip_low: width of the band below 1.
        clip_high: width of the band above 1.
        cap: largest v.
        cap_mode: above the cap, ``truncate`` v to it or ``mask`` the token.

    Raises:
        ValueError: the shapes differ.

    Source:
        arXiv:2110.00641; AReaL, arXiv:2505.24298.
    """
    require_same_shape(
        logprobs=logprobs,
        proximal_logprobs=proximal_logprobs,
        old_logprobs=old_logprobs,
        advantages=advantages,
    )
    weight = importance_ratio(proximal_logprobs.detach(), old_logprobs)
    weight = weight.clamp(max=cap) if cap_mode == "truncate" else weight.masked_fill(weight > cap, 0.0)
    surrogate = clipped_surrogate(logprobs, proximal_logprobs, advantages, clip_low=clip_low, clip_high=clip_high)
    return weight * surrogate
