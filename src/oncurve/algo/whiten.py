"""Normalise to mean 0 and variance 1 over valid entries."""

import torch
from torch import Tensor

from oncurve.algo.checks import require_same_shape


def whiten(
    values: Tensor, counts: Tensor, *, ddof: int, eps: float, var_floor: float = 0.0, shift_mean: bool = True
) -> Tensor:
    """Return (x - mean) / sqrt(max(var + eps, var_floor)) over the valid entries of the whole tensor.

    Equal entries become exactly 0: their rounding is no signal. With several workers gather the entries first, the
    statistics are those of the whole batch.

    Args:
        values: any shape.
        counts: same shape; a bool mask, or how often each entry counts: [B] values of sequences, counted by their
            lengths, are whitened like their copies on every token. Entries that count 0 may hold anything.
        ddof: the variance divides by n - ddof, with n the sum of the counts.
        eps: added to the variance, inside the root.
        var_floor: least variance plus eps.
        shift_mean: False adds the mean back, so that only the scale changes.

    Returns:
        Same shape and dtype as ``values``, 0 where nothing is counted; the arithmetic is float64. No gradient.

    Raises:
        ValueError: the shapes differ, or the counts sum to at most ddof.

    Source:
        Common practice of PPO implementations for advantages.
    """
    require_same_shape(values=values, counts=counts)
    times, valid = counts.double(), counts > 0
    total = times.sum()
    if total <= ddof:
        raise ValueError(f"whitening with ddof {ddof} needs more than {ddof} valid entries, got {int(total)}")
    known = torch.where(valid, values.detach().double(), 0.0)
    mean = (times * known).sum() / total
    centred = torch.where(valid, known - mean, 0.0)
    var = (times * centred.square()).sum() / (total - ddof)
    is_equal = known[valid].amin() == known[valid].amax()
    scaled = (centred / (var + eps).clamp(min=var_floor).sqrt()).masked_fill(is_equal, 0.0)
    return (scaled if shift_mean else torch.where(valid, scaled + mean, 0.0)).to(values.dtype)
