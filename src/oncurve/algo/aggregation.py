"""How token losses become one number: weights a sequence, with the denominators of the whole optimiser step.

Shapes: B sequences, T padded positions.
"""

from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "constant", "prompt-mean"]


def sequence_weights(lengths: Tensor, groups: Tensor, aggregation: Aggregation, *, max_tokens: int) -> Tensor:
    """Weigh the tokens of each sequence, so that loss = sum_i weight_i * sum_t token_loss[i, t].

    With L_i trained tokens, B sequences and N prompts:

    - ``seq-mean-token-mean``: 1 / (B * L_i)              GRPO, GSPO
    - ``token-mean``:          1 / sum_j L_j              DAPO as implemented
    - ``seq-mean-token-sum``:  1 / B                      RLOO, TOPR
    - ``constant``:            1 / (B * max_tokens)       Dr. GRPO
    - ``prompt-mean``:         1 / (N * sum_{j in g} L_j) DAPO as written

    Pass *every* sequence of the optimiser step at once: then any split into micro-batches or workers adds up to
    the same gradient. A sequence without trained tokens still counts in B and N: masking it cannot enlarge the step
    of the others.

    Args:
        lengths: [B] trained tokens of each sequence, >= 0.
        groups: [B] integer that names the prompt of each sequence.
        aggregation: one of the five above.
        max_tokens: the generation limit of the run; used by ``constant``.

    Returns:
        [B] float64 weights, finite, also where the length is 0.

    Raises:
        ValueError: the batch is empty, shapes differ, or max_tokens < 1.

    Source:
        arXiv:2402.03300 (GRPO), arXiv:2503.14476 (DAPO), arXiv:2503.20783 (Dr. GRPO), arXiv:2402.14740 (RLOO).
    """
    if lengths.ndim != 1 or lengths.shape != groups.shape or len(lengths) == 0:
        raise ValueError(
            f"lengths and groups must be one non-empty [B], got {list(lengths.shape)} and {list(groups.shape)}. "
            "When every group of a step was dropped there is no update to weigh."
        )
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
    tokens = lengths.double()
    num_sequences = len(lengths)
    if aggregation == "seq-mean-token-mean":
        return 1 / (num_sequences * tokens.clamp(min=1))
    if aggregation == "token-mean":
        return torch.ones_like(tokens) / tokens.sum().clamp(min=1)
    if aggregation == "seq-mean-token-sum":
        return torch.ones_like(tokens) / num_sequences
    if aggregation == "constant":
        return torch.ones_like(tokens) / (num_sequences * max_tokens)
    prompts, prompt_of = torch.unique(groups, return_inverse=True)
    tokens_of_prompt = tokens.new_zeros(len(prompts)).index_add(0, prompt_of, tokens)
    return 1 / (len(prompts) * tokens_of_prompt.clamp(min=1)[prompt_of])


def token_weights(weights: Tensor, loss_mask: Tensor) -> Tensor:
    """Spread the weight of each sequence over its trained tokens; every other position gets 0.

    Args:
        weights: [B] from ``sequence_weights``.
        loss_mask: [B, T] bool, True where the token is trained.

    Returns:
        [B, T] weights. Packed tokens need no mask: ``weights.repeat_interleave(lengths)`` is the same as [N].

    Raises:
        ValueError: the numbers of rows differ.
    """
    if loss_mask.ndim != 2 or weights.shape != loss_mask.shape[:1]:
        raise ValueError(
            f"weights must be [B] and loss_mask [B, T], got {list(weights.shape)} and {list(loss_mask.shape)}"
        )
    return torch.where(loss_mask, weights[:, None], 0.0)
