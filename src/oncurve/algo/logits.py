"""Log-probabilities and entropy from logits. V is the size of the vocabulary; leading dimensions are free."""

import torch
from torch import Tensor

from oncurve.algo.checks import at_least_float32, require_temperature


def token_logprobs_from_logits(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    """Return log_softmax(logits / temperature)[ids].

    Logits at a position predict the *next* token: pass ``logits[:-1]`` with ``ids[1:]``. Use the temperature of the
    sampler, or the ratio starts away from 1.

    Args:
        logits: [..., V] raw scores; carries the gradient.
        ids: [...] integer token ids.
        temperature: of the sampler, > 0.

    Returns:
        [...] log-probs in nats, float32 (float64 for float64 input).

    Raises:
        ValueError: the shapes do not fit, or temperature is not positive.
    """
    require_temperature(temperature)
    if logits.shape[:-1] != ids.shape:
        raise ValueError(f"logits must be [..., V] over ids [...], got {list(logits.shape)} and {list(ids.shape)}")
    scaled = at_least_float32(logits) / temperature
    return scaled.gather(-1, ids.unsqueeze(-1)).squeeze(-1) - torch.logsumexp(scaled, dim=-1)


def entropy_from_logits(logits: Tensor, temperature: float) -> Tensor:
    """Return the exact entropy of softmax(logits / temperature).

    H = -sum_v p_v log p_v

    The mean of -logprob over sampled tokens estimates the same value, but as a loss term its expected gradient is 0:
    only this one can be an entropy bonus.

    Args:
        logits: [..., V] raw scores, -inf where a token is impossible; carries the gradient.
        temperature: of the sampler, > 0.

    Returns:
        [...] entropies in nats, in [0, log V], float32 (float64 for float64 input).

    Raises:
        ValueError: temperature is not positive.
    """
    require_temperature(temperature)
    logprobs = torch.log_softmax(at_least_float32(logits) / temperature, dim=-1)
    finite = logprobs.clamp(min=torch.finfo(logprobs.dtype).min)
    return -(logprobs.exp() * finite).sum(dim=-1)
