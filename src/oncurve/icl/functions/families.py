"""Functions, batched: one a prompt.

Shapes: B prompts, K points, d coordinates, D questions from root to leaf, r hidden units.
"""

import torch
from torch import Tensor


def draw(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal numbers on the generator's device."""
    return torch.randn(*shape, generator=generator, device=generator.device)


def sparse_weights(generator: torch.Generator, num_prompts: int, dimension: int, sparsity: int) -> Tensor:
    """[B, d] standard normal weights of which all but ``sparsity``, at uniformly drawn places, are 0."""
    weights = draw(generator, num_prompts, dimension)
    order = torch.rand(num_prompts, dimension, generator=generator, device=generator.device)
    kept = order.argsort(dim=1)[:, :sparsity]
    return weights * torch.zeros_like(weights).scatter_(1, kept, 1.0)


def linear(inputs: Tensor, weights: Tensor) -> Tensor:
    """f(x) = w.x for [B, K, d] inputs and [B, d] weights, as [B, K]."""
    return (inputs @ weights.unsqueeze(-1)).squeeze(-1)


def decision_tree(inputs: Tensor, coordinates: Tensor, leaves: Tensor) -> Tensor:
    """Follow each input from the root to a leaf: right where the asked coordinate is positive, left otherwise.

    Nodes are numbered by level: the children of node i are 2i + 1 (left) and 2i + 2 (right).

    Args:
        inputs: [B, K, d].
        coordinates: [B, 2^D - 1] which coordinate each inner node asks about.
        leaves: [B, 2^D] values from left to right.

    Returns:
        [B, K] values of the leaves reached.
    """
    depth = leaves.shape[1].bit_length() - 1
    node = torch.zeros(inputs.shape[:2], dtype=torch.int64, device=inputs.device)
    for _ in range(depth):
        asked = coordinates.gather(1, node).unsqueeze(-1)
        is_right = inputs.gather(2, asked).squeeze(-1) > 0
        node = 2 * node + 1 + is_right.long()
    return leaves.gather(1, node - coordinates.shape[1])


def two_layers(inputs: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """f(x) = sum_j a_j max(0, v_j.x) for [B, K, d] inputs, [B, r, d] ``first`` and [B, r] ``second``, as [B, K]."""
    return linear((inputs @ first.transpose(1, 2)).relu(), second)
