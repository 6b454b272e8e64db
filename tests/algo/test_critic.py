"""The critic's loss, its clip, and how much it explains."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oncurve.algo import clipped_value_loss, explained_variance, value_clip_fraction

NAN = float("nan")


def real(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def everywhere(values: Tensor) -> Tensor:
    return torch.ones_like(values, dtype=torch.bool)


def test_loss_and_gradient_on_paper() -> None:
    # V_clip = .7, .2, .5. Errors: max(.01, .09), .04, .25; half of them; the first is clipped, the others have V - R.
    values = real([0.9, 0.2, 0.5]).requires_grad_()
    old, returns = real([0.5, 0.4, 0.5]), real([1, 0, 0])
    losses = clipped_value_loss(values, old, returns, clip=0.2)
    assert losses.tolist() == pytest.approx([0.045, 0.02, 0.125])
    [gradient] = torch.autograd.grad(losses.sum() / 3, values)
    assert gradient.tolist() == pytest.approx([0.0, 0.2 / 3, 0.5 / 3])
    assert value_clip_fraction(values, old, returns, everywhere(old), clip=0.2) == pytest.approx(1 / 3)


def test_moving_away_is_never_clipped() -> None:
    # From .5 to .9 and to .1, past the clip, where the returns were .4 and .6: errors .5, against .3 when clipped.
    values = real([0.9, 0.1]).requires_grad_()
    old, returns = real([0.5, 0.5]), real([0.4, 0.6])
    losses = clipped_value_loss(values, old, returns, clip=0.2)
    assert losses.tolist() == pytest.approx([0.125, 0.125])
    assert torch.autograd.grad(losses.sum(), values)[0].tolist() == pytest.approx([0.5, -0.5])
    assert value_clip_fraction(values, old, returns, everywhere(old), clip=0.2) == 0.0


def test_the_clip_acts_in_both_directions() -> None:
    # Towards returns of 1 and -1, past .25 on either side: 0.5 * .75^2, no gradient.
    values = real([0.5, -0.5]).requires_grad_()
    old, returns = real([0.0, 0.0]), real([1.0, -1.0])
    losses = clipped_value_loss(values, old, returns, clip=0.25)
    assert losses.tolist() == [0.28125, 0.28125]
    assert torch.autograd.grad(losses.sum(), values)[0].tolist() == [0.0, 0.0]


def test_without_a_clip_it_is_half_the_squared_error() -> None:
    values = real([0.5, -2.0]).requires_grad_()
    old, returns = real([9.0, 9.0]), real([1.0, 1.0])
    losses = clipped_value_loss(values, old, returns, clip=None)
    assert losses.tolist() == [0.125, 4.5]
    assert torch.autograd.grad(losses.sum(), values)[0].tolist() == [-0.5, -3.0]
    assert value_clip_fraction(values, old, returns, everywhere(old), clip=None) == 0.0


FLOATS = st.lists(st.tuples(*[st.floats(-2, 2, width=32)] * 3), min_size=1, max_size=8)


@given(FLOATS, st.floats(0.01, 1))
def test_inside_the_clip_nothing_is_clipped_to_the_bit(rows, clip) -> None:
    values, moves, returns = torch.tensor(rows).T
    old = values - clip * (moves / 2.1)
    losses = clipped_value_loss(values, old, returns, clip=clip)
    assert torch.equal(losses, 0.5 * (values - returns) ** 2)
    assert value_clip_fraction(values, old, returns, everywhere(old), clip=clip) == 0.0


@given(FLOATS, st.floats(0.01, 1))
def test_the_gradient_is_that_of_finite_differences(rows, clip) -> None:
    values, old, returns = real(rows).T
    leaf = values.clone().requires_grad_()
    [gradient] = torch.autograd.grad(clipped_value_loss(leaf, old, returns, clip=clip).sum(), leaf)
    step = 1e-4
    up, here, down = (clipped_value_loss(values + sign * step, old, returns, clip=clip) for sign in (1, 0, -1))
    is_smooth = (up - 2 * here + down).abs() < 2 * step**2  # step^2 on either parabola, more across a kink
    assert torch.allclose(gradient[is_smooth], ((up - down) / (2 * step))[is_smooth], atol=1e-3)


@given(FLOATS)
def test_the_clip_only_ever_adds_loss(rows) -> None:
    values, old, returns = real(rows).T
    plain = clipped_value_loss(values, old, returns, clip=None)
    assert bool((clipped_value_loss(values, old, returns, clip=0.3) >= plain).all())


def test_targets_carry_no_gradient_and_half_precision_is_left() -> None:
    values = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    old, returns = torch.zeros(2, requires_grad=True), torch.zeros(2, dtype=torch.float64, requires_grad=True)
    losses = clipped_value_loss(values, old, returns, clip=0.2)
    assert losses.dtype == torch.float32
    losses.sum().backward()
    assert old.grad is None
    assert returns.grad is None


def test_the_clip_fraction_sees_valid_tokens_only() -> None:
    # Valid: clipped, not clipped; outside: three that would be clipped, one that is garbage.
    values, old = real([1, 0, 1, 1, 1, NAN]), real([0, 0, 0, 0, 0, NAN])
    returns, mask = real([2, 2, 2, 2, 2, NAN]), torch.tensor([True, True, False, False, False, False])
    assert value_clip_fraction(values, old, returns, mask, clip=0.2) == 0.5
    with pytest.raises(ValueError, match="no token at all"):
        value_clip_fraction(values, old, returns, ~everywhere(values), clip=0.2)


@pytest.mark.parametrize("clip", [0.0, -0.2, NAN])
def test_a_clip_of_nothing_is_refused(clip) -> None:
    with pytest.raises(ValueError, match="clip must be positive"):
        clipped_value_loss(torch.ones(1), torch.ones(1), torch.ones(1), clip=clip)


def test_different_shapes_are_refused() -> None:
    one, two = torch.ones(1), torch.ones(2)
    for arguments in [(two, one, one), (one, two, one), (one, one, two)]:
        with pytest.raises(ValueError, match="one common shape"):
            clipped_value_loss(*arguments, clip=0.2)
    with pytest.raises(ValueError, match="one common shape"):
        value_clip_fraction(one, one, one, everywhere(two), clip=0.2)
    with pytest.raises(ValueError, match="one common shape"):
        explained_variance(one, one, everywhere(two))


def test_explained_variance_on_paper() -> None:
    # Errors .5, -.2, .1, -.4: mean 0, squares .25 + .04 + .01 + .16 = .46, variance .115; that of the returns is .25.
    values, returns = real([0.5, 0.2, 0.9, 0.4, NAN]), real([1, 0, 1, 0, NAN])
    mask = torch.tensor([True, True, True, True, False])
    assert explained_variance(values, returns, mask) == pytest.approx(1 - 0.115 / 0.25)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 0.0, 0.0], 1.0),
        ([7.0, 6.0, 6.0], 1.0),  # off by 6 everywhere: the spread is explained
        ([0.4, 0.4, 0.4], 0.0),
        ([-1.0, 0.0, 0.0], -3.0),  # errors 2, 0, 0 have four times the variance of 1, 0, 0
    ],
)
def test_what_the_explained_variance_tells_apart(values, expected) -> None:
    returns = real([1, 0, 0])
    assert explained_variance(real(values), returns, everywhere(returns)) == pytest.approx(expected)


def test_returns_without_spread_have_no_explained_variance() -> None:
    values = torch.tensor([0.1, 0.9, 0.5])
    assert explained_variance(values, torch.full((3,), 0.7), everywhere(values)) is None
    rounded = torch.tensor([0.7, 0.7, 0.7]) + torch.tensor([0.0, 6e-8, -6e-8])  # as sums of A + V round
    assert explained_variance(values, rounded, everywhere(values)) is None
    assert explained_variance(values, rounded, everywhere(values), tolerance=0.0) < -1e6
    assert explained_variance(values, values, torch.tensor([True, False, False])) is None
    assert explained_variance(values, values, ~everywhere(values)) is None
