"""Statistics over the scored members of each group, for every estimator that turns rewards into advantages.

Shapes: P prompts (groups), G completions a group. Everything runs in float64.
"""

import torch
from torch import Tensor

from oncurve.algo.checks import require_same_shape


def checked_rewards(rewards: Tensor, scored: Tensor | None, *, smallest_group: int = 2) -> tuple[Tensor, Tensor]:
    """Return the rewards in float64, unscored ones set to 0, and the mask of the scored ones.

    Args:
        rewards: [P, G] float rewards, finite wherever scored.
        scored: [P, G] bool, False where there is no verdict; None means all are scored.
        smallest_group: least G; 2 for an estimator whose baseline comes from the group itself.

    Raises:
        ValueError: rewards is not a float [P, G] with G >= smallest_group, ``scored`` has another shape, or a scored
            reward is NaN or inf.
    """
    if rewards.ndim != 2 or rewards.shape[1] < smallest_group or not rewards.is_floating_point():
        raise ValueError(
            f"rewards must be float [P, G] with G >= {smallest_group}, got {rewards.dtype} {list(rewards.shape)}. "
            "A group of one has no baseline: raise rollout.group_size."
        )
    valid = torch.ones_like(rewards, dtype=torch.bool) if scored is None else scored
    require_same_shape(rewards=rewards, scored=valid)
    values = torch.where(valid, rewards.detach().double(), 0.0)
    if not bool(torch.isfinite(values).all()):
        row, column = torch.nonzero(~torch.isfinite(values))[0].tolist()
        raise ValueError(
            f"rewards[{row}, {column}] is {values[row, column].item()}. "
            "A reward is finite; a completion without a verdict is marked False in scored."
        )
    return values, valid


def span(values: Tensor, valid: Tensor) -> Tensor:
    """Return [P] max - min over the valid members; 0 for a group with fewer than two of them.

    A span decides whether a group is all-equal. Its std does not: in float32 the std of equal rewards is rarely 0, and
    dividing by it makes signal out of rounding.
    """
    highest = values.masked_fill(~valid, -torch.inf).amax(dim=1)
    lowest = values.masked_fill(~valid, torch.inf).amin(dim=1)
    return torch.where(valid.sum(dim=1) >= 2, highest - lowest, 0.0)


def centred(values: Tensor, valid: Tensor) -> Tensor:
    """Return [P, G] values minus the mean of the valid members of their group; 0 for the others."""
    return torch.where(valid, values - mean(values, valid), 0.0)


def mean(values: Tensor, valid: Tensor) -> Tensor:
    """Return [P, 1] means over the valid members; NaN for a group without any."""
    return torch.where(valid, values, 0.0).sum(dim=1, keepdim=True) / valid.sum(dim=1, keepdim=True)


def std(values: Tensor, valid: Tensor, *, ddof: int) -> Tensor:
    """Return [P, 1] standard deviations over the n valid members, dividing by n - ddof; NaN or inf where n <= ddof."""
    squares = centred(values, valid).square().sum(dim=1, keepdim=True)
    return (squares / (valid.sum(dim=1, keepdim=True) - ddof)).sqrt()


def zscores(values: Tensor, valid: Tensor, *, ddof: int, std_eps: float, tolerance: float) -> Tensor:
    """Return [P, G] (value - mean) / (std + std_eps), exactly 0 in a group whose span is at most ``tolerance``."""
    scores = centred(values, valid) / (std(values, valid, ddof=ddof) + std_eps)
    return silenced(scores, valid, span(values, valid) <= tolerance)


def silenced(advantages: Tensor, valid: Tensor, silent: Tensor) -> Tensor:
    """Return the advantages, exactly 0 in silent groups [P] and for members that are not valid [P, G]."""
    return advantages.masked_fill(~valid | silent[:, None], 0.0)
