"""Policy losses whose ratio belongs to the whole completion.

Shapes: B completions, T padded positions. All take

- ``logprobs``: [B, T] of the sampled tokens under the policy being trained; carries the gradient
- ``old_logprobs``: [B, T] when sampled
- ``advantages``: [B], one a completion; [B, T] for ``gspo_token_loss``. Never carries gradient
- ``loss_mask``: [B, T] bool, True where the token is trained; other positions may hold anything

and return [B, T] losses, float32 (float64 for float64 input), to be weighed like every other token loss: positions
outside the mask hold 0 or a copy of their sequence's loss and weigh nothing. Log-ratios of tokens are limited to
[-20, 20]. Shapes that do not fit raise ValueError.
"""

from math import log

import torch
from torch import Tensor

from oncurve.algo.checks import at_least_float32, require_same_shape
from oncurve.algo.clipping import MAX_LOG_RATIO


def completion_ratio(logprobs: Tensor, old_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """Return the geometric mean of the token ratios of each completion, repeated over its row.

    Args:
        logprobs: [B, T] under the policy being trained.
        old_logprobs: [B, T] when sampled.
        loss_mask: [B, T] bool; other positions may hold anything.

    Returns:
        [B, T], what the clip of GSPO looks at. No gradient.

    Raises:
        ValueError: the shapes differ.
    """
    _, log_ratio = _inputs(logprobs.detach(), old_logprobs, loss_mask[:, 0].double(), loss_mask)
    return _mean(log_ratio, loss_mask).exp()[:, None].expand(loss_mask.shape)


def gspo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """Return -min(s A, clip(s, 1 - clip_low, 1 + clip_high) A) of each completion, repeated over its tokens.

    s = exp(mean over the tokens of logprobs - old_logprobs), the geometric mean of the token ratios. Weighed with
    ``seq-mean-token-mean`` this is GSPO; with ``seq-mean-token-sum`` it is LUSPO, each term times its length.

    Args:
        clip_low: width of the band below 1; of the order of 1e-4, since s hardly moves.
        clip_high: width of the band above 1.

    Source:
        GSPO, arXiv:2507.18071; LUSPO, arXiv:2602.05261.
    """
    _, log_ratio = _inputs(logprobs, old_logprobs, advantages, loss_mask)
    ratio = _mean(log_ratio, loss_mask).exp()
    gain = advantages.detach().to(ratio.dtype)
    return _clipped(ratio, gain, clip_low, clip_high)[:, None].expand(loss_mask.shape)


def gspo_token_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """Return GSPO with advantages per token: the ratio is stop_gradient[s] * exp(l - stop_gradient[l]).

    With equal advantages over a completion it has the gradient of ``gspo_loss``.

    Args:
        clip_low: width of the band below 1.
        clip_high: width of the band above 1.

    Source:
        arXiv:2507.18071, section 4.3.
    """
    require_same_shape(logprobs=logprobs, advantages=advantages)
    current, log_ratio = _inputs(logprobs, old_logprobs, advantages[:, 0], loss_mask)
    ratio = _mean(log_ratio, loss_mask).exp().detach()[:, None] * (current - current.detach()).exp()
    gain = torch.where(loss_mask, advantages.detach(), 0.0).to(ratio.dtype)
    return _clipped(ratio, gain, clip_low, clip_high)


def gmpo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """Return -A * exp(mean of the clipped log-ratios) of each completion, repeated over its tokens.

    Log-ratios are clipped one-sidedly: at most clip_high for A > 0, at least -clip_low for A < 0. Clip first, average
    after; GSPO does it the other way round. Weigh with ``seq-mean-token-mean``.

    Args:
        clip_low: bound in log space for A < 0.
        clip_high: bound in log space for A > 0.

    Source:
        arXiv:2507.20673.
    """
    _, log_ratio = _inputs(logprobs, old_logprobs, advantages, loss_mask)
    gain = advantages.detach().to(log_ratio.dtype)
    clipped = torch.where(gain[:, None] > 0, log_ratio.clamp(max=clip_high), log_ratio.clamp(min=-clip_low))
    loss = -gain * _mean(clipped, loss_mask).exp()
    return loss[:, None].expand(loss_mask.shape)


def topr_loss(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, loss_mask: Tensor) -> Tensor:
    """Return -stop_gradient[w] * A * logprobs, per token: w = 1 for A >= 0, else the product ratio clipped to [0, 1].

    Good completions are imitated whatever their ratio; bad ones are pushed down only while the policy still
    produces them. Weigh with ``seq-mean-token-sum``.

    Source:
        arXiv:2503.14286.
    """
    current, log_ratio = _inputs(logprobs, old_logprobs, advantages, loss_mask)
    gain = advantages.detach().to(current.dtype)
    product = log_ratio.detach().sum(dim=1).clamp(max=0.0).exp()
    weight = torch.where(gain >= 0, 1.0, product)
    return -(weight * gain)[:, None] * current


def vespo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    power_positive: float = 2.0,
    rate_positive: float = 3.0,
    power_negative: float = 3.0,
    rate_negative: float = 2.0,
) -> Tensor:
    """Return -stop_gradient[phi(R)] * A * logprobs, per token, with phi(x) = x^power * exp(rate * (1 - x)).

    R is the product of the token ratios of a completion, its log limited to [log 1e-8, 20]. phi(1) = 1, and it fades on
    both sides. Weigh with ``token-mean``.

    Args:
        power_positive: power of R for A >= 0.
        rate_positive: rate of decay for A >= 0.
        power_negative: power of R for A < 0.
        rate_negative: rate of decay for A < 0.

    Source:
        arXiv:2602.10693.
    """
    current, log_ratio = _inputs(logprobs, old_logprobs, advantages, loss_mask)
    gain = advantages.detach().to(current.dtype)
    log_product = log_ratio.detach().sum(dim=1).clamp(log(1e-8), MAX_LOG_RATIO)
    power = torch.where(gain >= 0, gain.new_tensor(power_positive), gain.new_tensor(power_negative))
    rate = torch.where(gain >= 0, gain.new_tensor(rate_positive), gain.new_tensor(rate_negative))
    weight = (power * log_product + rate * (1 - log_product.exp())).exp()
    return -(weight * gain)[:, None] * current


def _inputs(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, loss_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probs and clamped log-ratios with 0 outside the mask."""
    require_same_shape(logprobs=logprobs, old_logprobs=old_logprobs, loss_mask=loss_mask)
    if loss_mask.ndim != 2 or advantages.shape != loss_mask.shape[:1]:
        raise ValueError(
            f"a loss over whole completions needs [B, T] log-probs and [B] advantages, got {list(loss_mask.shape)} and "
            f"{list(advantages.shape)}"
        )
    current = torch.where(loss_mask, at_least_float32(logprobs), 0.0)
    old = torch.where(loss_mask, at_least_float32(old_logprobs.detach()), 0.0)
    return current, (current - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _clipped(ratio: Tensor, gain: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """Return -min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A)."""
    return -torch.minimum(ratio * gain, ratio.clamp(1 - clip_low, 1 + clip_high) * gain)


def _mean(values: Tensor, loss_mask: Tensor) -> Tensor:
    """Return [B] means over the trained tokens; ``values`` are 0 elsewhere."""
    return torch.where(loss_mask, values, 0.0).sum(dim=1) / loss_mask.sum(dim=1).clamp(min=1)
