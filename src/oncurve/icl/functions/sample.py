"""Draw prompts: inputs, a function for each prompt, noise."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from oncurve.icl.functions.families import decision_tree, draw, linear, sparse_weights, two_layers
from oncurve.icl.functions.prompts import Prompts
from oncurve.icl.functions.settings import FunctionSettings

InputTransform = Callable[[Tensor, torch.Generator], Tensor]


def sample(
    settings: FunctionSettings,
    num_prompts: int,
    num_points: int,
    generator: torch.Generator,
    *,
    active_dimension: int | None = None,
    input_transform: InputTransform | None = None,
    weight_scale: float = 1.0,
) -> Prompts:
    """Draw prompts whose inputs are standard normal, each with a function of its own.

    Weights are N(0, 1); of a tree, the coordinate of each inner node is uniform and the leaves are N(0, 1); of a
    two-layer network with r units, v_j ~ N(0, I) and a_j ~ N(0, 2/r). ``weight_std`` and ``weight_scale`` multiply
    what the target is linear in: w, the leaves, a.

    Args:
        settings: the class of functions.
        num_prompts: B.
        num_points: K.
        generator: everything is drawn from it, on its device: inputs, then functions, then noise.
        active_dimension: coordinates from this one on are 0 (a curriculum); None for all active.
        input_transform: changes the [B, K, d] inputs before any target is computed.
        weight_scale: multiplies the weights, for prompts unlike those of training.

    Raises:
        ValueError: a count is below 1, or ``active_dimension`` is not in [1, d].

    Source:
        Garg et al. 2022, arXiv:2208.01066, section 4 and appendix A.
    """
    active = settings.dimension if active_dimension is None else active_dimension
    if num_prompts < 1 or num_points < 1 or not 1 <= active <= settings.dimension:
        raise ValueError(
            f"need at least one prompt and point, and 1 to {settings.dimension} active dimensions; "
            f"got {num_prompts}, {num_points} and {active}"
        )
    inputs = draw(generator, num_prompts, num_points, settings.dimension)
    inputs[:, :, active:] = 0.0
    if input_transform is not None:
        inputs = input_transform(inputs, generator)
    clean, weights = _values(settings, inputs, settings.weight_std * weight_scale, generator)
    targets = clean
    if settings.noise_std > 0:
        targets = clean + settings.noise_std * draw(generator, num_prompts, num_points)
    return Prompts(inputs=inputs, targets=targets, clean=clean, weights=weights)


def _values(
    settings: FunctionSettings, inputs: Tensor, scale: float, generator: torch.Generator
) -> tuple[Tensor, Tensor | None]:
    """Draw a function for each prompt; its values at the inputs, and its weights where it has some."""
    num_prompts, dimension = inputs.shape[0], settings.dimension
    if settings.kind == "tree":
        leaves = 2**settings.tree_depth
        nodes = (num_prompts, leaves - 1)
        coordinates = torch.randint(dimension, nodes, generator=generator, device=generator.device)
        return decision_tree(inputs, coordinates, scale * draw(generator, num_prompts, leaves)), None
    if settings.kind == "relu":
        width = settings.hidden_width
        first = draw(generator, num_prompts, width, dimension)
        second = scale * math.sqrt(2 / width) * draw(generator, num_prompts, width)
        return two_layers(inputs, first, second), None
    if settings.kind == "sparse":
        weights = scale * sparse_weights(generator, num_prompts, dimension, settings.sparsity)
    else:
        weights = scale * draw(generator, num_prompts, dimension)
    return linear(inputs, weights), weights
