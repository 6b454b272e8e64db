"""Baselines that scikit-learn fits one prompt and one number of examples at a time, hence only at chosen places.

B prompts, K points, d dimensions, C chosen numbers of examples. Where nothing was fitted the prediction is NaN.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import Lasso
from sklearn.tree import DecisionTreeRegressor
from torch import Tensor

from oncurve.icl.baselines.closed import require_prompts

LASSO_PENALTIES = (1.0, 0.1, 0.01, 0.001, 0.0001)
"""Those among which Garg et al. take the best."""
_MAX_ITERATIONS = 20_000

Factory = Callable[[], Any]
"""Makes an unfitted regressor of scikit-learn."""


def lasso(inputs: Tensor, targets: Tensor, penalty: float, counts: Sequence[int], *, num_jobs: int = 1) -> Tensor:
    """Predict with the minimiser of |Xw - y|^2 / (2n) + penalty |w|_1, without intercept.

    Args:
        inputs: [B, K, d]
        targets: [B, K]
        penalty: > 0
        counts: numbers of examples at which to predict; a prediction from none is 0.
        num_jobs: threads.

    Returns:
        [B, K] predictions, NaN where the number of examples is not in ``counts``.

    Source:
        Garg et al., arXiv:2208.01066, section 5 and appendix.
    """
    return _predict_fitted(
        lambda: Lasso(alpha=penalty, fit_intercept=False, max_iter=_MAX_ITERATIONS), inputs, targets, counts, num_jobs
    )


def choose_lasso_penalty(inputs: Tensor, targets: Tensor, clean: Tensor, counts: Sequence[int]) -> float:
    """Return the penalty among ``LASSO_PENALTIES`` with the lowest mean error on these prompts.

    Args:
        inputs: [B, K, d]
        targets: [B, K] what is fitted.
        clean: [B, K] what is to be predicted.
        counts: numbers of examples over which the error is averaged.
    """
    places = list(counts)

    def error(penalty: float) -> float:
        predictions = lasso(inputs, targets, penalty, places)[:, places]
        return float((predictions - clean[:, places]).square().mean())

    return min(LASSO_PENALTIES, key=error)


def tree(
    inputs: Tensor,
    targets: Tensor,
    counts: Sequence[int],
    *,
    max_depth: int | None = None,
    on_signs: bool = False,
    num_jobs: int = 1,
) -> Tensor:
    """Predict with a tree grown greedily, split by split.

    Args:
        inputs: [B, K, d]
        targets: [B, K]
        counts: numbers of examples at which to predict.
        max_depth: None grows until the leaves are pure.
        on_signs: look at the signs of the inputs only, which is all that trees with thresholds at 0 look at.
        num_jobs: threads.

    Returns:
        [B, K] predictions, NaN where the number of examples is not in ``counts``.
    """
    seen = inputs.sign() if on_signs else inputs
    return _predict_fitted(
        lambda: DecisionTreeRegressor(max_depth=max_depth, random_state=0), seen, targets, counts, num_jobs
    )


def boosting(
    inputs: Tensor,
    targets: Tensor,
    counts: Sequence[int],
    *,
    num_trees: int = 50,
    max_depth: int = 4,
    learning_rate: float = 0.1,
    on_signs: bool = False,
    num_jobs: int = 1,
) -> Tensor:
    """Predict with gradient-boosted trees: [B, K, d], [B, K] -> [B, K], NaN where not fitted.

    The defaults are the settings that Garg et al. give to XGBoost. ``on_signs`` and ``num_jobs`` as in ``tree``.
    """
    seen = inputs.sign() if on_signs else inputs
    return _predict_fitted(
        lambda: GradientBoostingRegressor(
            n_estimators=num_trees, max_depth=max_depth, learning_rate=learning_rate, random_state=0
        ),
        seen,
        targets,
        counts,
        num_jobs,
    )


def _predict_fitted(factory: Factory, inputs: Tensor, targets: Tensor, counts: Sequence[int], num_jobs: int) -> Tensor:
    require_prompts(inputs, targets)
    require_counts(counts, inputs.shape[1])
    points, values = inputs.double().cpu().numpy(), targets.double().cpu().numpy()
    rows = Parallel(n_jobs=num_jobs, prefer="threads")(
        delayed(_predict_prompt)(factory, points[row], values[row], counts) for row in range(len(points))
    )
    predictions = torch.full_like(targets, torch.nan)
    fitted = torch.as_tensor(np.array(rows).reshape(len(points), len(counts)), dtype=targets.dtype)
    predictions[:, list(counts)] = fitted.to(targets.device)
    return predictions


def _predict_prompt(
    factory: Factory, points: np.ndarray[Any, Any], values: np.ndarray[Any, Any], counts: Sequence[int]
) -> list[float]:
    return [
        float(factory().fit(points[:count], values[:count]).predict(points[count : count + 1])[0]) if count else 0.0
        for count in counts
    ]


def require_counts(counts: Sequence[int], num_points: int) -> None:
    """Raise ValueError unless every number of examples leaves a point of the prompt to predict."""
    if wrong := [count for count in counts if not 0 <= count < num_points]:
        raise ValueError(f"numbers of examples are in 0..{num_points - 1} for prompts of {num_points} points: {wrong}")
