"""What a good statistician would predict: every baseline takes the prompts a model takes and answers at every place.

Shapes: B prompts, K points a prompt, d input dimensions. Prediction n uses the first n examples only.
"""

from oncurve.icl.baselines.choice import (
    Baseline,
    bayes,
    quick_baselines_for,
    reference_of,
    strong_baselines_for,
    strong_counts,
)
from oncurve.icl.baselines.closed import (
    averaging,
    averaging_weights,
    bayes_penalty,
    fit_least_squares,
    fit_ridge,
    least_squares,
    least_squares_weights,
    nearest_neighbours,
    ridge,
    ridge_weights,
    zero,
)
from oncurve.icl.baselines.fitted import LASSO_PENALTIES, boosting, choose_lasso_penalty, lasso, tree
from oncurve.icl.baselines.two_layer import TwoLayerSettings, two_layer

__all__ = [
    "LASSO_PENALTIES",
    "Baseline",
    "TwoLayerSettings",
    "averaging",
    "averaging_weights",
    "bayes",
    "bayes_penalty",
    "boosting",
    "choose_lasso_penalty",
    "fit_least_squares",
    "fit_ridge",
    "lasso",
    "least_squares",
    "least_squares_weights",
    "nearest_neighbours",
    "quick_baselines_for",
    "reference_of",
    "ridge",
    "ridge_weights",
    "strong_baselines_for",
    "strong_counts",
    "tree",
    "two_layer",
    "zero",
]
