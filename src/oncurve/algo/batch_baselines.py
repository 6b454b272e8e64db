"""Advantages whose baseline or scale comes from the whole batch: here one group does influence another.

Shapes: P prompts, G completions a group, K reward components. ``scored`` is [P, G] bool, False where there is no
verdict; None means all are scored. Unscored members are outside every statistic and get exactly 0. Results are [P, G]
in the dtype of the rewards, without gradient.
"""

from typing import Literal

import torch
from torch import Tensor

from oncurve.algo import groups


def batch_std_advantages(
    rewards: Tensor,
    *,
    ddof: int,
    std_eps: float,
    std_of: Literal["rewards", "centered"],
    tolerance: float = 1e-6,
    scored: Tensor | None = None,
) -> Tensor:
    """Return (r - mean of the group) / (std of the batch + std_eps); exactly 0 in a group that carries no signal.

    Args:
        rewards: [P, G] float.
        ddof: the variance divides by the scored members of the batch - ddof.
        std_eps: added to the std.
        std_of: ``rewards``, whose std includes the spread between prompts, or rewards ``centered`` in their group.
        tolerance: largest span of an all-equal group, in units of reward.
        scored: [P, G] bool, see the head of this file.

    Raises:
        ValueError: as ``group_advantages``.

    Source:
        Lite PPO, arXiv:2508.08221.
    """
    values, valid = groups.checked_rewards(rewards, scored)
    silent = groups.span(values, valid) <= tolerance
    centred = groups.silenced(groups.centred(values, valid), valid, silent)
    std = _batch_std(values if std_of == "rewards" else centred, valid, ddof=ddof)
    return groups.silenced(centred / (std + std_eps), valid, silent).to(rewards.dtype)


def batch_loo_advantages(rewards: Tensor, *, tolerance: float = 1e-6, scored: Tensor | None = None) -> Tensor:
    """Return r minus the mean of all *other* completions of the batch, whatever their prompt.

    It works with groups of one. No baseline contains its own reward, so it is unbiased, but it mixes the difficulties
    of the prompts: not centred in a group, so an all-right group among harder ones gets positive advantages. Exactly 0
    when the whole batch is equal, or holds fewer than two scored members.

    Args:
        rewards: [P, G] float, G >= 1.
        tolerance: largest span of an all-equal batch.
        scored: [P, G] bool, see the head of this file.

    Raises:
        ValueError: rewards is not a float [P, G], ``scored`` has another shape, or a scored reward is NaN or inf.

    Source:
        REINFORCE with a leave-one-out baseline, arXiv:2402.14740, over the batch instead of the group.
    """
    values, valid = groups.checked_rewards(rewards, scored, smallest_group=1)
    count = valid.sum()
    advantages = torch.where(valid, values - values.sum() / count, 0.0) * count / (count - 1)
    return groups.silenced(advantages, valid, _batch_is_silent(values, valid, tolerance)).to(rewards.dtype)


def shrink_advantages(
    rewards: Tensor, *, shrinkage: float, tolerance: float = 1e-6, scored: Tensor | None = None
) -> Tensor:
    """Return r minus a mixture of the others of the own group and of the other groups.

        b = (1 - shrinkage) * mean of the others of the group + shrinkage * mean over the other groups of their means

    Neither part contains the completion itself, so b is unbiased for a shrinkage that does not depend on the rewards.
    With shrinkage > 0 it is not centred in a group: an all-right group among harder ones gets positive advantages. A
    member without a scored sibling gets exactly 0; a group without scored company is left to its own part alone.

    Args:
        rewards: [P, G] float.
        shrinkage: in [0, 1]; 0 is ``rloo``.
        tolerance: largest span of an all-equal group, and of an all-equal batch.
        scored: [P, G] bool, see the head of this file.

    Raises:
        ValueError: shrinkage is outside [0, 1], or as ``group_advantages``.

    Source:
        James-Stein shrinkage of the baseline, arXiv:2511.03710, with a fixed weight.
    """
    if not 0 <= shrinkage <= 1:
        raise ValueError(f"shrinkage must be in [0, 1], got {shrinkage}: 0 is the own group alone, 1 the others alone")
    values, valid = groups.checked_rewards(rewards, scored)
    count = valid.sum(dim=1, keepdim=True)
    own = groups.centred(values, valid) * count / (count - 1)
    own = groups.silenced(own, valid, groups.span(values, valid) <= tolerance)
    seen = count > 0
    means = torch.where(seen, groups.mean(values, valid), 0.0)
    company = (means.sum() - means) / (seen.sum() - seen.long())
    abroad = torch.where(company.isfinite(), values - company, own)
    abroad = groups.silenced(abroad, valid, _batch_is_silent(values, valid, tolerance))
    mixed = (1 - shrinkage) * own + shrinkage * abroad
    return groups.silenced(mixed, valid, valid.sum(dim=1) < 2).to(rewards.dtype)


def gdpo_advantages(
    rewards: Tensor,
    weights: Tensor,
    *,
    ddof: int,
    std_eps: float,
    tolerance: float = 1e-6,
    scored: Tensor | None = None,
) -> Tensor:
    """Normalise each reward component in its group, add them up, then normalise over the batch.

        z_k = (r_k - mean of the group) / (std of the group + std_eps);  a = sum over k of w_k z_k
        A = (a - mean of the batch) / (std of the batch + std_eps)

    So a weight says how much a component counts whatever its units, and (1, 0) and (0, 1) stay different. A component
    that is constant in a group counts 0 there; a group in which all are constant gets exactly 0.

    Args:
        rewards: [P, G, K] float, one value a component.
        weights: [K] float.
        ddof: both variances divide by n - ddof.
        std_eps: added to both stds.
        tolerance: largest span of a component that is constant in a group.
        scored: [P, G] bool, see the head of this file.

    Returns:
        [P, G] advantages.

    Raises:
        ValueError: rewards is not [P, G, K] with K the length of weights, or as ``group_advantages``.

    Source:
        GDPO, arXiv:2601.05242.
    """
    if rewards.ndim != 3 or rewards.shape[2:] != weights.shape:
        raise ValueError(
            f"rewards must be [P, G, K] with one weight a component, got {list(rewards.shape)} and "
            f"{list(weights.shape)} weights"
        )
    total = rewards.new_zeros(rewards.shape[:2], dtype=torch.float64)
    silent = torch.ones(len(rewards), dtype=torch.bool, device=rewards.device)
    for component, weight in zip(rewards.unbind(dim=2), weights.tolist(), strict=True):
        values, valid = groups.checked_rewards(component, scored)
        total += weight * groups.zscores(values, valid, ddof=ddof, std_eps=std_eps, tolerance=tolerance)
        silent &= groups.span(values, valid) <= tolerance
    std = _batch_std(total, valid, ddof=ddof)
    centred = total - total.sum() / valid.sum()
    return groups.silenced(centred / (std + std_eps), valid, silent).to(rewards.dtype)


def _batch_std(values: Tensor, valid: Tensor, *, ddof: int) -> Tensor:
    """Return the std over all valid entries, dividing by n - ddof."""
    return groups.std(values.view(1, -1), valid.view(1, -1), ddof=ddof).squeeze()


def _batch_is_silent(values: Tensor, valid: Tensor, tolerance: float) -> Tensor:
    """Return [1] bool: are all valid entries equal, or fewer than two of them?"""
    return groups.span(values.view(1, -1), valid.view(1, -1)) <= tolerance
