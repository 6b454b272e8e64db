"""Baselines with a formula, for all prompts and all numbers of examples at once.

B prompts, K points, d dimensions. Row n of every result is computed from the examples 0..n-1 alone; with none of them
every baseline predicts 0. Work is done in float64, since near n = d the least squares problem is nearly singular.
"""

import torch
from torch import Tensor


def zero(inputs: Tensor, targets: Tensor) -> Tensor:
    """Predict 0 everywhere: its mean squared error is the scale of the error. Returns [B, K]."""
    require_prompts(inputs, targets)
    return torch.zeros_like(targets)


def averaging(inputs: Tensor, targets: Tensor) -> Tensor:
    """Predict with the weights w = mean(y_i x_i), right in expectation for inputs of unit covariance.

    Args:
        inputs: [B, K, d]
        targets: [B, K]

    Returns:
        [B, K] predictions in the type of ``targets``.

    Source:
        Garg et al., arXiv:2208.01066, section 3.
    """
    return predict_linear(averaging_weights(inputs, targets), inputs, targets)


def least_squares(inputs: Tensor, targets: Tensor) -> Tensor:
    """Predict with the shortest weights among those that fit the examples best: [B, K, d], [B, K] -> [B, K]."""
    return predict_linear(least_squares_weights(inputs, targets), inputs, targets)


def ridge(inputs: Tensor, targets: Tensor, penalty: float) -> Tensor:
    """Predict with the minimiser of |Xw - y|^2 + penalty |w|^2.

    With noise of standard deviation sigma and weights drawn with standard deviation tau, ``penalty`` =
    sigma^2 / tau^2 makes it the Bayes prediction.

    Args:
        inputs: [B, K, d]
        targets: [B, K]
        penalty: > 0, in units of the squared inputs.

    Returns:
        [B, K] predictions.

    Raises:
        ValueError: the penalty is not positive.

    Source:
        Akyuerek et al., arXiv:2211.15661, section 4.
    """
    return predict_linear(ridge_weights(inputs, targets, penalty), inputs, targets)


def nearest_neighbours(inputs: Tensor, targets: Tensor, num_neighbours: int = 3) -> Tensor:
    """Predict the mean target of the nearest examples, of all of them while there are fewer.

    Args:
        inputs: [B, K, d]; near is the Euclidean distance.
        targets: [B, K]
        num_neighbours: at least 1.

    Returns:
        [B, K] predictions.
    """
    require_prompts(inputs, targets)
    if num_neighbours < 1:
        raise ValueError(f"num_neighbours is at least 1, got {num_neighbours}")
    points = inputs.double()
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    is_earlier = torch.ones_like(distances, dtype=torch.bool).tril(-1)
    order = distances.masked_fill(~is_earlier, torch.inf).argsort(dim=-1, stable=True)[..., :num_neighbours]
    count = torch.arange(points.shape[1], device=points.device)[:, None]
    is_used = torch.arange(order.shape[-1], device=points.device) < count
    near = targets.double()[:, None, :].expand_as(distances).gather(-1, order)
    return ((near * is_used).sum(-1) / is_used.sum(-1).clamp(min=1)).to(targets.dtype)


def averaging_weights(inputs: Tensor, targets: Tensor) -> Tensor:
    """Return mean(y_i x_i) over the first n examples: [B, K, d], 0 for n = 0."""
    _, moments = normal_equations(inputs, targets)
    count = torch.arange(inputs.shape[1], device=inputs.device).clamp(min=1)
    return moments / count[:, None]


def least_squares_weights(inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the minimum-norm least squares weights of the first n examples.

    Args:
        inputs: [B, K, d]
        targets: [B, K]

    Returns:
        [B, K, d] float64: pinv(X_n) y_n, and 0 for n = 0.
    """
    require_prompts(inputs, targets)
    weights = torch.zeros_like(inputs, dtype=torch.float64)
    for count in range(1, inputs.shape[1]):
        weights[:, count] = fit_least_squares(inputs[:, :count], targets[:, :count])
    return weights


def fit_least_squares(points: Tensor, values: Tensor) -> Tensor:
    """Return the minimum-norm least squares weights of all examples: [B, n, d], [B, n] -> [B, d] float64, n >= 1."""
    weights: Tensor = (torch.linalg.pinv(points.double()) @ values.double()[..., None]).squeeze(-1)
    return weights


def ridge_weights(inputs: Tensor, targets: Tensor, penalty: float) -> Tensor:
    """Return (X_n' X_n + penalty I)^-1 X_n' y_n for every n: [B, K, d] float64.

    Raises:
        ValueError: the penalty is not positive.
    """
    return _solve_ridge(*normal_equations(inputs, targets), penalty)


def fit_ridge(points: Tensor, values: Tensor, penalty: float) -> Tensor:
    """Return the ridge weights of all examples: [B, n, d], [B, n] -> [B, d] float64. Raises as ``ridge``."""
    exact = points.double()
    return _solve_ridge(exact.mT @ exact, (exact.mT @ values.double()[..., None]).squeeze(-1), penalty)


def bayes_penalty(noise_std: float, weight_std: float) -> float:
    """Return the penalty with which ridge is the Bayes prediction: noise variance by weight variance."""
    return (noise_std / weight_std) ** 2


def normal_equations(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return S_n = X_n' X_n, [B, K, d, d], and X_n' y_n, [B, K, d], of the first n examples, in float64."""
    require_prompts(inputs, targets)
    points, values = inputs.double(), targets.double()
    grams = _earlier_sums(points[..., :, None] * points[..., None, :])
    return grams, _earlier_sums(points * values[..., None])


def predict_linear(weights: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return w_n . x_n in the type of ``targets``: [B, K, d], [B, K, d] -> [B, K]."""
    return (weights * inputs.to(weights.dtype)).sum(-1).to(targets.dtype)


def require_prompts(inputs: Tensor, targets: Tensor) -> None:
    """Raise ValueError unless the shapes are [B, K, d] and [B, K]."""
    if inputs.ndim != 3 or inputs.shape[:2] != targets.shape:
        raise ValueError(
            f"prompts are inputs [B, K, d] and targets [B, K], got {list(inputs.shape)} and {list(targets.shape)}"
        )


def _solve_ridge(grams: Tensor, moments: Tensor, penalty: float) -> Tensor:
    if not penalty > 0:
        raise ValueError(f"the penalty of ridge is positive, got {penalty}. At 0 it is least_squares.")
    identity = torch.eye(grams.shape[-1], dtype=grams.dtype, device=grams.device)
    solved: Tensor = torch.linalg.solve(grams + penalty * identity, moments)
    return solved


def _earlier_sums(terms: Tensor) -> Tensor:
    """Sum over the points before each point: [B, K, ...], the first row 0."""
    sums = torch.zeros_like(terms)
    sums[:, 1:] = terms.cumsum(1)[:, :-1]
    return sums
