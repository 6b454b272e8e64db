"""Rewards to advantages under any estimator.

Shapes: P prompts, G completions of the largest group, K reward components; B completions, T positions.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from oncurve.algo.advantage import group_advantages
from oncurve.algo.advantage_settings import AdvantageSettings
from oncurve.algo.batch_baselines import (
    batch_loo_advantages,
    batch_std_advantages,
    gdpo_advantages,
    shrink_advantages,
)
from oncurve.algo.credit import TokenCredit, generalized_advantages, length_adaptive_lambda
from oncurve.algo.group_variants import (
    difficulty_advantages,
    length_weighted_advantages,
    maxrl_advantages,
    ngrpo_advantages,
)
from oncurve.algo.pass_at_k import passk_advantages, pkpo_advantages, top_gap_advantages
from oncurve.algo.reinforce_pp import reinforce_pp_advantages, reinforce_pp_baseline_advantages
from oncurve.algo.selection import raft_selection
from oncurve.algo.whiten import whiten

WHITEN_EPS = 1e-8
"""Added to the variance of advantages that are whitened."""


@dataclass(frozen=True, kw_only=True)
class GradedRewards:
    """The rewards of a rollout, group by group."""

    rewards: Tensor
    """[P, G] float64, finite wherever scored."""
    scored: Tensor
    """[P, G] bool, False where there is no verdict."""
    lengths: Tensor
    """[P, G] tokens of the completions."""
    trained_lengths: Tensor
    """[P, G] those of them that are trained."""
    components: Tensor | None = None
    """[P, G, K] reward by component, for ``gdpo``."""
    component_weights: Tensor | None = None
    """[K]"""
    is_repeat: Tensor | None = None
    """[P, G] bool, the same tokens as an earlier member of the group, for ``raft``."""


def estimate_advantages(settings: AdvantageSettings, graded: GradedRewards) -> Tensor:
    """Give each completion its advantage, under an estimator that grades whole completions.

    Args:
        settings: the estimator and its numbers.
        graded: rewards of all groups of the rollout.

    Returns:
        [P, G] float64 advantages, before whitening and clipping; 0 where unscored. No gradient.

    Raises:
        ValueError: the estimator grades tokens, the rewards do not fit it, or something that it needs is missing.

    Source:
        Each estimator's own function; formulas and sources in docs/concepts/advantage.md.
    """
    rewards, scored, lengths = graded.rewards, graded.scored, graded.lengths
    std: dict[str, Any] = {"ddof": settings.ddof, "std_eps": settings.std_eps}
    spread: dict[str, Any] = {"tolerance": settings.tolerance, "scored": scored}
    match settings.estimator:
        case "group_zscore" | "group_mean" | "rloo":
            return group_advantages(rewards, settings, scored=scored)
        case "length_weighted":
            return length_weighted_advantages(rewards, lengths, **spread)
        case "batch_std":
            return batch_std_advantages(rewards, **std, std_of=settings.std_of, **spread)
        case "batch_loo":
            return batch_loo_advantages(rewards, **spread)
        case "shrink":
            return shrink_advantages(rewards, shrinkage=settings.shrinkage, **spread)
        case "reinforce_pp_baseline":
            return reinforce_pp_baseline_advantages(rewards, graded.trained_lengths, ddof=settings.ddof, **spread)
        case "maxrl":
            return maxrl_advantages(rewards, mean_eps=settings.std_eps, **spread)
        case "ngrpo":
            virtual: dict[str, Any] = {"max_reward": settings.max_reward, "num_virtual": settings.num_virtual}
            return ngrpo_advantages(rewards, **virtual, **std, **spread)
        case "pass_at_k":
            return passk_advantages(rewards, k=settings.k, std_eps=settings.std_eps, scored=scored)
        case "pkpo":
            baseline: Literal["plain", "loo1"] = "loo1" if settings.leave_one_out else "plain"
            return pkpo_advantages(rewards, k=settings.k, baseline=baseline, scored=scored)
        case "top_gap":
            return top_gap_advantages(rewards, **std, **spread)
        case "gdpo":
            if graded.components is None or graded.component_weights is None:
                raise ValueError("gdpo normalises each reward component: pass components and component_weights")
            return gdpo_advantages(graded.components, graded.component_weights, **std, **spread)
        case "difficulty":
            return difficulty_advantages(rewards, **std, **settings.difficulty.model_dump(), **spread)
        case "raft":
            return raft_selection(
                rewards,
                threshold=settings.threshold,
                best_of_group=settings.best_of_group,
                max_per_group=settings.max_per_group,
                is_repeat=graded.is_repeat,
                scored=scored,
            ).to(rewards.dtype)
        case _:
            raise ValueError(f"{settings.estimator} grades tokens, not completions: call token_advantages")


def token_advantages(
    settings: AdvantageSettings, token_rewards: Tensor, loss_mask: Tensor, values: Tensor | None = None
) -> TokenCredit:
    """Give each token its advantage, under an estimator that grades tokens.

    Args:
        settings: ``gae`` or ``reinforce_pp``, and its numbers.
        token_rewards: [B, T] from ``kl_token_rewards``: the reward on the last token, a KL penalty on every one.
        loss_mask: [B, T] bool, True where the policy chose the token.
        values: [B, T] of the critic; ``gae`` needs them.

    Returns:
        Advantages before whitening and clipping (those of ``reinforce_pp`` are whitened by definition), and what the
        critic should learn.

    Raises:
        ValueError: the estimator grades completions, or the values are missing.
    """
    if settings.estimator == "reinforce_pp":
        found = reinforce_pp_advantages(token_rewards, loss_mask, gamma=settings.gamma, ddof=settings.ddof)
        return TokenCredit(found, torch.zeros_like(found))
    if settings.estimator != "gae":
        raise ValueError(f"{settings.estimator} grades completions, not tokens: call estimate_advantages")
    if values is None:
        raise ValueError("gae needs the values of a critic")
    if settings.lam_alpha is None:
        return generalized_advantages(token_rewards, values, loss_mask, gamma=settings.gamma, lam=settings.lam)
    lam = length_adaptive_lambda(loss_mask.sum(dim=1), alpha=settings.lam_alpha)
    return generalized_advantages(token_rewards, values, loss_mask, gamma=settings.gamma, lam=lam, target_lam=1.0)


def finish_advantages(settings: AdvantageSettings, advantages: Tensor, counts: Tensor) -> Tensor:
    """Whiten over all trained tokens, then clip, as the settings say.

    y = (A - mu) / sqrt(var + 1e-8), mu and var (over n - ddof) of the tokens

    Args:
        settings: ``whiten``, ``ddof``, ``clip``.
        advantages: any shape.
        counts: same shape, trained tokens behind each entry: 1 or 0 for token advantages, lengths for those of
            completions. Entries with 0 stay as they are.

    Returns:
        Same shape, 0 where the count is 0. No gradient.
    """
    found = torch.where(counts > 0, advantages.detach(), 0.0)
    if settings.whiten and counts.sum() > settings.ddof:
        found = whiten(found, counts, ddof=settings.ddof, eps=WHITEN_EPS)
    return found if settings.clip is None else found.clamp(-settings.clip, settings.clip)
