"""Which completions are worth imitating, and the loss that imitates them.

Shapes: P prompts, G completions a group, B completions, T positions.
"""

import torch
from torch import Tensor

from oncurve.algo import groups
from oncurve.algo.checks import at_least_float32, require_same_shape


def raft_selection(
    rewards: Tensor,
    *,
    threshold: float | None,
    best_of_group: bool = False,
    max_per_group: int | None = None,
    is_repeat: Tensor | None = None,
    scored: Tensor | None = None,
) -> Tensor:
    """Choose the completions to imitate: good enough, not a repetition, not too many of one prompt.

    The rules act in this order:

    1. reward >= threshold, and not a repetition
    2. the first that has the largest reward of its group (``best_of_group``)
    3. the first ``max_per_group``

    Without a limit easy prompts dominate, and without the look at repetitions the same answer is learned many times.

    Args:
        rewards: [P, G] float; G = 1 is fine, nothing is compared.
        threshold: least reward; None: any.
        best_of_group: keep one a group.
        max_per_group: most completions of a group, >= 1; None: no limit.
        is_repeat: [P, G] bool, True where an earlier member of the group says the same; None: all differ.
        scored: [P, G] bool, False where there is no verdict; such a completion is never chosen. None: all are scored.

    Returns:
        [P, G] bool.

    Raises:
        ValueError: max_per_group is below 1, a shape differs, or a scored reward is NaN or inf.

    Source:
        RAFT, arXiv:2304.06767; rejection sampling with a cap: arXiv:2308.01825.
    """
    values, valid = groups.checked_rewards(rewards, scored, smallest_group=1)
    if max_per_group is not None and max_per_group < 1:
        raise ValueError(f"max_per_group must be at least 1, got {max_per_group}: nothing would be imitated")
    chosen = valid if threshold is None else valid & (values >= threshold)
    if is_repeat is not None:
        require_same_shape(rewards=rewards, is_repeat=is_repeat)
        chosen = chosen & ~is_repeat
    if best_of_group:
        best = values.masked_fill(~chosen, -torch.inf).amax(dim=1, keepdim=True)
        chosen = _first(chosen & (values == best), 1)
    return chosen if max_per_group is None else _first(chosen, max_per_group)


def mean_nll(logprobs: Tensor, loss_mask: Tensor, selected: Tensor | None = None) -> Tensor:
    """Return the mean of -logprobs over the tokens of the selected completions.

    It is the loss of supervised fine-tuning, and of RAFT over what ``raft_selection`` chose: a policy gradient with
    advantages 1 and 0.

    Args:
        logprobs: [B, T] of the policy being trained; carries the gradient.
        loss_mask: [B, T] bool; other positions may hold anything.
        selected: [B] bool; None takes all.

    Returns:
        A scalar in nats a token; 0 when no token is selected.

    Raises:
        ValueError: the shapes do not fit.
    """
    require_same_shape(logprobs=logprobs, loss_mask=loss_mask)
    mask = loss_mask
    if selected is not None:
        require_same_shape(selected=selected, rows=loss_mask[:, 0])
        mask = loss_mask & selected[:, None]
    return -torch.where(mask, at_least_float32(logprobs), 0.0).sum() / mask.sum().clamp(min=1)


def _first(chosen: Tensor, count: int) -> Tensor:
    """Return the first ``count`` True entries of each row."""
    return chosen & (chosen.cumsum(dim=1) <= count)
