"""Which baselines a class of functions is measured against.

B prompts, K points, d dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from oncurve.icl.baselines.closed import averaging, bayes_penalty, least_squares, nearest_neighbours, ridge, zero
from oncurve.icl.baselines.fitted import boosting, choose_lasso_penalty, lasso, tree
from oncurve.icl.baselines.two_layer import TwoLayerSettings, two_layer
from oncurve.icl.functions import FunctionSettings, sample
from oncurve.icl.similarity import Predict
from oncurve.types import derive_seed

_CHOOSING_PROMPTS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """A predictor with its name."""

    name: str
    predict: Predict
    """[B, K, d], [B, K] -> [B, K]; NaN at numbers of examples that are not in ``counts``."""
    counts: tuple[int, ...] | None = None
    """Numbers of examples at which it predicts, fitted prompt by prompt; None for all, by a formula."""


def bayes(settings: FunctionSettings) -> Baseline:
    """Return the best possible predictor of linear functions with normal weights.

    Ridge with the penalty noise_std^2 / weight_std^2; without noise its limit, least squares of minimum norm.
    """
    if settings.noise_std == 0:
        return Baseline(name="least squares", predict=least_squares)
    penalty = bayes_penalty(settings.noise_std, settings.weight_std)
    return Baseline(name="ridge", predict=partial(ridge, penalty=penalty))


def reference_of(settings: FunctionSettings, counts: Sequence[int], *, seed: int = 0) -> Baseline:
    """Return the best predictor known for a class: what the ratio of an examination divides by.

    ``bayes`` for linear functions. For the others the strongest of ``strong_baselines_for``, which is slow and
    predicts at ``counts`` only: the Lasso, boosted trees on signs, a two-layer network trained by Adam.
    """
    if settings.kind == "linear":
        return bayes(settings)
    return strong_baselines_for(settings, counts, seed=seed)[-1]


def quick_baselines_for(settings: FunctionSettings) -> list[Baseline]:
    """Return the baselines with a formula; ``bayes`` of a linear class first."""
    first = [bayes(settings)] if settings.kind == "linear" else []
    common = [
        Baseline(name="least squares", predict=least_squares),
        Baseline(name="3 nearest neighbours", predict=nearest_neighbours),
        Baseline(name="averaging", predict=averaging),
        Baseline(name="zero", predict=zero),
    ]
    return [*first, *(one for one in common if one.name not in {taken.name for taken in first})]


def strong_counts(num_points: int, num_counts: int) -> list[int]:
    """Return numbers of examples for the slow baselines, evenly spread, the last one K - 1."""
    return sorted({round((num_points - 1) * (index + 1) / num_counts) for index in range(num_counts)} - {0})


def strong_baselines_for(
    settings: FunctionSettings, counts: Sequence[int], *, seed: int = 0, network_steps: int = 5000
) -> list[Baseline]:
    """Return the slow baselines made for this class of functions, the strongest last; none for linear ones.

    Args:
        settings: the class of functions.
        counts: numbers of examples at which they predict.
        seed: of the prompts on which the penalty of the Lasso is chosen, and of the networks.
        network_steps: steps of Adam of the two-layer networks.
    """
    places = tuple(sorted(set(counts)))
    if settings.kind == "sparse":
        penalty = _lasso_penalty(settings, places, seed)
        return [Baseline(name="Lasso", predict=partial(lasso, penalty=penalty, counts=places), counts=places)]
    if settings.kind == "tree":
        grown = partial(tree, max_depth=settings.tree_depth, counts=places)
        boosted = partial(boosting, counts=places)
        return [
            Baseline(name="greedy tree", predict=grown, counts=places),
            Baseline(name="greedy tree on signs", predict=partial(grown, on_signs=True), counts=places),
            Baseline(name="boosted trees", predict=boosted, counts=places),
            Baseline(name="boosted trees on signs", predict=partial(boosted, on_signs=True), counts=places),
        ]
    if settings.kind == "relu":
        training = TwoLayerSettings(width=settings.hidden_width, num_steps=network_steps, seed=seed)
        trained = partial(two_layer, counts=places, settings=training)
        return [Baseline(name="two-layer network by Adam", predict=trained, counts=places)]
    return []


def _lasso_penalty(settings: FunctionSettings, counts: Sequence[int], seed: int) -> float:
    generator = torch.Generator().manual_seed(derive_seed("lasso", seed) % 2**63)
    prompts = sample(settings, _CHOOSING_PROMPTS, max(counts) + 1, generator)
    return choose_lasso_penalty(prompts.inputs, prompts.targets, prompts.clean, counts)
