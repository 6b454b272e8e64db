"""Measures of likeness, by hand."""

from functools import partial

import pytest
import torch

from oncurve.icl.baselines import averaging, least_squares, least_squares_weights, ridge, ridge_weights
from oncurve.icl.functions import FunctionSettings, sample
from oncurve.icl.similarity import (
    error_similarity,
    gradient_cosine,
    induced_weights,
    prediction_difference,
    weight_difference,
    weight_similarity,
)

TARGETS = torch.tensor([[9.0, 1.0, 1.0], [9.0, 0.0, 0.0]])


def test_error_similarity_by_hand():
    # Errors after the first place: (3, 4) and (4, 3), cosine 24/25; (1, 0) and (0, 2), cosine 0. Mean 0.48.
    first = torch.tensor([[0.0, 4.0, 5.0], [0.0, 1.0, 0.0]])
    second = torch.tensor([[0.0, 5.0, 4.0], [0.0, 0.0, 2.0]])
    assert error_similarity(first, second, TARGETS) == pytest.approx(0.48)
    # With the first place, errors (-9, 3, 4) and (-9, 4, 3): (81 + 24)/106; (-9, 1, 0) and (-9, 0, 2): 81/sqrt(82 85).
    expected = (105 / 106 + 81 / (82 * 85) ** 0.5) / 2
    assert error_similarity(first, second, TARGETS, start=0) == pytest.approx(expected)


def test_opposite_errors_and_no_errors():
    exact = TARGETS
    wrong = TARGETS + torch.tensor([[0.0, 1.0, -2.0]])
    assert error_similarity(wrong, 2 * TARGETS - wrong, TARGETS) == pytest.approx(-1)
    assert error_similarity(exact, exact, TARGETS) == 1
    assert error_similarity(exact, wrong, TARGETS) == 0


def test_differences_by_hand():
    first, second = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    assert prediction_difference(first, second).tolist() == [4.5, 10.0]  # (0 + 9)/2, (4 + 16)/2
    assert weight_difference(first, second) == 14.5  # (4 + 25)/2
    assert weight_similarity(first, torch.tensor([[2.0, -1.0], [6.0, 8.0]])) == pytest.approx(0.5)  # (0 + 1)/2


def drawn():
    return sample(FunctionSettings(dimension=3, noise_std=0.5), 6, 6, torch.Generator().manual_seed(0))


def test_induced_weights_of_a_linear_predictor_are_its_weights():
    prompts = drawn()
    queries = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))
    predict = partial(ridge, penalty=0.3)
    for count in (1, 5):
        found = induced_weights(predict, prompts.inputs, prompts.targets, count, queries)
        expected = ridge_weights(prompts.inputs, prompts.targets, 0.3)[:, count]
        assert torch.allclose(found, expected, atol=1e-5)
    with pytest.raises(ValueError, match="at least d = 3 queries"):
        induced_weights(predict, prompts.inputs, prompts.targets, 2, queries[:2])


def test_the_gradient_of_a_linear_predictor_is_its_weights():
    prompts = drawn()
    weights = least_squares_weights(prompts.inputs, prompts.targets)[:, 5]
    assert gradient_cosine(least_squares, prompts.inputs, prompts.targets, weights, 5) == pytest.approx(1)
    assert gradient_cosine(averaging, prompts.inputs, prompts.targets, weights, 5) < 0.99
    assert gradient_cosine(least_squares, prompts.inputs, prompts.targets, -weights, 5) == pytest.approx(-1)
