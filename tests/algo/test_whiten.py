"""Whitening over valid entries."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oncurve.algo import whiten


def test_whitening_on_paper() -> None:
    # 1, 2, 6: mean 3, squares 4 + 1 + 9 = 14; (14/3 + 1/3) = 5 with ddof 0, 7 + 2 = 9 with ddof 1.
    values, mask = torch.tensor([1.0, 2.0, 6.0, 1e9]), torch.tensor([True, True, True, False])
    population = whiten(values, mask, ddof=0, eps=1 / 3)
    assert population.tolist() == pytest.approx([-2 / 5**0.5, -1 / 5**0.5, 3 / 5**0.5, 0.0])
    kept_mean = whiten(values, mask, ddof=1, eps=2.0, shift_mean=False)
    assert kept_mean.tolist() == pytest.approx([3 - 2 / 3, 3 - 1 / 3, 4.0, 0.0])


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_the_mean_becomes_zero(values: list[float]) -> None:
    found = whiten(torch.tensor(values, dtype=torch.float64), torch.ones(len(values)) > 0, ddof=1, eps=1e-8)
    assert found.sum().item() == pytest.approx(0, abs=1e-8)


def test_entries_may_count_several_times_and_the_variance_may_have_a_floor() -> None:
    # 2, 2, 2, -2: mean 1, squares 3 + 9 = 12, var 3.
    values, counts = torch.tensor([2.0, -2.0, float("nan")]), torch.tensor([3, 1, 0])
    assert whiten(values, counts, ddof=0, eps=1.0).tolist() == [0.5, -1.5, 0.0]
    assert whiten(values, counts, ddof=1, eps=1.0, var_floor=16.0).tolist() == [0.25, -0.75, 0.0]


def test_equal_entries_are_exactly_zero() -> None:
    values, everything = torch.full((15,), 0.7), torch.ones(15) > 0
    assert torch.equal(whiten(values, everything, ddof=1, eps=0.0), torch.zeros(15))
    assert torch.equal(whiten(values, everything, ddof=1, eps=0.0, shift_mean=False), values)


def test_no_gradient_flows() -> None:
    assert not whiten(torch.rand(3, requires_grad=True), torch.ones(3) > 0, ddof=0, eps=1e-8).requires_grad


def test_too_few_entries_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 1 valid entries, got 1"):
        whiten(torch.ones(2), torch.tensor([True, False]), ddof=1, eps=1e-8)
    assert whiten(torch.ones(2), torch.tensor([True, False]), ddof=0, eps=1e-8).tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="common shape"):
        whiten(torch.ones(2), torch.ones(3) > 0, ddof=0, eps=1e-8)
