"""Rewards, lengths and versions of a batch of groups, to watch while training.

Shapes: B completions, P prompts, G completions a group.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oncurve.algo.advantage import is_zero_variance
from oncurve.algo.checks import require_same_shape


@dataclass(frozen=True)
class GroupStats:
    """What the groups of a batch look like. Fractions are of the groups with a scored member."""

    zero_variance: float
    all_right: float
    all_wrong: float
    mean_std: float
    """Mean over groups with two scored members of the sample std (ddof 1)."""
    mean_reward: float
    """Over all scored members."""


def group_stats(
    rewards: Tensor, *, tolerance: float, lowest: float = 0.0, highest: float = 1.0, scored: Tensor | None = None
) -> GroupStats:
    """Summarise the task rewards of a batch of groups.

    Args:
        rewards: [P, G] float task rewards, before any shaping.
        tolerance: rewards this close count as equal.
        lowest: reward of a wrong answer.
        highest: reward of a right answer.
        scored: [P, G] bool, False where there is no verdict; None means all are scored.

    Raises:
        ValueError: as ``group_advantages``, or no member at all is scored.
    """
    silent = is_zero_variance(rewards, tolerance=tolerance, scored=scored)
    valid = torch.ones_like(rewards, dtype=torch.bool) if scored is None else scored
    count = valid.sum(dim=1)
    if not bool(valid.any()):
        raise ValueError("no reward is scored: there is nothing to summarise")
    values = torch.where(valid, rewards.detach().double(), 0.0)
    mean = values.sum(dim=1) / count.clamp(min=1)
    squares = torch.where(valid, values - mean[:, None], 0.0).square().sum(dim=1)
    std = (squares / (count - 1).clamp(min=1)).sqrt()[count > 1]
    seen = count > 0
    return GroupStats(
        zero_variance=_share(silent[seen]),
        all_right=_share(((values >= highest - tolerance) | ~valid).all(dim=1)[seen]),
        all_wrong=_share(((values <= lowest + tolerance) | ~valid).all(dim=1)[seen]),
        mean_std=std.mean().item() if len(std) else 0.0,
        mean_reward=values[valid].mean().item(),
    )


@dataclass(frozen=True)
class LengthStats:
    """Lengths in tokens, the terminator included. None where no completion qualifies."""

    mean: float
    p10: float
    p50: float
    p90: float
    max: float
    truncated_frac: float
    advantage_correlation: float | None
    """Pearson correlation of length and advantage; None when either is constant."""
    mean_correct: float | None
    mean_wrong: float | None


def length_stats(lengths: Tensor, advantages: Tensor, is_truncated: Tensor, is_correct: Tensor) -> LengthStats:
    """Summarise how long completions are, and whether length pays.

    Args:
        lengths: [B] tokens of each completion.
        advantages: [B].
        is_truncated: [B] bool, True when no terminator was sampled (not when the length equals the limit).
        is_correct: [B] bool.

    Raises:
        ValueError: the shapes differ or the batch is empty.
    """
    require_same_shape(lengths=lengths, advantages=advantages, is_truncated=is_truncated, is_correct=is_correct)
    if len(lengths) == 0:
        raise ValueError("lengths must be a non-empty [B]: there is no completion to summarise")
    tokens = lengths.detach().double()
    p10, p50, p90 = torch.quantile(tokens, tokens.new_tensor([0.1, 0.5, 0.9])).tolist()
    return LengthStats(
        mean=tokens.mean().item(),
        p10=p10,
        p50=p50,
        p90=p90,
        max=tokens.max().item(),
        truncated_frac=_share(is_truncated),
        advantage_correlation=_correlation(tokens, advantages.detach().double()),
        mean_correct=_mean_or_none(tokens[is_correct]),
        mean_wrong=_mean_or_none(tokens[~is_correct]),
    )


@dataclass(frozen=True)
class Staleness:
    """How old the weights are that sampled the tokens, in optimiser steps."""

    mean_token_lag: float
    max_lag: int
    mean_oldest_lag: float
    """Mean over sequences of the lag of their oldest token."""
    over_limit_frac: float
    """Share of sequences whose oldest token lags more than the limit."""
    mixed_version_frac: float
    """Share of sequences sampled by more than one version."""


def staleness(trainer_version: int, token_versions: Sequence[Sequence[int]], *, limit: int) -> Staleness:
    """Summarise the lag of a batch: trainer version minus the version that sampled each token.

    Args:
        trainer_version: optimiser steps behind the weights being trained.
        token_versions: per sequence, the version of each token.
        limit: largest lag that is still fine.

    Raises:
        ValueError: the batch or a sequence is empty.
    """
    if not token_versions or not all(token_versions):
        raise ValueError("token_versions needs at least one sequence, and each sequence at least one token")
    lags = [trainer_version - version for versions in token_versions for version in versions]
    oldest = [trainer_version - min(versions) for versions in token_versions]
    return Staleness(
        mean_token_lag=sum(lags) / len(lags),
        max_lag=max(lags),
        mean_oldest_lag=sum(oldest) / len(oldest),
        over_limit_frac=sum(lag > limit for lag in oldest) / len(oldest),
        mixed_version_frac=sum(len(set(versions)) > 1 for versions in token_versions) / len(token_versions),
    )


def _share(flags: Tensor) -> float:
    return flags.double().mean().item()


def _mean_or_none(values: Tensor) -> float | None:
    return values.mean().item() if len(values) else None


def _correlation(left: Tensor, right: Tensor) -> float | None:
    left, right = left - left.mean(), right - right.mean()
    scale = (left.square().sum() * right.square().sum()).sqrt()
    return (left @ right / scale).item() if scale > 0 else None
