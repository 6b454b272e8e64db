"""Coefficient of the entropy bonus, covariances, and the choice of tokens."""

from math import exp, nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oncurve import algo

RANGE = {"target": 1.0, "step": 0.25, "lowest": 0.125, "highest": 0.5}


@pytest.mark.parametrize(
    ("coef", "entropy", "applied", "following"),
    [(0.2, 1.0, 0.2, 0.45), (0.4, 0.5, 0.4, 0.5), (0.45, 1.1, 0.0, 0.2), (0.2, 1.1, 0.0, 0.125)],
)
def test_the_bonus_is_on_while_the_entropy_is_low(
    coef: float, entropy: float, applied: float, following: float
) -> None:
    found = algo.adapted_entropy_coef(coef, entropy, **RANGE)
    assert (found.applied, found.next) == pytest.approx((applied, following))


@pytest.mark.parametrize("change", [{"step": -0.1}, {"lowest": 0.6}])
def test_a_senseless_range_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="lowest <= highest"):
        algo.adapted_entropy_coef(0.1, 1.0, **{**RANGE, **change})


def flags(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


def test_covariance_on_paper() -> None:
    # A: 3, 0, 0 with mean 1; l: -1, -2, -6 with mean -3. Padding is not looked at.
    found = algo.token_covariance(
        torch.tensor([-1.0, nan, -2.0, -6.0]), torch.tensor([3.0, nan, 0.0, 0.0]), flags(1, 0, 1, 1)
    )
    assert found.tolist() == [4.0, 0.0, -1.0, 3.0]
    assert not algo.token_covariance(torch.ones(2, requires_grad=True), torch.ones(2), flags(1, 1)).requires_grad


def test_eligible_lies_strictly_between_the_bounds_and_is_not_clipped() -> None:
    covariance = torch.tensor([1.0, 1.5, 2.0, 1.6, 1.7])
    mask, clipped = flags(1, 1, 1, 0, 1), flags(0, 0, 0, 0, 1)
    assert algo.clip_cov_eligible(covariance, mask, low=1.0, high=2.0, clipped=clipped).tolist() == [0, 1, 0, 0, 0]
    assert algo.clip_cov_eligible(covariance, mask, low=1.0, high=2.0).tolist() == [0, 1, 0, 0, 1]


@pytest.mark.parametrize(("num_tokens", "frac", "count"), [(5, 0.2, 1), (4, 0.2, 1), (14, 0.2, 2), (0, 0.2, 1)])
def test_at_least_one_token_is_controlled(num_tokens: int, frac: float, count: int) -> None:
    assert algo.num_controlled(num_tokens, frac) == count


def test_the_smallest_uniforms_are_dropped_among_the_eligible() -> None:
    eligible, uniforms = flags(1, 0, 1, 1).view(2, 2), torch.tensor([[0.7, 0.0], [0.4, 0.2]])
    assert algo.clip_cov_dropped(eligible, uniforms, count=2).tolist() == [[False, False], [True, True]]
    assert algo.clip_cov_dropped(eligible, uniforms, count=9).tolist() == eligible.tolist()
    assert not algo.clip_cov_dropped(flags(0, 0), torch.zeros(2), count=1).any()


@given(st.permutations(range(6)))
def test_the_same_uniforms_drop_the_same_tokens_in_any_layout(order: list[int]) -> None:
    eligible, uniforms = flags(1, 1, 0, 1, 1, 0), torch.tensor([0.3, 0.1, 0.0, 0.9, 0.5, 0.2])
    found = algo.clip_cov_dropped(eligible[order], uniforms[order], count=2)
    assert sorted(torch.tensor(order)[found].tolist()) == [0, 1]


def test_the_largest_covariances_are_penalised_and_the_earlier_on_a_tie() -> None:
    covariance = torch.tensor([1.0, 3.0, 3.0, 9.0])
    assert algo.kl_cov_tokens(covariance, flags(1, 1, 1, 0), count=1).tolist() == [0, 1, 0, 0]
    assert algo.kl_cov_tokens(covariance, flags(1, 1, 1, 0), count=3).tolist() == [1, 1, 1, 0]


def test_the_penalty_on_paper() -> None:
    logprobs = torch.tensor([-1.0, -1.0], dtype=torch.float64, requires_grad=True)
    old, gain = torch.tensor([-0.5, -0.5]).double(), torch.tensor([2.0, 2.0]).double().requires_grad_()
    found = algo.kl_cov_loss(logprobs, old, gain, flags(0, 1), kl_coef=4.0)
    surrogate = -2 * exp(-0.5)
    assert found.tolist() == pytest.approx([surrogate, surrogate + 4 * 0.5])
    found.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([surrogate, surrogate - 4.0])
    assert gain.grad is None


def test_the_threshold_is_interpolated_over_trained_tokens() -> None:
    entropy, mask = torch.tensor([[4.0, 1.0, nan], [2.0, 8.0, 99.0]]), flags(1, 1, 0, 1, 1, 0).view(2, 3)
    threshold = algo.entropy_threshold(entropy, mask, share=0.5)
    assert threshold == 3.0  # half-way from 2 to 4
    kept = algo.top_entropy_mask(entropy, mask, threshold=threshold)
    assert kept.tolist() == [[True, False, False], [False, True, False]]
    assert algo.entropy_threshold(entropy, mask, share=1.0) == 1.0


def test_a_token_at_the_threshold_is_kept() -> None:
    # (1 - 0.41) * 100 is 59.00000000000001 in floating point: rounding must not push the threshold above its token.
    entropy = torch.arange(101.0, dtype=torch.float64)
    mask = torch.ones(101, dtype=torch.bool)
    threshold = algo.entropy_threshold(entropy, mask, share=0.41)
    assert algo.top_entropy_mask(entropy, mask, threshold=threshold).sum().item() == 42


@pytest.mark.parametrize(("share", "trained"), [(0.0, 1), (1.1, 1), (0.5, 0)])
def test_a_share_of_nothing_is_refused(share: float, trained: int) -> None:
    with pytest.raises(ValueError, match="at least one trained token"):
        algo.entropy_threshold(torch.ones(1), flags(trained), share=share)


@pytest.mark.parametrize(
    "call",
    [
        lambda: algo.token_covariance(torch.ones(2), torch.ones(1), flags(1, 1)),
        lambda: algo.clip_cov_eligible(torch.ones(2), flags(1), low=0.0, high=1.0),
        lambda: algo.clip_cov_dropped(flags(1), torch.ones(2), count=1),
        lambda: algo.kl_cov_tokens(torch.ones(2), flags(1), count=1),
        lambda: algo.kl_cov_loss(torch.ones(2), torch.ones(2), torch.ones(1), flags(1, 1), kl_coef=1.0),
        lambda: algo.entropy_threshold(torch.ones(2), flags(1), share=0.5),
        lambda: algo.top_entropy_mask(torch.ones(2), flags(1), threshold=0.5),
    ],
)
def test_different_shapes_are_refused(call: object) -> None:
    with pytest.raises(ValueError, match="common shape"):
        call()  # type: ignore[operator]
