"""Numbers to watch of the optimiser steps on one rollout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from oncurve.algo import ObjectiveSettings, clip_fractions, importance_ratio, logprob_gap, ratio_stats
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
    trainer and sampler before the first.

    Args:
        records: at least one.
        objective: for the clip bounds.
    """
    tokens = [record.tokens for record in records]
    logprobs = torch.cat([part.logprobs for part in tokens])
    old_logprobs = torch.cat([part.old_logprobs for part in tokens])
    everywhere = torch.ones_like(logprobs, dtype=torch.bool)
    clipped = clip_fractions(
        importance_ratio(logprobs, old_logprobs),
        torch.cat([part.advantages for part in tokens]),
        everywhere,
        clip_low=objective.clip_low,
        clip_high=objective.clip_high,
    )
    ratio = ratio_stats(logprobs, old_logprobs, everywhere)
    return {
        "loss/total": fmean(part.total for part in tokens),
        "loss/policy": fmean(part.policy for part in tokens),
        "loss/kl": fmean(part.kl for part in tokens),
        "grad/norm": fmean(record.grad_norm for record in records),
        "learner/lr": records[-1].lr,
        "entropy/mean": torch.cat([part.entropy for part in tokens]).double().mean().item(),
        "clip/low": clipped.low,
        "clip/high": clipped.high,
        "ratio/mean": ratio.mean,
        "ratio/min": ratio.min,
        "ratio/max": ratio.max,
        **records[0].gap,
    }


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
