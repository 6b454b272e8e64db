"""Measures of likeness, by hand."""

from functools import partial

import pytest
import torch

from oncurve.icl.baselines import averaging, least_squares, ridge, ridge_weights
from oncurve.icl.functions import FunctionSettings, sample
from oncurve.icl.similarity import (
    error_similarity,
    induced_weights,
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


def test_weight_similarity_by_hand():
    first = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert weight_similarity(first, torch.tensor([[2.0, -1.0], [6.0, 8.0]])) == pytest.approx(0.5)  # (0 + 1)/2
    assert weight_similarity(first, torch.zeros(2, 2)) == 0
    assert weight_similarity(torch.zeros(2, 2), torch.zeros(2, 2)) == 1


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


def test_a_constant_moves_no_weight_when_opposite_queries_are_asked():
    prompts = drawn()
    half = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))

    def moved(inputs, targets):
        return least_squares(inputs, targets) + 7.0

    found = induced_weights(moved, prompts.inputs, prompts.targets, 5, torch.cat([half, -half]))
    assert torch.allclose(found, induced_weights(least_squares, prompts.inputs, prompts.targets, 5, half), atol=1e-4)


def test_several_predictors_are_asked_at_once():
    prompts = drawn()
    queries = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))

    def both(inputs, targets):
        return torch.stack([least_squares(inputs, targets), averaging(inputs, targets)])

    found = induced_weights(both, prompts.inputs, prompts.targets, 5, queries)
    for weights, alone in zip(found, (least_squares, averaging), strict=True):
        assert torch.equal(weights, induced_weights(alone, prompts.inputs, prompts.targets, 5, queries))
