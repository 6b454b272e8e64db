"""How the best-matching iteration grows with the layer: by a number per layer, or by a factor per layer."""

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

MIN_LAYERS = 3
"""A line through two points always fits."""


class Line(BaseModel):
    """A least squares line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slope: float
    intercept: float
    r_squared: float
    """Share of the variance that the line explains."""


class Trend(BaseModel):
    """Two readings of the same matched iterations: m = a + b layer, and log2 m = a + b layer."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    layers: tuple[int, ...]
    """Those that count: matched with at least 1 iteration, and not with the last one that was tried."""
    linear: Line | None
    """Slope in iterations per layer; None with fewer than 3 layers, or when all match the same iteration."""
    geometric: Line | None
    """Slope in doublings per layer."""

    @property
    def is_linear(self) -> bool | None:
        """Whether the straight line explains more than the geometric one; None when there is no line."""
        if self.linear is None or self.geometric is None:
            return None
        return self.linear.r_squared > self.geometric.r_squared


def trend(matched: Sequence[int], last: int) -> Trend:
    """Fit both lines to the iterations that the layers match best.

    Args:
        matched: [L + 1] iterations, from layer 0 on.
        last: the most iterations that were tried; a layer that matches them would match more.
    """
    layers = tuple(layer for layer, iteration in enumerate(matched) if 1 <= iteration < last)
    values = np.array([matched[layer] for layer in layers], float)
    return Trend(layers=layers, linear=_line(layers, values), geometric=_line(layers, np.log2(values)))


def _line(layers: Sequence[int], values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> Line | None:
    if len(layers) < MIN_LAYERS or np.ptp(values) == 0:
        return None
    slope, intercept = np.polyfit(layers, values, 1)
    left = values - (intercept + slope * np.array(layers))
    explained = 1 - float(left @ left) / float(((values - values.mean()) ** 2).sum())
    return Line(slope=float(slope), intercept=float(intercept), r_squared=explained)
