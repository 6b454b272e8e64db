"""Prompts of in-context regression: points of a function that was drawn for this prompt alone.

Shapes: B prompts, K points, d coordinates.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

_CHUNK = 256
"""Prompts of one forward pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompts:
    """B prompts of K points each. The target of point n is to be told from the n points before it and its input."""

    inputs: Tensor
    """[B, K, d] float32."""
    targets: Tensor
    """[B, K] as seen in the context, noise included."""
    clean: Tensor
    """[B, K] without the noise."""
    weights: Tensor | None = None
    """[B, d] of linear and sparse functions; None for others."""

    def __post_init__(self) -> None:
        points = self.inputs.shape[:2]
        if self.inputs.ndim != 3 or self.targets.shape != points or self.clean.shape != points:
            raise ValueError(
                f"inputs must be [B, K, d] with targets and clean [B, K], got {list(self.inputs.shape)}, "
                f"{list(self.targets.shape)} and {list(self.clean.shape)}"
            )

    def in_chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets of a few prompts at a time, as many as a network reads in one pass."""
        return zip(torch.split(self.inputs, _CHUNK), torch.split(self.targets, _CHUNK), strict=True)

    def first(self, num: int) -> "Prompts":
        """The first ``num`` prompts, all of them when there are fewer."""
        return Prompts(
            inputs=self.inputs[:num],
            targets=self.targets[:num],
            clean=self.clean[:num],
            weights=None if self.weights is None else self.weights[:num],
        )
