"""Advantages that train the best of k attempts instead of a single one; one group never influences another.

Shapes: P prompts, G completions a group. ``scored`` is [P, G] bool, False where there is no verdict; None means all are
scored. n counts the scored members of a group: unscored ones are outside every statistic and get exactly 0. A group
with n < k has no k attempts to judge: it gets 0. Results are [P, G] in the dtype of the rewards, without gradient.
"""

from math import comb, sqrt
from typing import Literal

import torch
from torch import Tensor

from oncurve.algo import groups
from oncurve.algo.group_variants import require_binary

SubsetBaseline = Literal["plain", "loo1"]


def passk_advantages(correct: Tensor, *, k: int, std_eps: float = 1e-6, scored: Tensor | None = None) -> Tensor:
    """Return the advantages that train pass@k: the mean over all k-subsets of the subset's own advantage.

    With c of n right, p = 1 - C(n-c, k) / C(n, k) and sd = sqrt(p (1 - p)): a right one gets (1 - p) / (sd + std_eps),
    a wrong one (1 - p - C(n-c-1, k-1) / C(n-1, k-1)) / (sd + std_eps). 0 once every k-subset holds a right one.

    Args:
        correct: [P, G] float, each 0 or 1.
        k: attempts, 1 <= k <= G.
        std_eps: added to sd.
        scored: [P, G] bool, see the head of this file.

    Raises:
        ValueError: a scored value is neither 0 nor 1, or k is not in 1..G.

    Source:
        arXiv:2508.10751.
    """
    values, valid = groups.checked_rewards(correct, scored)
    require_binary(values)
    _require_attempts(k, values.shape[1], smallest=1)
    gains = [
        _passk_gains(int(right), int(count), k, std_eps)
        for right, count in zip(values.sum(dim=1).tolist(), valid.sum(dim=1).tolist(), strict=True)
    ]
    right_gain, wrong_gain = values.new_tensor(gains).unsqueeze(1).unbind(dim=2)
    advantages = torch.where(values > 0, right_gain, wrong_gain)
    return groups.silenced(advantages, valid, groups.span(values, valid) == 0).to(correct.dtype)


def _passk_gains(right: int, count: int, k: int, std_eps: float) -> tuple[float, float]:
    """Return what a right and what a wrong one of ``count`` gets."""
    wrong = count - right
    if not k <= wrong < count:  # no k-subset fails, or all do, or there is none
        return 0.0, 0.0
    miss = comb(wrong, k) / comb(count, k)
    scale = sqrt(miss * (1 - miss)) + std_eps
    return miss / scale, (miss - comb(wrong - 1, k - 1) / comb(count - 1, k - 1)) / scale


def pkpo_advantages(rewards: Tensor, *, k: int, baseline: SubsetBaseline, scored: Tensor | None = None) -> Tensor:
    """Return the weights s that make the expected gradient of -sum_i s_i log pi(o_i) that of the best of k.

    - ``plain``: s_i = sum over the k-subsets S that hold i of max_S r, over C(n, k)
    - ``loo1``: the same of max_S r - max_(S without i) r, at a lower variance

    In ascending order of the rewards both are sums with binomial weights, so nothing is enumerated:

        plain: s_i = (C(i, k-1) r_i + sum over j > i of C(j-1, k-2) r_j) / C(n, k)
        loo1:  s_i = (sum over j < i of C(j, k-2) (r_i - r_j)) / C(n, k)

    Sum over the group, do not average. ``plain`` has no baseline: an all-equal group pushes all of its members by k / n
    of their reward. ``loo1`` is never negative, and exactly 0 in an all-equal group.

    Args:
        rewards: [P, G] float, any real rewards.
        k: attempts; 1 <= k <= G for ``plain``, 2 <= k <= G for ``loo1``. Annealing it to 1 ends at the mean reward.
        baseline: which of the two.
        scored: [P, G] bool, see the head of this file.

    Raises:
        ValueError: k does not fit the group or the baseline, or as ``group_advantages``.

    Source:
        PKPO, arXiv:2505.15201.
    """
    values, valid = groups.checked_rewards(rewards, scored)
    _require_attempts(k, values.shape[1], smallest=1 if baseline == "plain" else 2)
    weigh = _plain_weights if baseline == "plain" else _leave_one_out_weights
    advantages = torch.zeros_like(values)
    for row, members in enumerate(valid):
        if int(members.sum()) >= k:
            advantages[row, members] = weigh(values[row, members], k)
    return advantages.to(rewards.dtype)


def _plain_weights(rewards: Tensor, k: int) -> Tensor:
    """Return [n] weights of [n] rewards."""
    ordered, order = rewards.sort()
    count = len(rewards)
    as_best = ordered * ordered.new_tensor(_shares(range(count), k - 1, k))
    beaten = ordered * ordered.new_tensor(_shares(range(-1, count - 1), k - 2, k))
    above = beaten.flip(0).cumsum(0).flip(0) - beaten
    return torch.empty_like(rewards).scatter(0, order, as_best + above)


def _leave_one_out_weights(rewards: Tensor, k: int) -> Tensor:
    """Return [n] weights of [n] rewards: differences to all lower ones, so that equal rewards give exactly 0."""
    ordered, order = rewards.sort()
    lead = (ordered[:, None] - ordered[None, :]).clamp(min=0.0)
    shares = ordered.new_tensor(_shares(range(len(rewards)), k - 2, k))
    return torch.empty_like(rewards).scatter(0, order, lead @ shares)


def _shares(pools: range, chosen: int, k: int) -> list[float]:
    """Return C(pool, chosen) / C(n, k) for each of the n pools; 0 where nothing can be chosen."""
    subsets = comb(len(pools), k)
    return [comb(pool, chosen) / subsets if pool >= 0 and chosen >= 0 else 0.0 for pool in pools]


def top_gap_advantages(
    rewards: Tensor, *, ddof: int, std_eps: float, tolerance: float = 1e-6, scored: Tensor | None = None
) -> Tensor:
    """Give only the best completion an advantage: (best - second best) / (std + std_eps); 0 on a tie at the top.

    Args:
        rewards: [P, G] float.
        ddof: the variance divides by n - ddof.
        std_eps: added to the std.
        tolerance: largest span of an all-equal group.
        scored: [P, G] bool, see the head of this file.

    Raises:
        ValueError: as ``group_advantages``.

    Source:
        arXiv:2503.19595.
    """
    values, valid = groups.checked_rewards(rewards, scored)
    top = values.masked_fill(~valid, -torch.inf).topk(2, dim=1)
    gap = (top.values[:, :1] - top.values[:, 1:]) / (groups.std(values, valid, ddof=ddof) + std_eps)
    only_best = torch.zeros_like(values).scatter(1, top.indices[:, :1], gap)
    return groups.silenced(only_best, valid, groups.span(values, valid) <= tolerance).to(rewards.dtype)


def _require_attempts(k: int, group_size: int, *, smallest: int) -> None:
    if not smallest <= k <= group_size:
        raise ValueError(
            f"this estimator needs {smallest} <= k <= group_size, got k = {k} with {group_size} completions a group"
        )
