"""REINFORCE++: advantages whitened over all tokens of the batch, so one sequence does influence another.

Shapes: P prompts, G completions a group, B sequences, T positions.
"""

import torch
from torch import Tensor

from oncurve.algo import groups
from oncurve.algo.checks import require_same_shape
from oncurve.algo.kl import rewards_to_go
from oncurve.algo.whiten import whiten


def reinforce_pp_advantages(
    token_rewards: Tensor, loss_mask: Tensor, *, gamma: float = 1.0, ddof: int = 0, var_floor: float = 1e-8
) -> Tensor:
    """Return the whitened rewards-to-go of each token; there is no baseline but the mean of the batch.

        R_t = sum over s >= t of gamma^(s - t) r_s
        A = (R - mu) / sqrt(max(var, var_floor))      mu and var over all tokens of the batch

    Not centred in a group: an all-right group among harder ones gets positive advantages. Exactly 0 when all R are
    equal.

    Args:
        token_rewards: [B, T], of ``kl_token_rewards``: the reward on the last token, the KL on every one.
        loss_mask: [B, T] bool; other positions may hold anything and are stepped over without discount.
        gamma: discount a token, in [0, 1].
        ddof: the variance divides by the number of tokens - ddof.
        var_floor: least variance, in squared units of reward.

    Returns:
        [B, T] advantages in the dtype of ``token_rewards``, 0 outside the mask. No gradient.

    Raises:
        ValueError: the shapes differ, gamma is outside [0, 1], or there are at most ddof tokens.

    Source:
        REINFORCE++, arXiv:2501.03262.
    """
    returns = rewards_to_go(token_rewards.detach().double(), loss_mask, gamma=gamma)
    return whiten(returns, loss_mask, ddof=ddof, eps=0.0, var_floor=var_floor).to(token_rewards.dtype)


def reinforce_pp_baseline_advantages(
    rewards: Tensor,
    lengths: Tensor,
    *,
    ddof: int = 0,
    var_floor: float = 1e-8,
    tolerance: float = 1e-6,
    scored: Tensor | None = None,
) -> Tensor:
    """Return c = r - mean of the group, whitened over all tokens of the batch: each c counts once a token.

    Long completions dominate the mean mu, which is not 0 when lengths go with rewards. Then a group without signal,
    whose c are exactly 0, gets -mu / std: all of its completions are pushed one way. Leave such groups out of the step,
    or use ``batch_std_advantages``.

    Args:
        rewards: [P, G] float.
        lengths: [P, G] trained tokens.
        ddof: the variance divides by the number of tokens - ddof.
        var_floor: least variance, in squared units of reward.
        tolerance: largest span of an all-equal group.
        scored: [P, G] bool, False where there is no verdict; None means all are scored. Unscored members, and one whose
            siblings are all unscored, are outside every statistic and get exactly 0.

    Returns:
        [P, G] advantages in the dtype of ``rewards``; exactly 0 when every group is all-equal. No gradient.

    Raises:
        ValueError: the shapes differ, there are at most ddof tokens, or as ``group_advantages``.

    Source:
        REINFORCE++ with a group baseline, arXiv:2501.03262.
    """
    require_same_shape(rewards=rewards, lengths=lengths)
    values, valid = groups.checked_rewards(rewards, scored)
    valid = valid & (valid.sum(dim=1, keepdim=True) >= 2)
    silent = groups.span(values, valid) <= tolerance
    centred = groups.silenced(groups.centred(values, valid), valid, silent)
    counts = torch.where(valid, lengths, 0)
    return whiten(centred, counts, ddof=ddof, eps=0.0, var_floor=var_floor).to(rewards.dtype)
