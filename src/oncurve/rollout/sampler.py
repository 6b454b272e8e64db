"""Draw one token per row, together with the log-prob of the drawn token.

R rows, V vocabulary, N candidates of a row.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from oncurve.types import Sampling

_BLOCK = 512
"""Candidates that are searched as one block; below it a row is searched directly."""

_CHUNK = 2**20
"""Most probabilities that are worked on at once: rows go in chunks, so that those of a chunk stay in the processor's
caches between the passes over them. At a vocabulary of 262,144 it halves the time."""

_BELOW_ONE = 1.0 - 2.0**-52
"""Times a running sum it is less than that sum, so that the search inside a block does not run off its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """What one step of sampling gives."""

    ids: Tensor
    """[R] int64 drawn tokens."""
    logprobs: Tensor
    """[R] float32 natural-log probability of each drawn token, see ``draw``."""


def uniform_stream(seed: int, num: int) -> np.ndarray:
    """The random numbers of one completion: one uniform in [0, 1) per token.

    Args:
        seed: in [0, 2**64), the key of a Philox counter generator; no other completion shares it.
        num: how many numbers.

    Returns:
        [num] float64. A longer stream of the same seed begins with a shorter one.

    Source:
        Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
    """
    return np.random.Generator(np.random.Philox(key=seed)).random(num)


def draw(logits: Tensor, uniforms: Tensor, sampling: Sampling) -> Draw:
    """Sample every row of ``logits`` by inverting its cumulative distribution at its uniform.

    p = softmax(logits / temperature) in float32;  id = min { v : sum_{w <= v} p_w > u }

    With top-k or top-p the sum runs over the kept tokens, likeliest first, renormalised; top-k acts first, then top-p,
    then min-p, which alone keeps the order of the vocabulary. The log-prob
    is log p of the whole distribution all the same: what the learner computes. Temperature 0 takes the likeliest token
    and reports log p at temperature 1, because the limit distribution has no log-prob to train on.

    Args:
        logits: [R, V] of any float dtype. An entry of -inf bans a token.
        uniforms: [R] float64 in [0, 1).
        sampling: temperature, top_p, top_k and min_p; the rest is not read.

    Returns:
        The draw. A row whose logits hold NaN or +inf, or only -inf, has a log-prob that is not finite.
    """
    rows = max(1, _CHUNK // logits.shape[1])
    if len(logits) <= rows:
        return _draw(logits, uniforms, sampling)
    firsts = range(0, len(logits), rows)
    draws = [_draw(logits[i : i + rows], uniforms[i : i + rows], sampling) for i in firsts]
    return Draw(ids=torch.cat([one.ids for one in draws]), logprobs=torch.cat([one.logprobs for one in draws]))


def _draw(logits: Tensor, uniforms: Tensor, sampling: Sampling) -> Draw:
    if sampling.temperature in (0.0, 1.0):
        probs = torch.softmax(logits, dim=-1, dtype=torch.float32)
    else:
        probs = torch.softmax(logits.float() / sampling.temperature, dim=-1)
    if sampling.temperature == 0.0:
        ids = logits.argmax(dim=-1)
    elif sampling.top_k == 0 and sampling.top_p == 1.0:
        ids = inverse_cdf(_without_unlikely(probs, sampling.min_p), uniforms)
    else:
        weights, candidates = _filtered(probs, sampling)
        ids = candidates.gather(1, inverse_cdf(weights, uniforms)[:, None]).squeeze(1)
    return Draw(ids=ids, logprobs=probs.gather(1, ids[:, None]).squeeze(1).log())


def inverse_cdf(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Index of the first weight at which the running sum passes ``u`` times the total.

    Wide rows are searched in two levels, over sums of blocks and then inside one block; sums run in float64.

    Args:
        weights: [R, N] float32, not negative, at least one positive a row; they need not sum to 1.
        uniforms: [R] float64 in [0, 1).

    Returns:
        [R] int64 indices of positive weights. Rows with NaN give some index in range.
    """
    if weights.shape[1] <= _BLOCK:
        return _search(weights, uniforms)[0]
    width = weights.shape[1]
    block, rest = _search(_block_sums(weights), uniforms)
    columns = block[:, None] * _BLOCK + torch.arange(_BLOCK, device=weights.device)
    # Beyond the end the last weight repeats; an index that lands there is cut back to it below.
    cdf = weights.gather(1, columns.clamp(max=width - 1)).double().cumsum(dim=-1)
    target = torch.minimum(rest, cdf[:, -1] * _BELOW_ONE)  # a block's sum and its running sum may round apart
    return (block * _BLOCK + _first_above(cdf, target)).clamp(max=width - 1)


def _block_sums(weights: Tensor) -> Tensor:
    """[R, ceil(N / block)] sums of consecutive blocks; the last block may be short."""
    whole = weights.shape[1] // _BLOCK * _BLOCK
    sums = weights[:, :whole].reshape(len(weights), -1, _BLOCK).sum(dim=-1)
    if whole == weights.shape[1]:
        return sums
    return torch.cat([sums, weights[:, whole:].sum(dim=-1, keepdim=True)], dim=1)


def _search(weights: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """The index that ``uniforms`` selects and how far beyond the sum of all earlier weights the target lies."""
    cdf = weights.double().cumsum(dim=-1)
    target = uniforms * cdf[:, -1]  # below the total even for the largest uniform, 1 - 2^-53
    index = _first_above(cdf, target)
    before = torch.where(index > 0, cdf.gather(1, (index - 1).clamp(min=0)[:, None]).squeeze(1), 0.0)
    return index, target - before


def _first_above(cdf: Tensor, target: Tensor) -> Tensor:
    index = torch.searchsorted(cdf, target[:, None], right=True).squeeze(1)
    return index.clamp(max=cdf.shape[1] - 1)


def _filtered(probs: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Weights and ids of the kept tokens, likeliest first; a dropped token has weight 0."""
    if 0 < sampling.top_k < probs.shape[1]:
        weights, ids = probs.topk(sampling.top_k, dim=-1)
    else:
        weights, ids = probs.sort(dim=-1, descending=True, stable=True)
    if sampling.top_p < 1.0:
        cdf = weights.double().cumsum(dim=-1)
        is_dropped = cdf - weights >= sampling.top_p * cdf[:, -1:]
        weights = weights.masked_fill(is_dropped, 0.0)
    return _without_unlikely(weights, sampling.min_p), ids


def _without_unlikely(weights: Tensor, min_p: float) -> Tensor:
    """The weights, but 0 for those below ``min_p`` times the largest of their row."""
    if min_p == 0.0:
        return weights
    return weights.masked_fill(weights < min_p * weights.amax(dim=1, keepdim=True), 0.0)
