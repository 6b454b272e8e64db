"""Whole gradients of several objectives, and the angles between them."""

from collections.abc import Mapping
from math import prod, sqrt
from pathlib import Path

import torch
from torch import Tensor

CHUNK = 1 << 22
"""Entries of a gradient that are multiplied at once, in float64."""


class Gradients:
    """Gradients of the same weights, each one flat tensor: in memory, or in a file where they would be too large.

    Args:
        shapes: of the weights, by name.
        dtype: float32, or float64.
        count: how many gradients there will be.
        folder: for the files; it must outlive this object.
        memory_bytes: most that all of them together may take in memory.
    """

    def __init__(
        self, shapes: Mapping[str, torch.Size], dtype: torch.dtype, *, count: int, folder: Path, memory_bytes: int
    ) -> None:
        self._sizes = {name: prod(shape) for name, shape in shapes.items()}
        self._dtype = dtype
        self._length = sum(self._sizes.values())
        self._is_on_disk = count * self._length * dtype.itemsize > memory_bytes
        self._folder = folder
        self._kept: list[Tensor] = []

    def add(self, gradient: Mapping[str, Tensor]) -> None:
        """Keep one more; a weight that has none counts as 0."""
        flat = self._room()
        for name, part in zip(self._sizes, torch.split(flat, list(self._sizes.values())), strict=True):
            if name in gradient:
                part.copy_(gradient[name].flatten())
        self._kept.append(flat)

    def norms(self) -> list[float]:
        """Length of each."""
        return [sqrt(_dot(flat, flat)) for flat in self._kept]

    def cosines(self) -> list[list[float | None]]:
        """Cosine of the angle between each two; None where one of them is 0."""
        kept = [(flat, _dot(flat, flat)) for flat in self._kept]
        return [[_cosine(first, second) for second in kept] for first in kept]

    def _room(self) -> Tensor:
        if not self._is_on_disk:
            return torch.zeros(self._length, dtype=self._dtype)
        path = self._folder / f"gradient-{len(self._kept)}"
        return torch.from_file(str(path), shared=True, size=self._length, dtype=self._dtype)  # a new file reads as 0


def _cosine(first: tuple[Tensor, float], second: tuple[Tensor, float]) -> float | None:
    """Of two gradients with their squares."""
    (a, square_a), (b, square_b) = first, second
    if square_a == 0 or square_b == 0:
        return None
    return max(-1.0, min(1.0, _dot(a, b) / sqrt(square_a * square_b)))


def _dot(a: Tensor, b: Tensor) -> float:
    """The scalar product, summed in float64."""
    spans = [slice(start, start + CHUNK) for start in range(0, len(a), CHUNK)]
    return float(sum(torch.dot(a[span].double(), b[span].double()).item() for span in spans))
