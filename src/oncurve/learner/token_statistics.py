"""Log-probs and entropies of a chunk of logits in one go, without a float32 copy of the chunk.

``oncurve.algo`` defines the two; here they share their maximum, exponentials and sum, block after block of rows that
stays in the cache, and the backward pass makes the gradient of the logits in their own precision.

Shapes: n tokens, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

BLOCK_VALUES = 1 << 17
"""Logits of a block."""
_IMPOSSIBLE = -1e30
"""Stands in for a log-prob of -inf where that is multiplied by its probability, which is 0."""


def token_statistics(logits: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-probs of ``ids`` and the entropies, both of softmax(logits / temperature) and both differentiable.

    Args:
        logits: [n, V], -inf where a token is impossible.
        ids: [n] token ids.
        temperature: of the sampler, > 0.

    Returns:
        [n] and [n] in nats, float32 (float64 for float64 input).

    Raises:
        ValueError: the temperature is not positive, or the shapes do not fit.
    """
    if not temperature > 0 or logits.shape[:-1] != ids.shape:
        raise ValueError(
            f"needs a temperature above 0 and logits [n, V] over ids [n], got temperature {temperature}, logits "
            f"{list(logits.shape)} and ids {list(ids.shape)}"
        )
    logprobs, entropy = _Statistics.apply(logits, ids, temperature)  # type: ignore[no-untyped-call]
    return logprobs, entropy


class _Statistics(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        logprobs, entropy, log_sums = (torch.empty(len(ids), dtype=dtype, device=logits.device) for _ in range(3))
        for span in _spans(logits):
            shifted = logits[span].to(dtype, copy=True).div_(temperature)
            largest = shifted.amax(-1, keepdim=True)
            shifted.sub_(largest)
            exponentials = shifted.exp()
            sums = exponentials.sum(-1)
            logprobs[span] = shifted.gather(-1, ids[span, None])[:, 0] - sums.log()
            products = exponentials.mul_(shifted.clamp_(min=_IMPOSSIBLE))  # 0 where a token is impossible
            entropy[span] = sums.log() - products.sum(-1) / sums
            log_sums[span] = sums.log() + largest[:, 0]
        ctx.save_for_backward(logits, ids, log_sums, entropy)
        ctx.temperature = temperature
        ctx.set_materialize_grads(False)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor, None, None]:
        """By z / temperature: (1[v = id] - p_v) of a log-prob, - p_v (log p_v + H) of an entropy."""
        logits, ids, log_sums, entropy = ctx.saved_tensors
        of_logprobs, of_entropy = gradients
        out = torch.empty_like(logits)
        for span in _spans(logits):
            logp = logits[span].to(log_sums.dtype, copy=True).div_(ctx.temperature).sub_(log_sums[span, None])
            found = logp.exp()
            if of_entropy is None:
                found.mul_(torch.zeros(()) if of_logprobs is None else -of_logprobs[span, None])
            else:
                factor = logp.clamp_(min=_IMPOSSIBLE).add_(entropy[span, None])
                factor.mul_(of_entropy[span, None])
                found.mul_(factor.neg_() if of_logprobs is None else factor.add_(of_logprobs[span, None]).neg_())
            if of_logprobs is not None:
                found.scatter_add_(-1, ids[span, None], of_logprobs[span, None])
            out[span] = found.div_(ctx.temperature)
        return out, None, None


def _spans(logits: Tensor) -> list[slice]:
    step = max(1, BLOCK_VALUES // logits.shape[-1])
    return [slice(start, min(start + step, len(logits))) for start in range(0, len(logits), step)]
