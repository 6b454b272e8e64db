"""Changes of the inputs of prompts, made before any target is computed; the last point is the query.

Each takes inputs [B, K, d] and a generator and returns [B, K, d]. Those that are not scalings keep E|x|^2 = d.
"""

import math

import torch
from torch import Tensor

from oncurve.icl.functions import InputTransform


def scale_inputs(factor: float) -> InputTransform:
    """Multiply examples and query by a factor."""
    return lambda inputs, _: factor * inputs


def scale_query(factor: float) -> InputTransform:
    """Multiply the query alone by a factor."""

    def transform(inputs: Tensor, _: torch.Generator) -> Tensor:
        return torch.cat([inputs[:, :-1], factor * inputs[:, -1:]], dim=1)

    return transform


def skew(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Give each prompt a covariance with eigenvalues proportional to 1, 1/4, 1/9, ... in a random basis."""
    dimension = inputs.shape[-1]
    lengths = 1 / torch.arange(1, dimension + 1, device=inputs.device, dtype=inputs.dtype)
    lengths *= (dimension / lengths.square().sum()).sqrt()
    turned: Tensor = (inputs * lengths) @ _bases(inputs, generator).mT
    return turned


def in_subspace(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Put all points of a prompt into a random subspace of d/2 dimensions, rounded up."""
    dimension = inputs.shape[-1]
    kept = -(-dimension // 2)
    basis = _bases(inputs, generator)[..., :kept]
    return inputs[..., :kept] @ basis.mT * math.sqrt(dimension / kept)


def in_random_orthant(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Fix the sign of every coordinate for all examples of a prompt, at random; the query stays free."""
    signs = torch.rand(inputs.shape[0], 1, inputs.shape[-1], generator=generator, device=inputs.device) < 0.5
    examples = torch.where(signs, inputs[:, :-1].abs(), -inputs[:, :-1].abs())
    return torch.cat([examples, inputs[:, -1:]], dim=1)


def query_is_an_example(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Ask about one of the examples, drawn at random."""
    num_prompts, num_points, _ = inputs.shape
    chosen = torch.randint(num_points - 1, (num_prompts,), generator=generator, device=inputs.device)
    query = inputs[torch.arange(num_prompts, device=inputs.device), chosen]
    return torch.cat([inputs[:, :-1], query[:, None]], dim=1)


def query_orthogonal(inputs: Tensor, _: torch.Generator) -> Tensor:
    """Turn the query, its length kept, orthogonal to every example: nothing can be known about its target.

    Raises:
        ValueError: the examples fill the space.
    """
    examples, query = inputs[:, :-1], inputs[:, -1:]
    if examples.shape[1] >= inputs.shape[-1]:
        raise ValueError(
            f"{examples.shape[1]} examples in {inputs.shape[-1]} dimensions leave no orthogonal direction: use fewer"
        )
    basis, _upper = torch.linalg.qr(examples.double().mT)
    free = query.double() - query.double() @ basis @ basis.mT
    turned = free / free.norm(dim=-1, keepdim=True) * query.double().norm(dim=-1, keepdim=True)
    return torch.cat([examples, turned.to(inputs.dtype)], dim=1)


def _bases(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """A random orthonormal basis for each prompt: [B, d, d]."""
    num_prompts, _, dimension = inputs.shape
    drawn = torch.randn(num_prompts, dimension, dimension, generator=generator, device=inputs.device)
    basis: Tensor = torch.linalg.qr(drawn).Q
    return basis
