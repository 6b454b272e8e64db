"""Numbers to watch of the optimiser steps on one rollout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from oncurve.algo import CLIPPED, ObjectiveSettings, clip_fractions, logprob_gap, ratio_stats
from oncurve.learner.policy_step import TokenRecord


@dataclass(frozen=True)
class StepRecord:
    """One optimiser step after it was taken."""

    tokens: TokenRecord
    logprobs: dict[int, Tensor]
    """[L] log-probs before the step, by ``Member.index``."""
    gap: dict[str, float]
    """Of the first step on a rollout; empty for later ones."""
    grad_norm: float
    lr: float


def update_metrics(records: Sequence[StepRecord], objective: ObjectiveSettings) -> dict[str, float]:
    """Summarise the optimiser steps of one rollout.

    Losses and the gradient norm (before clipping) are means over the steps; clip fractions, ratios and entropy are
    over all trained tokens, as each step found them; ``learner/lr`` is that of the last step; ``gap/...`` compares
    trainer and sampler before the first; ``tokens/trained`` counts the tokens in the steps.

    Args:
        records: at least one.
        objective: for the clip bounds.
    """
    tokens = [record.tokens for record in records]
    logprobs = torch.cat([part.logprobs for part in tokens])
    old_logprobs = torch.cat([part.old_logprobs for part in tokens])
    everywhere = torch.ones_like(logprobs, dtype=torch.bool)
    ratio = ratio_stats(logprobs, old_logprobs, everywhere)
    return {
        "loss/total": fmean(part.total for part in tokens),
        "loss/policy": fmean(part.policy for part in tokens),
        "loss/kl": fmean(part.kl for part in tokens),
        "grad/norm": fmean(record.grad_norm for record in records),
        "learner/lr": records[-1].lr,
        "entropy/mean": torch.cat([part.entropy for part in tokens]).double().mean().item(),
        **_clip_metrics(tokens, objective),
        "ratio/mean": ratio.mean,
        "ratio/min": ratio.min,
        "ratio/max": ratio.max,
        "tokens/trained": float(len(logprobs)),
        **records[0].gap,
    }


def _clip_metrics(tokens: Sequence[TokenRecord], objective: ObjectiveSettings) -> dict[str, float]:
    """Share of the trained tokens that the clip leaves without gradient, by side; empty for a loss without clip."""
    if objective.loss not in CLIPPED:
        return {}
    ratio = torch.cat([part.clip_ratio for part in tokens])
    in_log_space = objective.loss == "gmpo"
    clipped = clip_fractions(
        1 + ratio.log() if in_log_space else ratio,
        torch.cat([part.advantages for part in tokens]),
        torch.ones_like(ratio, dtype=torch.bool),
        clip_low=objective.clip_low,
        clip_high=objective.clip_high,
    )
    return {"clip/low": clipped.low, "clip/high": clipped.high}


def mean_metrics(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each metric over the rows that have it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: fmean(row[name] for row in rows if name in row) for name in names}


def gap_metrics(trainer: Mapping[int, Tensor], sampler: Mapping[int, Sequence[float]]) -> dict[str, float]:
    """Compare the log-probs of the same tokens and weights in the trainer and in the sampler.

    Args:
        trainer: [L] a completion.
        sampler: the same completions, as recorded.

    Returns:
        ``gap/mean_abs`` and ``gap/max_abs``, in nats a token.
    """
    ours = torch.cat([logprobs.double().cpu() for logprobs in trainer.values()])
    theirs = torch.tensor([value for index in trainer for value in sampler[index]], dtype=torch.float64)
    gap = logprob_gap(ours[None], theirs[None], torch.ones_like(ours[None], dtype=torch.bool))
    return {"gap/mean_abs": gap.mean_abs, "gap/max_abs": gap.max_abs}
