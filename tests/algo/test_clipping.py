"""The ratio and the clipped surrogate."""

from math import exp, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oncurve.algo import clipped_surrogate, importance_ratio


def surrogate_and_gradient(ratio: float, advantage: float, **options: float) -> tuple[float, float]:
    logprobs = torch.tensor([log(ratio)], dtype=torch.float64, requires_grad=True)
    settings = {"clip_low": 0.2, "clip_high": 0.3} | options
    loss = clipped_surrogate(
        logprobs,
        torch.zeros(1).double(),
        torch.tensor([advantage], dtype=torch.float64),
        **settings,  # type: ignore[arg-type]
    )
    loss.sum().backward()
    assert logprobs.grad is not None
    return loss.item(), logprobs.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.2, 2.0, -2.4, -2.4),  # inside the band
        (1.4, 2.0, -2.6, 0.0),  # too likely already: 1.3 * 2
        (0.5, 2.0, -1.0, -1.0),  # below the band, but the gain pulls back: kept
        (0.9, -2.0, 1.8, 1.8),  # inside
        (0.5, -2.0, 1.6, 0.0),  # unlikely enough: 0.8 * 2
        (1.4, -2.0, 2.8, 2.8),  # above the band, but the loss pulls back: kept
        (1.4, 0.0, 0.0, 0.0),
    ],
)
def test_the_six_corners(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    assert surrogate_and_gradient(ratio, advantage) == pytest.approx((loss, gradient))


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (5.0, -2.0, 6.0, 0.0),  # at most 3 * 2
        (2.5, -2.0, 5.0, 5.0),
        (5.0, 2.0, -2.6, 0.0),  # a gain is untouched
        (5.0, 0.5, -0.65, 0.0),
        (0.5, -2.0, 1.6, 0.0),
    ],
)
def test_dual_clip_and_ratio_cap_bound_the_loss_of_bad_tokens(
    ratio: float, advantage: float, loss: float, gradient: float
) -> None:
    assert surrogate_and_gradient(ratio, advantage, dual_clip=3.0) == pytest.approx((loss, gradient))
    assert surrogate_and_gradient(ratio, advantage, ratio_cap=3.0) == pytest.approx((loss, gradient))


@given(advantage=st.floats(-5, 5, allow_subnormal=False), logprob=st.floats(-10, 0))
def test_ratio_one_gives_reinforce(advantage: float, logprob: float) -> None:
    logprobs = torch.tensor([logprob], dtype=torch.float64, requires_grad=True)
    loss = clipped_surrogate(
        logprobs, logprobs, torch.tensor([advantage], dtype=torch.float64), clip_low=0.2, clip_high=0.3
    )
    assert loss.item() == -advantage
    assert torch.autograd.grad(loss.sum(), logprobs)[0].item() == -advantage


@given(ratio=st.floats(0.01, 50), advantage=st.floats(-5, 5))
def test_clipping_is_pessimistic(ratio: float, advantage: float) -> None:
    loss, _ = surrogate_and_gradient(ratio, advantage)
    assert loss >= -ratio * advantage - 1e-9


@pytest.mark.parametrize(("difference", "clamped"), [(19.9, 19.9), (25.0, 20.0), (-19.9, -19.9), (-25.0, -20.0)])
def test_the_log_ratio_is_clamped(difference: float, clamped: float) -> None:
    logprobs = torch.tensor([difference], dtype=torch.float64, requires_grad=True)
    ratio = importance_ratio(logprobs, torch.zeros(1).double())
    assert ratio.item() == pytest.approx(exp(clamped))
    gradient = torch.autograd.grad(ratio, logprobs)[0].item()
    assert gradient == (pytest.approx(exp(clamped)) if clamped == difference else 0.0)


def test_no_gradient_reaches_the_old_policy_or_the_advantages() -> None:
    tensors = [torch.tensor([value], requires_grad=True) for value in (-1.0, -1.1, 2.0)]
    clipped_surrogate(*tensors, clip_low=0.2, clip_high=0.2).sum().backward()
    assert [tensor.grad is None for tensor in tensors] == [False, True, True]


@pytest.mark.parametrize(
    ("given_dtype", "expected"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_ratios_are_at_least_float32(given_dtype: torch.dtype, expected: torch.dtype) -> None:
    ratio = importance_ratio(torch.tensor([-1.0], dtype=given_dtype), torch.tensor([-2.0], dtype=given_dtype))
    assert ratio.dtype is expected
    assert ratio.item() == pytest.approx(exp(1.0))


def test_different_shapes_are_refused_by_name() -> None:
    one, two = torch.zeros(1), torch.zeros(2)

    def call(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor) -> None:
        clipped_surrogate(logprobs, old_logprobs, advantages, clip_low=0.2, clip_high=0.2)

    with pytest.raises(ValueError, match=r"logprobs \[2\], old_logprobs \[2\], advantages \[1\]"):
        call(two, two, one)
    with pytest.raises(ValueError, match="common shape"):
        importance_ratio(two, one)
