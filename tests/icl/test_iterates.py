"""Iterates against the recurrences they stand for, and on paper."""

from math import sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.icl.baselines import least_squares_weights
from oncurve.icl.functions import FunctionSettings, sample
from oncurve.icl.iterates import descent_weights, newton_weights, spectrum

# Examples (1, 0) -> 3 and (0, sqrt 2) -> 4 sqrt 2: S = diag(1, 2), X'y = (3, 8), w = (3, 4).
INPUTS = torch.tensor([[[1.0, 0.0], [0.0, sqrt(2)], [1.0, 1.0]]], dtype=torch.float64)
TARGETS = torch.tensor([[3.0, 4 * sqrt(2), 7.0]], dtype=torch.float64)


def test_newton_on_one_number():
    # S = 4, a = 1/16, M_0 = 1/4 = 1/S: exact at once. y = 6 at x = 2, so 3 x.
    problem = spectrum(torch.tensor([[[2.0], [5.0]]]), torch.tensor([[6.0, 0.0]]))
    assert [newton_weights(problem, t)[0, :, 0].tolist() for t in (0, 1, 4)] == [[0, 3]] * 3


def test_newton_in_the_plane():
    # a = 1/sqrt(1 + 16). M_0 = diag(1, 2)/sqrt 17: w = (3/sqrt 17, 16/sqrt 17).
    # Residuals r = (1 - 1/sqrt 17, 1 - 4/sqrt 17) are squared by each iteration, and w = (3 (1 - r_1), 4 (1 - r_2)).
    problem = spectrum(INPUTS, TARGETS)
    assert newton_weights(problem, 0)[0, 2].tolist() == pytest.approx([3 / sqrt(17), 16 / sqrt(17)])
    first, second = 1 - 1 / sqrt(17), 1 - 4 / sqrt(17)
    assert newton_weights(problem, 1)[0, 2].tolist() == pytest.approx([3 * (1 - first**2), 4 * (1 - second**2)])
    assert newton_weights(problem, 3)[0, 2].tolist() == pytest.approx([3 * (1 - first**8), 4 * (1 - second**8)])


def test_descent_in_the_plane():
    # eta = 1/2: residuals 1/2 and 0. One step w = (3/2, 4), two steps (9/4, 4).
    problem = spectrum(INPUTS, TARGETS)
    assert [descent_weights(problem, t)[0, 2].tolist() for t in (0, 1, 2)] == [
        [0, 0],
        pytest.approx([1.5, 4]),
        pytest.approx([2.25, 4]),
    ]
    # eta = 1/4: residuals 3/4 and 1/2, and w = (3/4, 2) after a step.
    assert descent_weights(problem, 1, 0.25)[0, 2].tolist() == pytest.approx([0.75, 2])


def test_a_step_that_is_too_long_runs_away():
    # eta = 1.5 on s = 2: the residual is -2 after a step, -8 after three.
    problem = spectrum(INPUTS, TARGETS)
    assert descent_weights(problem, 3, 1.5)[0, 2].tolist() == pytest.approx([3 * (1 + 0.125), 4 * (1 + 8)])


@given(st.integers(0, 10_000), st.integers(0, 12))
@settings(max_examples=25)
def test_they_are_what_the_recurrences_give(seed, iterations):
    drawn = sample(FunctionSettings(dimension=3, noise_std=0.3), 2, 7, torch.Generator().manual_seed(seed))
    problem = spectrum(drawn.inputs, drawn.targets)
    newton, descent = newton_weights(problem, iterations), descent_weights(problem, iterations, 0.01)
    for row, count in ((0, 1), (0, 3), (1, 6)):
        points, values = drawn.inputs[row, :count].double(), drawn.targets[row, :count].double()
        gram, moment = points.T @ points, points.T @ values
        inverse, weights = gram / torch.linalg.matrix_norm(gram @ gram.T), torch.zeros(3, dtype=torch.float64)
        for _ in range(iterations):
            inverse = 2 * inverse - inverse @ gram @ inverse
            weights = weights - 0.01 * points.T @ (points @ weights - values)
        assert torch.allclose(newton[row, count], inverse @ moment, atol=1e-6)
        assert torch.allclose(descent[row, count], weights, atol=1e-8)


def test_both_end_at_least_squares_and_newton_in_far_fewer_iterations():
    drawn = sample(FunctionSettings(dimension=4, noise_std=0.3), 50, 12, torch.Generator().manual_seed(0))
    exact = least_squares_weights(drawn.inputs, drawn.targets)[:, 8:]
    problem = spectrum(drawn.inputs, drawn.targets)

    def distance(weights):
        return (weights[:, 8:] - exact).norm(dim=-1).max().item()

    assert distance(newton_weights(problem, 20)) < 1e-6
    assert distance(descent_weights(problem, 20)) > 1e-2
    assert distance(descent_weights(problem, 5000)) < 1e-6


def test_without_examples_both_say_nothing():
    problem = spectrum(INPUTS, TARGETS)
    assert newton_weights(problem, 5)[0, 0].tolist() == [0, 0]
    assert descent_weights(problem, 5)[0, 0].tolist() == [0, 0]


def test_negative_iterations_are_refused():
    with pytest.raises(ValueError, match="0 or more, got -1"):
        newton_weights(spectrum(INPUTS, TARGETS), -1)
    with pytest.raises(ValueError, match="0 or more, got -2"):
        descent_weights(spectrum(INPUTS, TARGETS), -2)
