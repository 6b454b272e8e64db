"""Which sampled tokens are trained.

Shapes: B completions, T padded positions.
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class CompletionMask:
    """Where completions end."""

    loss_mask: Tensor
    """[B, T] bool, True up to and including the first terminator."""
    lengths: Tensor
    """[B] number of True positions: the terminator counts."""
    is_truncated: Tensor
    """[B] bool, True when no terminator was sampled."""

    def without_truncated(self) -> Tensor:
        """Return the loss mask with the rows of truncated completions all False (overlong filtering of DAPO).

        Their rewards stay in the group statistics; their tokens leave the denominators.
        """
        return self.loss_mask & ~self.is_truncated[:, None]


def completion_mask(ids: Tensor, terminators: Collection[int]) -> CompletionMask:
    """Find the end of each completion: the first terminator by position, which stays in the loss.

    The padding id is often a terminator id, so an end is found by position and never by ``id != padding``.

    Args:
        ids: [B, T] sampled ids; whatever follows the first terminator of a row is padding.
        terminators: all ids that end a completion.

    Raises:
        ValueError: ids is not [B, T], or no terminator is given.
    """
    if ids.ndim != 2 or not terminators:
        raise ValueError(
            f"ids must be [B, T] and terminators not empty, got {list(ids.shape)} and {sorted(terminators)}. "
            "A model without a terminator cannot learn to stop."
        )
    is_end = torch.isin(ids, torch.tensor(sorted(terminators), device=ids.device, dtype=ids.dtype))
    ends_before = is_end.cumsum(dim=1) - is_end.long()
    loss_mask = ends_before == 0
    return CompletionMask(loss_mask, loss_mask.sum(dim=1), ~is_end.any(dim=1))
