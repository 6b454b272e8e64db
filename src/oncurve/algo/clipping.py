"""The importance ratio and the clipped surrogate, token by token."""

import torch
from torch import Tensor

from oncurve.algo.checks import at_least_float32, require_same_shape

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to [-20, 20] before exp: beyond it a ratio is an accident, and inf would spoil the step."""


def importance_ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """Return exp(logprobs - old_logprobs), the log-ratio clamped to [-20, 20].

    Args:
        logprobs: log-probs of the sampled tokens under the policy being trained, any shape; carries the gradient.
        old_logprobs: the same tokens under the policy that sampled them; no gradient flows into it.

    Returns:
        Ratios in float32 (float64 for float64 input). The gradient is 0 where the clamp acts.

    Raises:
        ValueError: the shapes differ.
    """
    require_same_shape(logprobs=logprobs, old_logprobs=old_logprobs)
    log_ratio = at_least_float32(logprobs) - at_least_float32(old_logprobs.detach())
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def clipped_surrogate(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    ratio_cap: float | None = None,
) -> Tensor:
    """Return the clipped policy loss of each token, to be minimised.

    loss = -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)

    Its gradient with respect to the log-prob is -ratio * A, or 0 for A > 0 beyond the upper bound and for A < 0 below
    the lower one. At ratio 1 that is REINFORCE.

    Args:
        logprobs: log-probs under the policy being trained, any shape; carries the gradient.
        old_logprobs: the same tokens under the policy that sampled them.
        advantages: per token, same shape; never carries gradient.
        clip_low: width of the band below 1.
        clip_high: width of the band above 1.
        dual_clip: c > 1; for A < 0 the loss is at most c * |A|. None: off.
        ratio_cap: c > 1 + clip_high; the unclipped ratio becomes min(ratio, c). None: off.

    Returns:
        Loss of the common shape, in float32 (float64 for float64 input).

    Raises:
        ValueError: the shapes differ.

    Source:
        PPO, arXiv:1707.06347; separate bounds: DAPO, arXiv:2503.14476; dual clip: arXiv:1912.09729; cap:
        INTELLECT-2, arXiv:2505.07291.
    """
    require_same_shape(logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages)
    ratio = importance_ratio(logprobs, old_logprobs)
    gain = advantages.detach().to(ratio.dtype)
    unclipped = ratio if ratio_cap is None else ratio.clamp(max=ratio_cap)
    objective = torch.minimum(unclipped * gain, ratio.clamp(1 - clip_low, 1 + clip_high) * gain)
    if dual_clip is not None:
        objective = torch.where(gain < 0, torch.maximum(objective, dual_clip * gain), objective)
    return -objective
