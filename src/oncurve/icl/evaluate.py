"""How far predictions are from the functions of held-out prompts, by the number of examples before them.

E(n) = mean over prompts of (prediction_n - f(x_n))^2 / normaliser, so that answering 0 costs 1.

Shapes: P prompts, K points.
"""

import torch
from torch import Tensor

from oncurve.icl.functions import Prompts, normaliser, sample
from oncurve.icl.network import Regressor
from oncurve.icl.run import generator
from oncurve.icl.settings import LabSettings

_AT_ONCE = 256
"""Prompts of one forward pass."""


def held_out(settings: LabSettings, num_prompts: int) -> Prompts:
    """Prompts that the training of these settings never sees; the first ones are the same whatever the number."""
    parts = []
    for start in range(0, num_prompts, _AT_ONCE):
        drawn = sample(settings.functions, _AT_ONCE, settings.points, generator(settings, "held out", start))
        parts.append(drawn)
    weights = [part.weights for part in parts if part.weights is not None]
    whole = Prompts(
        inputs=torch.cat([part.inputs for part in parts]),
        targets=torch.cat([part.targets for part in parts]),
        clean=torch.cat([part.clean for part in parts]),
        weights=torch.cat(weights) if weights else None,
    )
    return whole.first(num_prompts)


@torch.no_grad()
def predictions(regressor: Regressor, prompts: Prompts) -> Tensor:
    """[P, K] predictions of a network, a few prompts at a time."""
    pairs = zip(torch.split(prompts.inputs, _AT_ONCE), torch.split(prompts.targets, _AT_ONCE), strict=True)
    return torch.cat([regressor.predict(inputs, targets) for inputs, targets in pairs])


def squared_errors(settings: LabSettings, predicted: Tensor, prompts: Prompts) -> Tensor:
    """[P, K] squared distance to the function without noise, over the normaliser, float64."""
    return (predicted.double() - prompts.clean.double()).square() / normaliser(settings.functions)
