"""Straight and geometric growth, by hand."""

import pytest

from oncurve.icl.trend import trend


def test_three_per_layer_is_a_straight_line():
    found = trend([0, 3, 6, 9, 12], last=24)
    assert found.layers == (1, 2, 3, 4)
    assert (found.linear.slope, found.linear.intercept) == (pytest.approx(3), pytest.approx(0, abs=1e-9))
    assert found.linear.r_squared == pytest.approx(1)
    assert found.geometric.r_squared < 0.97
    assert found.is_linear is True


def test_doubling_is_a_geometric_one():
    found = trend([1, 2, 4, 8, 16], last=64)
    assert found.layers == (0, 1, 2, 3, 4)
    assert found.geometric.slope == pytest.approx(1)
    assert found.geometric.r_squared == pytest.approx(1)
    # Straight line through 1, 2, 4, 8, 16: slope 36/10; 3.6^2 10 = 129.6 of the variance 148.8 is explained.
    assert found.linear.slope == pytest.approx(3.6)
    assert found.linear.r_squared == pytest.approx(129.6 / 148.8)
    assert found.is_linear is False


def test_layers_at_the_ends_do_not_count():
    # 0 has no logarithm, and the last one tried is only a lower bound.
    found = trend([0, 0, 2, 5, 8, 24, 24], last=24)
    assert found.layers == (2, 3, 4)
    assert found.linear.slope == pytest.approx(3)


@pytest.mark.parametrize("matched", [[0, 3, 6], [5, 5, 5, 5]])
def test_two_layers_or_one_iteration_make_no_trend(matched):
    found = trend(matched, last=24)
    assert found.linear is None
    assert found.geometric is None
    assert found.is_linear is None
