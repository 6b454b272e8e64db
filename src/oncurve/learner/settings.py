"""Settings of the learner: how one rollout becomes optimiser steps."""

from typing import Literal, Self

import torch
from pydantic import Field, model_validator

from oncurve.algo import ObjectiveSettings
from oncurve.types import Settings

MAX_GAP = {torch.float64: 1e-4, torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.05}
"""Largest mean |trainer - sampler| log-prob gap, in nats, that rounding explains, by precision of the arithmetic. In
bfloat16 two runs of transformers that differ in batch size alone are 0.08 apart on an unlikely text; sampler and
learner of the common families round at the same places and are far below it."""


class LearnerSettings(Settings):
    """How a rollout changes the weights. Memory settings (the two budgets) never change the gradient."""

    lr: float = Field(1e-5, gt=0, le=1)
    """Learning rate of AdamW, reached at the end of the warm-up."""

    warmup_steps: int = Field(0, ge=0)
    """Optimiser steps over which the learning rate rises linearly from lr / warmup_steps to lr."""

    decay_steps: int = Field(0, ge=0)
    """Optimiser step, counted from the start, at which the learning rate has fallen linearly to 0; 0 keeps it."""

    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay; matrices only, never biases or normalisation scales."""

    beta1: float = Field(0.9, ge=0, lt=1)
    """AdamW: memory of the gradient."""

    beta2: float = Field(0.999, ge=0, lt=1)
    """AdamW: memory of the squared gradient."""

    adam_eps: float = Field(1e-8, gt=0)
    """AdamW: added to the root of the squared gradient."""

    max_grad_norm: float = Field(1.0, gt=0)
    """A gradient longer than this is scaled down to it."""

    updates_per_rollout: int = Field(1, ge=1)
    """Optimiser steps per rollout. Its groups are split into as many parts, each with denominators of its own; from
    the second on, the data is off-policy and the clip acts."""

    old_logprobs: Literal["auto", "sampler", "recompute"] = "auto"
    """The denominator of the ratio. ``sampler`` takes the log-probs recorded at sampling, so the ratio also corrects
    the sampler's rounding; ``recompute`` takes them from the learner before its first step on the rollout; ``auto``
    recomputes when the objective corrects for the sampler with a weight of its own, and for the losses of whole
    completions with a band (gspo, gspo_token, luspo), which is narrower than the rounding of bfloat16."""

    max_logprob_gap: float | None = Field(None, gt=0)
    """Largest mean |trainer - sampler| log-prob, in nats, before the first step on a rollout; beyond it the run stops.
    None takes 1e-4 for float32 arithmetic and 0.05 for bfloat16."""

    watch_kl_completions: int = Field(64, ge=0)
    """With kl_coef 0 the KL to the reference is only watched, on this many completions a rollout; 0 does not watch."""

    micro_batch_tokens: int = Field(4096, ge=1)
    """Most tokens in one forward pass; a longer completion goes alone. What completions share is run, and counted,
    once. Where a model cannot run packed rows, padding counts too."""

    share_prompts: Literal["auto", "never"] = "auto"
    """``auto`` runs the tokens with which completions begin alike (a prompt, or what prompts have in common) once a
    forward pass, where that saves more than the wider attention costs and the model allows it; ``never`` runs each
    completion behind a prompt of its own. The gradient is the same."""

    logits_chunk_bytes: int = Field(256 * 1024**2, ge=1)
    """Size of one float32 [tokens, vocabulary] chunk of logits. In the backward pass logits and their gradient are held
    in the precision of the weights: twice that size, once in bfloat16."""

    compute_dtype: Literal["weights", "bfloat16"] = "weights"
    """``bfloat16`` multiplies matrices in bfloat16 while the weights stay float32: faster where the processor has it,
    at a sampler gap of bfloat16 size. Use it with model.attention eager."""

    @model_validator(mode="after")
    def _warmup_before_decay(self) -> Self:
        if 0 < self.decay_steps <= self.warmup_steps:
            raise ValueError(
                f"decay_steps {self.decay_steps} must lie after warmup_steps {self.warmup_steps}: "
                "raise learner.decay_steps, or set it to 0 for a constant learning rate"
            )
        return self

    def lr_at(self, step: int) -> float:
        """Learning rate of an optimiser step, counted from 0.

        lr * min(1, (step + 1) / warmup_steps) * max(0, (decay_steps - step) / (decay_steps - warmup_steps)), where a
        factor whose setting is 0 is left out, and the second factor is at most 1.
        """
        factor = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        if self.decay_steps:
            left = (self.decay_steps - step) / (self.decay_steps - self.warmup_steps)
            factor *= min(1.0, max(0.0, left))
        return self.lr * factor

    def recomputes(self, objective: ObjectiveSettings) -> bool:
        """True when old log-probs are recomputed by the learner for this objective.

        Raises:
            ValueError: a correction weight would come on top of a ratio that already contains the mismatch.
        """
        needs_own = objective.correction.mode != "none"
        if needs_own and self.old_logprobs == "sampler":
            raise ValueError(
                f'learner.old_logprobs = "sampler" makes the ratio contain the mismatch of sampler and trainer, and '
                f"objective.correction.mode = {objective.correction.mode} would multiply it in again. Set "
                'learner.old_logprobs = "recompute", or objective.correction.mode = "none".'
            )
        if self.old_logprobs == "auto":
            return needs_own or objective.loss in ("gspo", "gspo_token", "luspo")
        return self.old_logprobs == "recompute"

    def gap_limit(self, dtype: torch.dtype) -> float:
        """The largest tolerated log-prob gap in nats, for weights of this dtype."""
        if self.max_logprob_gap is not None:
            return self.max_logprob_gap
        return MAX_GAP[torch.bfloat16] if self.compute_dtype == "bfloat16" else MAX_GAP.get(dtype, 0.05)
