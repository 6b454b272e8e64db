"""Normalise to mean 0 and variance 1 over valid entries."""

import torch
from torch import Tensor

from oncurve.algo.checks import require_same_shape


def whiten(values: Tensor, mask: Tensor, *, ddof: int, eps: float, shift_mean: bool = True) -> Tensor:
    """Return (x - mean) / sqrt(var + eps) over the valid entries of the whole tensor.

    Args:
        values: any shape.
        mask: same shape, bool; entries outside may hold anything.
        ddof: the variance divides by n - ddof.
        eps: added to the variance, inside the root.
        shift_mean: False adds the mean back, so that only the scale changes.

    Returns:
        Same shape, 0 outside the mask. No gradient.

    Raises:
        ValueError: the shapes differ, or there are at most ddof valid entries.

    Source:
        Common practice of PPO implementations for advantages.
    """
    require_same_shape(values=values, mask=mask)
    count = int(mask.sum())
    if count <= ddof:
        raise ValueError(f"whitening with ddof {ddof} needs more than {ddof} valid entries, got {count}")
    valid = torch.where(mask, values.detach(), 0.0)
    mean = valid.sum() / count
    centred = torch.where(mask, valid - mean, 0.0)
    scaled = centred / (centred.square().sum() / (count - ddof) + eps).sqrt()
    return scaled if shift_mean else torch.where(mask, scaled + mean, 0.0)
