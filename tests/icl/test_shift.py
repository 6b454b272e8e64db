"""Shifts, on predictors whose answers are known."""

from functools import partial

import pytest

from oncurve.icl.baselines import least_squares, ridge, zero
from oncurve.icl.functions import FunctionSettings
from oncurve.icl.shift import ShiftSettings, shift

FUNCTIONS = FunctionSettings(dimension=4)
FEW = ShiftSettings(num_prompts=600, resamples=100)


@pytest.fixture(scope="module")
def of_least_squares():
    return shift(least_squares, FUNCTIONS, 9, FEW)


def test_answering_zero_scores_one_under_every_shift():
    found = shift(zero, FUNCTIONS, 9, ShiftSettings(num_prompts=1500, resamples=50))
    for row in found.rows:
        assert row.error == pytest.approx(1, abs=0.25), row.name
        assert row.interval[0] <= row.error <= row.interval[1]


def test_the_cases_and_their_places(of_least_squares):
    rows = of_least_squares.rows
    assert {row.place: row.count for row in rows} == {"d/2": 2, "d": 4, "2d": 8}
    assert len({row.name for row in rows}) == 19
    assert [row.place for row in rows if row.name == "query orthogonal to the examples"] == ["d/2"]
    assert of_least_squares.find("inputs × 1/3", "2d").paper == 0.30
    assert of_least_squares.find("skewed covariance", "2d").paper is None
    assert of_least_squares.find("none of these", "2d") is None


def test_least_squares_is_its_own_reference(of_least_squares):
    for row in of_least_squares.rows:
        if row.name != "noisy targets":
            assert row.error == pytest.approx(row.reference_error, abs=1e-6)
            assert row.reference_name == "least squares"
        if row.place == "2d" and row.name != "noisy targets":
            assert row.error < 1e-6


def test_ridge_is_the_reference_of_noisy_targets(of_least_squares):
    row = of_least_squares.find("noisy targets", "d")
    assert row.reference_name == "ridge"
    assert row.reference_error < row.error
    best = shift(partial(ridge, penalty=4 / 20), FUNCTIONS, 9, FEW).find("noisy targets", "d")
    assert best.error == pytest.approx(best.reference_error)


def test_nothing_can_be_known_of_an_orthogonal_query(of_least_squares):
    assert of_least_squares.find("query orthogonal to the examples", "d/2").error == pytest.approx(1, abs=0.2)


def test_ridge_suffers_from_small_inputs_and_not_from_large_weights():
    found = shift(partial(ridge, penalty=1.0), FUNCTIONS, 9, FEW)
    small, plain = found.find("inputs × 1/3", "2d").error, found.find("as in training", "2d").error
    assert small > 3 * plain
    assert found.find("weights × 3", "2d").error == pytest.approx(plain)  # linear in the weights
    assert found.find("query × 4", "2d").error == pytest.approx(plain)


def test_a_sparse_class_is_measured_by_its_own_scale():
    functions = FunctionSettings(kind="sparse", dimension=4, sparsity=1, weight_std=3.0)
    found = shift(zero, functions, 9, ShiftSettings(num_prompts=1500, resamples=50))
    assert found.find("weights × 2", "d").error == pytest.approx(9, abs=2.5)


def test_classes_without_weights_are_refused():
    with pytest.raises(ValueError, match="this run learnt 'tree'"):
        shift(zero, FunctionSettings(kind="tree", tree_depth=2), 9, FEW)


def test_a_short_prompt_leaves_places_out():
    assert {row.place for row in shift(zero, FUNCTIONS, 5, FEW).rows} == {"d/2", "d"}


def test_settings_do_something():
    base = {"num_prompts": 50, "resamples": 50, "seed": 0}
    found = [
        shift(least_squares, FUNCTIONS, 3, ShiftSettings(**(base | change))).rows[0]
        for change in ({}, {"num_prompts": 60}, {"seed": 1}, {"resamples": 60})
    ]
    assert len({row.error for row in found}) == 3
    assert len({row.interval for row in found}) == 4
