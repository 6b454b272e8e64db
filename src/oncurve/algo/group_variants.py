"""Other ways to turn the rewards of a group into advantages.

Shapes: P prompts, G completions a group, all of them scored. A group without signal gets exactly 0.
"""

from math import comb, sqrt
from typing import Literal

import torch
from torch import Tensor

from oncurve.algo.advantage import is_zero_variance
from oncurve.algo.checks import require_same_shape


def length_weighted_advantages(rewards: Tensor, lengths: Tensor, *, tolerance: float = 1e-6) -> Tensor:
    """Return r - sum(L r) / sum(L): a baseline that weighs completions by their length.

    It has the least variance when squared gradient norms grow with length, and needs exactly on-policy data.

    Args:
        rewards: [P, G] float.
        lengths: [P, G] trained tokens, > 0.
        tolerance: largest span of an all-equal group.

    Raises:
        ValueError: the shapes differ, or as ``group_advantages``.

    Source:
        OPO, arXiv:2505.23585.
    """
    require_same_shape(rewards=rewards, lengths=lengths)
    tokens = lengths.to(rewards.dtype)
    baseline = (tokens * rewards).sum(dim=1, keepdim=True) / tokens.sum(dim=1, keepdim=True)
    return _silenced(rewards - baseline, rewards, tolerance)


def batch_std_advantages(
    rewards: Tensor, *, ddof: int, std_eps: float, std_of: Literal["rewards", "centered"], tolerance: float = 1e-6
) -> Tensor:
    """Return (r - mean of the group) / (std of the batch + std_eps).

    Args:
        rewards: [P, G] float.
        ddof: the variance divides by P * G - ddof.
        std_eps: added to the std.
        std_of: ``rewards``, whose std includes the spread between prompts, or rewards ``centered`` in their group.
        tolerance: largest span of an all-equal group.

    Raises:
        ValueError: as ``group_advantages``.

    Source:
        Lite PPO, arXiv:2508.08221.
    """
    centred = _silenced(rewards - rewards.mean(dim=1, keepdim=True), rewards, tolerance)
    std = (rewards if std_of == "rewards" else centred).std(correction=ddof)
    return _silenced(centred / (std + std_eps), rewards, tolerance)


def maxrl_advantages(rewards: Tensor, *, mean_eps: float = 1e-6, tolerance: float = 1e-6) -> Tensor:
    """Return (r - mean) / (mean + mean_eps): each group weighs by how rarely it succeeds.

    With the mean over the group the expected gradient is the sum over k of (1/k) times the gradient of pass@k.

    Args:
        rewards: [P, G] float, each 0 or 1.
        mean_eps: added to the mean.
        tolerance: largest span of an all-equal group.

    Raises:
        ValueError: a reward is neither 0 nor 1 (a negative mean would turn the sign), or as ``group_advantages``.

    Source:
        MaxRL, arXiv:2602.02710.
    """
    _require_binary(rewards)
    mean = rewards.mean(dim=1, keepdim=True)
    return _silenced((rewards - mean) / (mean + mean_eps), rewards, tolerance)


def ngrpo_advantages(rewards: Tensor, *, max_reward: float, num_virtual: int, ddof: int, std_eps: float) -> Tensor:
    """Return z-scores whose statistics include num_virtual virtual completions with the largest reward.

    All-wrong groups push every completion down, so watch the entropy. An all-right group still gets exactly 0.

    Args:
        rewards: [P, G] float.
        max_reward: the largest possible reward.
        num_virtual: virtual completions a group.
        ddof: the variance divides by G + num_virtual - ddof.
        std_eps: added to the std.

    Raises:
        ValueError: as ``group_advantages``.

    Source:
        NGRPO, arXiv:2509.18851.
    """
    virtual = rewards.new_full((len(rewards), num_virtual), max_reward)
    everyone = torch.cat([rewards, virtual], dim=1)
    mean = everyone.mean(dim=1, keepdim=True)
    std = everyone.std(dim=1, keepdim=True, correction=ddof)
    return _silenced((rewards - mean) / (std + std_eps), everyone, 1e-6)


def passk_advantages(correct: Tensor, *, k: int, std_eps: float = 1e-6) -> Tensor:
    """Return the advantages that train pass@k: the mean over all k-subsets of the subset's own advantage.

    With c of n right, p = 1 - C(n-c, k) / C(n, k) and sd = sqrt(p (1 - p)): a right one gets (1 - p) / (sd + std_eps),
    a wrong one (1 - p - C(n-c-1, k-1) / C(n-1, k-1)) / (sd + std_eps). 0 once every k-subset holds a right one.

    Args:
        correct: [P, G] float, each 0 or 1.
        k: attempts, 1 <= k <= G.
        std_eps: added to sd.

    Raises:
        ValueError: a value is neither 0 nor 1, or k is not in 1..G.

    Source:
        arXiv:2508.10751.
    """
    _require_binary(correct)
    size = correct.shape[1]
    if not 1 <= k <= size:
        raise ValueError(f"pass@k needs 1 <= k <= group_size, got k = {k} with {size} completions a group")
    rows = []
    for row in correct:
        wrong = size - int(row.sum())
        miss = comb(wrong, k) / comb(size, k)
        scale = sqrt(miss * (1 - miss)) + std_eps
        wrong_gain = miss - (comb(wrong - 1, k - 1) / comb(size - 1, k - 1) if wrong else 0.0)
        rows.append([(miss if value > 0 else wrong_gain) / scale if 0 < miss < 1 else 0.0 for value in row.tolist()])
    return _silenced(correct.new_tensor(rows), correct, 0.0)


def top_gap_advantages(rewards: Tensor, *, ddof: int, std_eps: float, tolerance: float = 1e-6) -> Tensor:
    """Give only the best completion an advantage: (best - second best) / (std + std_eps); 0 on a tie at the top.

    Args:
        rewards: [P, G] float.
        ddof: the variance divides by G - ddof.
        std_eps: added to the std.
        tolerance: largest span of an all-equal group.

    Raises:
        ValueError: as ``group_advantages``.

    Source:
        arXiv:2503.19595.
    """
    top = rewards.topk(2, dim=1)
    gap = top.values[:, :1] - top.values[:, 1:]
    std = rewards.std(dim=1, keepdim=True, correction=ddof)
    only_best = torch.zeros_like(rewards).scatter(1, top.indices[:, :1], gap / (std + std_eps))
    return _silenced(only_best, rewards, tolerance)


def _silenced(advantages: Tensor, rewards: Tensor, tolerance: float) -> Tensor:
    """Set the groups without signal to exactly 0 and cut the gradient."""
    return advantages.detach().masked_fill(is_zero_variance(rewards, tolerance=tolerance)[:, None], 0.0)


def _require_binary(rewards: Tensor) -> None:
    if not bool(((rewards == 0) | (rewards == 1)).all()):
        raise ValueError("this estimator needs rewards of exactly 0 or 1: give it the task metric, not a shaped reward")
