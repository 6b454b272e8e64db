"""Prompts as sequences of tokens, and where in them predictions are read.

paired        (x_0, 0, 1) (x_0, y_0, 0) (x_1, 0, 1) (x_1, y_1, 0) ...     width d + 2
alternating   (x_0) (y_0, 0, ...) (x_1) (y_1, 0, ...) ...                  width d

The prediction of y_n stands at token 2n, which under a causal mask sees the n points before it and x_n. ``paired``
hands over each x beside its y, so that no layer is spent on bringing them together; ``alternating`` is the layout of
Garg et al. 2022.

Shapes: B prompts, K points, d coordinates.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Layout = Literal["paired", "alternating"]


def token_width(layout: Layout, dimension: int) -> int:
    """Numbers in one token."""
    return dimension + 2 if layout == "paired" else dimension


def encode(layout: Layout, inputs: Tensor, targets: Tensor) -> Tensor:
    """Write prompts as tokens.

    Args:
        layout: which.
        inputs: [B, K, d].
        targets: [B, K].

    Returns:
        [B, 2K, width] tokens. The target of a point stands only in the token after the one where it is predicted.
    """
    known = targets.unsqueeze(-1)
    if layout == "alternating":
        query, answer = inputs, F.pad(known, (0, inputs.shape[-1] - 1))
    else:
        nothing, one = torch.zeros_like(known), torch.ones_like(known)
        query = torch.cat([inputs, nothing, one], dim=-1)
        answer = torch.cat([inputs, known, nothing], dim=-1)
    return torch.stack([query, answer], dim=2).flatten(1, 2)
