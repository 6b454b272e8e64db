"""How far a mean over prompts could be from that over all prompts there are.

Shapes: P prompts, whatever else a prompt has behind them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap

Floats = NDArray[np.float64]


def mean_intervals(values: Floats, levels: Sequence[float], *, resamples: int, seed: int) -> list[Floats]:
    """Return percentile intervals of the mean over prompts, all from the same bootstrap draws.

    Args:
        values: [P, ...], P at least 2; prompts are drawn whole.
        levels: coverage of each interval, inside (0, 1).
        resamples: draws.
        seed: of the draws.

    Returns:
        For each level [2, ...]: the lower ends, the upper ends.
    """
    drawn, found = None, []
    for level in levels:
        drawn = bootstrap(
            (values,),
            np.mean,
            axis=0,
            n_resamples=resamples if drawn is None else 0,
            confidence_level=level,
            method="percentile",
            rng=seed,
            bootstrap_result=drawn,
        )
        found.append(np.stack([drawn.confidence_interval.low, drawn.confidence_interval.high]))
    return found
