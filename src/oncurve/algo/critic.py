"""What a critic minimises, and how good it is.

Shapes: any common shape, packed [N] or [B, T].
"""

import torch
from torch import Tensor

from oncurve.algo.checks import at_least_float32, require_same_shape


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, *, clip: float | None) -> Tensor:
    """Return the squared error of the critic, per token, with a clip around what it said before.

    0.5 * max((V - R)^2, (V_clip - R)^2)      V_clip = clip(V, V_old - clip, V_old + clip)

    The larger of the two: a value that has moved further than the clip, and nearer to its return, gets no more
    gradient; one that has moved away gets all of it.

    Args:
        values: of the critic being trained; carries the gradient.
        old_values: of the same tokens before the first step on this rollout.
        returns: targets, before any whitening.
        clip: how far a value may move for one rollout, in units of reward; None does not clip.

    Returns:
        Losses of the common shape, float32 or better. Their gradient is V - R, or 0 where clipped. Divide their sum by
        the number of tokens of the whole optimiser step.

    Raises:
        ValueError: the shapes differ, or clip is not positive.

    Source:
        Common practice of PPO implementations since OpenAI baselines.
    """
    error, clipped_error = _squared_errors(values, old_values, returns, clip)
    return 0.5 * torch.where(clipped_error > error, clipped_error, error)


def value_clip_fraction(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, *, clip: float | None
) -> float:
    """Return the share of the valid tokens whose gradient the clip of ``clipped_value_loss`` removes.

    Args:
        values: as for ``clipped_value_loss``.
        old_values: likewise.
        returns: likewise.
        mask: same shape, bool.
        clip: likewise; None gives 0.

    Raises:
        ValueError: the shapes differ, clip is not positive, or no token is valid.
    """
    require_same_shape(values=values, mask=mask)
    error, clipped_error = _squared_errors(values.detach(), old_values, returns, clip)
    if not bool(mask.any()):
        raise ValueError("the clip fraction of no token at all is not defined: check the mask")
    return (clipped_error > error)[mask].double().mean().item()


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor, *, tolerance: float = 1e-6) -> float | None:
    """Return how much of the spread of the returns the critic foresees.

    1 - Var(R - V) / Var(R)      over the valid tokens

    1 is perfect, 0 is what a constant achieves, and below 0 the critic adds noise. A constant error goes unseen.

    Args:
        values: of the critic.
        returns: what it should have said.
        mask: same shape, bool; other entries may hold anything.
        tolerance: largest max - min at which returns still count as equal, in units of reward.

    Returns:
        At most 1, without lower bound; None where the returns are all equal or there is none: nothing to foresee.

    Raises:
        ValueError: the shapes differ.

    Source:
        Common practice of PPO implementations.
    """
    require_same_shape(values=values, returns=returns, mask=mask)
    said, target = values.detach()[mask].double(), returns.detach()[mask].double()
    if len(target) == 0 or (target.max() - target.min()).item() <= tolerance:
        return None
    return 1 - ((target - said).var(correction=0) / target.var(correction=0)).item()


def _squared_errors(values: Tensor, old_values: Tensor, returns: Tensor, clip: float | None) -> tuple[Tensor, Tensor]:
    """Return (V - R)^2 and (V_clip - R)^2; without a clip they are the same."""
    require_same_shape(values=values, old_values=old_values, returns=returns)
    value = at_least_float32(values)
    target, before = returns.detach().to(value.dtype), old_values.detach().to(value.dtype)
    error = (value - target).square()
    if clip is None:
        return error, error
    if not clip > 0:
        raise ValueError(f"clip must be positive, got {clip}. None does not clip.")
    return error, (value.clamp(before - clip, before + clip) - target).square()
