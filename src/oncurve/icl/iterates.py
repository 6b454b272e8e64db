"""Iterative Newton and gradient descent on the examples of a prompt, after any number of iterations.

B prompts, K points, d dimensions, T chosen numbers of iterations. S_n = X_n' X_n of the first n examples.

Newton    M_0 = a S, M <- 2 M - M S M, w = M X'y           a = 1 / |S S'|_F
GD        w_0 = 0,  w <- w - eta X'(X w - y)               eta = 1 / (largest eigenvalue of S), or given

Both keep the eigenvectors of S and act on each eigenvalue s alone: with r = 1 - s m the residual of an eigenvalue,
Newton squares r in every iteration and GD multiplies it by 1 - eta s. After t iterations the weights are

    w_t = sum_j v_j (1 - r_j(t)) / s_j (v_j . X'y),    r_j(t) = (1 - a s_j^2)^(2^t) or (1 - eta s_j)^t

so one eigendecomposition gives all iterates, without the rounding errors that 2 M - M S M doubles outside the range
of S. Tests compare this with the recurrences above.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from oncurve.icl.baselines.closed import normal_equations


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The least squares problems of all prompts and numbers of examples, in their eigenvectors; float64."""

    eigenvalues: Tensor
    """[B, K, d], not negative, rising."""
    eigenvectors: Tensor
    """[B, K, d, d], one a column."""
    moments: Tensor
    """[B, K, d] X'y in these coordinates."""


def spectrum(inputs: Tensor, targets: Tensor) -> Spectrum:
    """Decompose S_n of every prompt and number of examples: [B, K, d], [B, K] -> Spectrum."""
    grams, moments = normal_equations(inputs, targets)
    values, vectors = torch.linalg.eigh(grams)
    return Spectrum(values.clamp(min=0), vectors, (vectors.mT @ moments[..., None]).squeeze(-1))


def newton_weights(problem: Spectrum, num_iterations: int) -> Tensor:
    """Return the weights after so many Newton iterations, 0 for those of M_0: [B, K, d].

    Source:
        Fu et al., arXiv:2310.17086, section 3.
    """
    _require_iterations(num_iterations)
    squares = problem.eigenvalues.square()
    norm = squares.norm(dim=-1, keepdim=True)  # |S S'|_F
    step = torch.where(norm > 0, 1 / norm, 0.0)
    return _weights(problem, step * squares, 2.0**num_iterations)


def descent_weights(problem: Spectrum, num_steps: int, step_size: float | None = None) -> Tensor:
    """Return the weights after so many steps of gradient descent from 0: [B, K, d].

    Args:
        problem: of ``spectrum``.
        num_steps: 0 or more.
        step_size: on the gradient X'(Xw - y), the same at every step; None takes 1 / (largest eigenvalue of S_n).

    Source:
        Fu et al., arXiv:2310.17086, section 3.
    """
    _require_iterations(num_steps)
    largest = problem.eigenvalues[..., -1:]
    step = torch.where(largest > 0, 1 / largest, 0.0) if step_size is None else torch.full_like(largest, step_size)
    return _weights(problem, step * problem.eigenvalues, float(num_steps))


def _weights(problem: Spectrum, shrink: Tensor, power: float) -> Tensor:
    """Weights whose residual in each eigenvector is (1 - shrink)^power."""
    small = -torch.expm1(power * torch.log1p(-shrink))  # exact where almost nothing is done yet
    done = torch.where(shrink < 0.5, small, 1 - (1 - shrink).pow(power))
    scale = torch.where(problem.eigenvalues > 0, done / problem.eigenvalues, 0.0)
    return (problem.eigenvectors @ (scale * problem.moments)[..., None]).squeeze(-1)


def _require_iterations(number: int) -> None:
    if number < 0:
        raise ValueError(f"a number of iterations is 0 or more, got {number}")
