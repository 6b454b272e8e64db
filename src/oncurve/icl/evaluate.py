"""How far predictions are from the functions of held-out prompts, by the number of examples before them.

E(n) = mean over prompts of (prediction_n - f(x_n))^2 / normaliser, so that answering 0 costs 1.

Shapes: P prompts, K points.
"""

import torch
from torch import Tensor

from oncurve.icl.functions import Prompts, normaliser, sample
from oncurve.icl.run import generator
from oncurve.icl.settings import LabSettings
from oncurve.icl.similarity import Predict

_AT_ONCE = 256
"""Prompts that are drawn together; another number would draw others."""


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
def predictions(predict: Predict, prompts: Prompts) -> Tensor:
    """[P, K] what a network or another predictor makes of prompts, a few at a time."""
    return torch.cat([predict(inputs, targets) for inputs, targets in prompts.in_chunks()])


def squared_errors(settings: LabSettings, predicted: Tensor, prompts: Prompts) -> Tensor:
    """[P, K] squared distance to the function without noise, over the normaliser, float64."""
    return (predicted.double() - prompts.clean.double()).square() / normaliser(settings.functions)
