"""The gradient of a weighted sum of log-likelihoods: what every loss on given completions comes down to."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from oncurve.algo import kl_estimate
from oncurve.learner.packing import MicroBatch, Row
from oncurve.learner.stepper import Stepper
from oncurve.learner.token_statistics import token_statistics

TEMPERATURE = 1.0
"""Given completions were written, not drawn by this policy: they are learned at its own distribution."""

ByIndex = dict[int, Tensor]
"""[L] log-probs of a completion, by its place among the rows."""


def add_gradient(stepper: Stepper, rows: Sequence[Row], weights: Sequence[float]) -> ByIndex:
    """Add the gradient of sum_i weights[i] * log p(row i) to that of the step; call it inside ``stepper.training``.

    Micro-batches, padding and shared prompts leave it alone: each token has its weight before the first of them runs.

    Args:
        stepper: whose model is differentiated.
        rows: prompts and completions.
        weights: one a row, the weight of each of its tokens.

    Returns:
        The log-probs that this pass found, without gradient.
    """
    found = ByIndex()
    for batch in stepper.forward.pack(rows):
        token_weights = _per_token(batch, weights, stepper.dtype)
        parts: list[Tensor] = []

        def chunk_loss(
            logits: Tensor,
            span: slice,
            batch: MicroBatch = batch,
            token_weights: Tensor = token_weights,
            parts: list[Tensor] = parts,
        ) -> Tensor:
            logprobs, _ = token_statistics(logits, batch.targets[span], TEMPERATURE)
            parts.append(logprobs.detach())
            return (logprobs * token_weights[span]).sum()

        for _ in stepper.forward.accumulate(stepper.model, batch, chunk_loss):
            stepper.collect()
        found |= zip(batch.members, torch.split(torch.cat(parts), list(batch.lengths)), strict=True)
    return found


def drift_metrics(logprobs: Mapping[int, Tensor], ref_logprobs: Mapping[int, Tensor]) -> dict[str, float]:
    """Say how far the policy is from the reference on the completions that both are known for.

    ``drift/kl`` is the token mean of exp(d) - 1 - d with d = logprobs - ref_logprobs, never negative. On completions
    that the reference sampled it estimates KL(reference ‖ policy) without bias; on others it is a distance, no KL.
    """
    known = [index for index in logprobs if index in ref_logprobs]
    if not known:
        return {}
    current = torch.cat([logprobs[index] for index in known])
    reference = torch.cat([ref_logprobs[index] for index in known])
    return {"drift/kl": kl_estimate(reference, current, "k3").mean().item()}


def _per_token(batch: MicroBatch, weights: Sequence[float], dtype: torch.dtype) -> Tensor:
    """[N] the weight of each completion token of the micro-batch."""
    device = batch.targets.device
    by_member = torch.tensor([weights[member] for member in batch.members], dtype=dtype, device=device)
    return by_member.repeat_interleave(torch.tensor(batch.lengths, device=device))
