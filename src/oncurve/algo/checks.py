"""Argument checks that every function of ``oncurve.algo`` shares."""

import torch
from torch import Tensor


def require_same_shape(**tensors: Tensor) -> None:
    """Refuse tensors of different shapes: broadcasting here would silently mix tokens of different sequences.

    Raises:
        ValueError: two of the named tensors differ in shape.
    """
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    if len({tuple(shape) for shape in shapes.values()}) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"these must have one common shape, got {listed}. Expand per-sequence values to their tokens.")


def require_temperature(temperature: float) -> None:
    """Refuse a temperature that logits cannot be divided by.

    Raises:
        ValueError: temperature is 0, negative, NaN or inf.
    """
    if not 0 < temperature < float("inf"):
        raise ValueError(
            f"temperature must be positive and finite, got {temperature}. "
            "Greedy decoding (0) has no log-probabilities to train on: sample with rollout.sampling.temperature > 0."
        )


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return the tensor in float32, or in float64 when it already is: ratios of bfloat16 log-probs are noise."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
