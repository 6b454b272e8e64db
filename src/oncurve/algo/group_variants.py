"""Other ways to turn the rewards of a group into advantages; one group never influences another.

Shapes: P prompts, G completions a group. ``scored`` is [P, G] bool, False where there is no verdict; None means all are
scored. Unscored members are outside every statistic and get exactly 0, and so does a group that carries no signal:
all-equal (max - min <= tolerance) or with fewer than two scored members. Results are [P, G] in the dtype of the
rewards, without gradient.
"""

import torch
from torch import Tensor

from oncurve.algo import groups
from oncurve.algo.checks import require_same_shape


def length_weighted_advantages(
    rewards: Tensor, lengths: Tensor, *, tolerance: float = 1e-6, scored: Tensor | None = None
) -> Tensor:
    """Return r - sum(L r) / sum(L): a baseline that weighs completions by their length.

    It has the least variance when squared gradient norms grow with length, and needs exactly on-policy data.

    Args:
        rewards: [P, G] float.
        lengths: [P, G] trained tokens, > 0 wherever scored.
        tolerance: largest span of an all-equal group, in units of reward.
        scored: [P, G] bool, see the head of this file.

    Raises:
        ValueError: the shapes differ, or as ``group_advantages``.

    Source:
        OPO, arXiv:2505.23585.
    """
    require_same_shape(rewards=rewards, lengths=lengths)
    values, valid = groups.checked_rewards(rewards, scored)
    tokens = torch.where(valid, lengths.double(), 0.0)
    baseline = (tokens * values).sum(dim=1, keepdim=True) / tokens.sum(dim=1, keepdim=True)
    silent = groups.span(values, valid) <= tolerance
    return groups.silenced(values - baseline, valid, silent).to(rewards.dtype)


def maxrl_advantages(
    rewards: Tensor, *, mean_eps: float = 1e-6, tolerance: float = 1e-6, scored: Tensor | None = None
) -> Tensor:
    """Return (r - mean) / (mean + mean_eps): each group weighs by how rarely it succeeds.

    With the mean over the group the expected gradient is the sum over k of (1/k) times the gradient of pass@k.

    Args:
        rewards: [P, G] float, each 0 or 1.
        mean_eps: added to the mean.
        tolerance: largest span of an all-equal group.
        scored: [P, G] bool, see the head of this file.

    Raises:
        ValueError: a scored reward is neither 0 nor 1 (a negative mean would turn the sign), or as
            ``group_advantages``.

    Source:
        MaxRL, arXiv:2602.02710.
    """
    values, valid = groups.checked_rewards(rewards, scored)
    require_binary(values)
    scaled = groups.centred(values, valid) / (groups.mean(values, valid) + mean_eps)
    return groups.silenced(scaled, valid, groups.span(values, valid) <= tolerance).to(rewards.dtype)


def ngrpo_advantages(
    rewards: Tensor,
    *,
    max_reward: float,
    num_virtual: int,
    ddof: int,
    std_eps: float,
    tolerance: float = 1e-6,
    scored: Tensor | None = None,
) -> Tensor:
    """Return z-scores whose statistics include num_virtual virtual completions with the largest reward.

    All-wrong groups push every completion down, so watch the entropy. A group in which all have the largest reward
    still gets exactly 0.

    Args:
        rewards: [P, G] float.
        max_reward: the largest possible reward.
        num_virtual: virtual completions a group.
        ddof: the variance divides by the scored members + num_virtual - ddof.
        std_eps: added to the std.
        tolerance: largest span, virtual ones included, of an all-equal group.
        scored: [P, G] bool, see the head of this file.

    Raises:
        ValueError: as ``group_advantages``.

    Source:
        NGRPO, arXiv:2509.18851.
    """
    values, valid = groups.checked_rewards(rewards, scored)
    virtual = values.new_full((len(values), num_virtual), max_reward)
    everyone = torch.cat([values, virtual], dim=1)
    counted = torch.cat([valid, torch.ones_like(virtual, dtype=torch.bool)], dim=1)
    scores = groups.zscores(everyone, counted, ddof=ddof, std_eps=std_eps, tolerance=tolerance)
    alone = valid.sum(dim=1) < 2
    return groups.silenced(scores[:, : values.shape[1]], valid, alone).to(rewards.dtype)


def difficulty_advantages(
    rewards: Tensor,
    *,
    ddof: int,
    std_eps: float,
    weight_min: float = 0.4,
    weight_max: float = 1.5,
    midpoint: float = 0.75,
    slope: float = 10.0,
    tolerance: float = 1e-6,
    scored: Tensor | None = None,
) -> Tensor:
    """Return z-scores in which right answers to hard prompts, and wrong answers to easy ones, weigh more.

        w(x) = weight_min + (weight_max - weight_min) / (1 + exp(slope * (x - midpoint)))
        A = z * w(p) for z > 0, z * w(1 - p) otherwise

    p is the pass rate: the share of scored members with a reward above 0. The rows no longer sum to 0.

    Args:
        rewards: [P, G] float; above 0 exactly where the answer is right.
        ddof: the variance of the z-score divides by n - ddof.
        std_eps: added to the std.
        weight_min: what a right answer tends to weigh on easy prompts.
        weight_max: what it tends to weigh on hard ones.
        midpoint: pass rate at which the weight is half-way.
        slope: steepness of the curve there.
        tolerance: largest span of an all-equal group.
        scored: [P, G] bool, see the head of this file.

    Raises:
        ValueError: as ``group_advantages``.

    Source:
        GRPO-LEAD, arXiv:2504.09696.
    """
    values, valid = groups.checked_rewards(rewards, scored)
    scores = groups.zscores(values, valid, ddof=ddof, std_eps=std_eps, tolerance=tolerance)
    pass_rate = groups.mean((values > 0).double(), valid)
    asked = torch.where(scores > 0, pass_rate, 1 - pass_rate)
    weight = weight_min + (weight_max - weight_min) * torch.sigmoid(slope * (midpoint - asked))
    return groups.silenced(scores * weight, valid, valid.sum(dim=1) < 2).to(rewards.dtype)


def require_binary(rewards: Tensor) -> None:
    """Refuse rewards other than 0 and 1.

    Raises:
        ValueError: a reward is neither.
    """
    if not bool(((rewards == 0) | (rewards == 1)).all()):
        raise ValueError("this estimator needs rewards of exactly 0 or 1: give it the task metric, not a shaped reward")
