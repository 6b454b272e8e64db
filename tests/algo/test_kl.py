"""KL estimators, their gradients, and the reward placement."""

from math import exp, inf, log, nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oncurve.algo import (
    adapted_kl_coef,
    exact_kl,
    importance_weighted_kl,
    kl_estimate,
    kl_token_rewards,
    rewards_to_go,
)
from oncurve.algo.kl import KlEstimator


def estimate(difference: float, estimator: KlEstimator) -> tuple[float, float]:
    logprobs = torch.tensor([difference - 1.0], dtype=torch.float64, requires_grad=True)
    value = kl_estimate(logprobs, torch.tensor([-1.0]).double(), estimator)
    return value.item(), torch.autograd.grad(value, logprobs)[0].item()


@pytest.mark.parametrize(
    ("estimator", "value", "gradient"),
    [("k1", log(2), 1.0), ("k2", log(2) ** 2 / 2, log(2)), ("k3", 0.5 - 1 + log(2), 0.5)],
)
def test_a_token_twice_as_likely_as_under_the_reference(estimator: KlEstimator, value: float, gradient: float) -> None:
    assert estimate(log(2), estimator) == pytest.approx((value, gradient))


@given(difference=st.floats(-15, 15))
def test_k3_and_k2_are_never_negative_and_zero_only_at_equality(difference: float) -> None:
    for estimator in ("k2", "k3"):
        value, _ = estimate(difference, estimator)  # type: ignore[arg-type]
        assert value >= 0
        assert value > 0 or abs(difference) < 1e-6


@given(
    logits=st.lists(st.floats(-3, 3), min_size=3, max_size=3), other=st.lists(st.floats(-3, 3), min_size=3, max_size=3)
)
def test_k1_and_k3_are_unbiased_over_all_tokens(logits: list[float], other: list[float]) -> None:
    policy, reference = (
        torch.tensor(logits, dtype=torch.float64).log_softmax(0),
        torch.tensor(other, dtype=torch.float64).log_softmax(0),
    )
    true_kl = (policy.exp() * (policy - reference)).sum().item()
    for estimator in ("k1", "k3"):
        mean = (policy.exp() * kl_estimate(policy, reference, estimator)).sum().item()  # type: ignore[arg-type]
        assert mean == pytest.approx(true_kl, abs=1e-9)


def reward_gradient(estimator: KlEstimator, logits: Tensor, reference: Tensor) -> Tensor:
    """Return the expected REINFORCE gradient of a KL that is a constant in the reward."""
    logprobs = logits.log_softmax(0)
    cost = kl_estimate(logprobs, reference, estimator).detach()
    return torch.autograd.grad((logprobs.exp().detach() * cost * logprobs).sum(), logits)[0]


def true_gradients(logits: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of KL(policy || ref) and of KL(ref || policy)."""
    policy = logits.log_softmax(0)
    forward = (reference.exp() * (reference - policy)).sum()
    reverse = (policy.exp() * (policy - reference)).sum()
    return torch.autograd.grad(reverse, logits, retain_graph=True)[0], torch.autograd.grad(forward, logits)[0]


def test_what_a_kl_in_the_reward_really_pulls_along() -> None:
    logits = torch.tensor([1.0, 0.0, -1.5], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.2, 0.3, 0.1], dtype=torch.float64).log_softmax(0)
    reverse, forward = true_gradients(logits, reference)
    assert torch.allclose(reward_gradient("k1", logits, reference), reverse)
    assert torch.allclose(reward_gradient("k3", logits, reference), reverse - forward)


@pytest.mark.parametrize(("estimator", "vanishes"), [("k1", False), ("k2", True), ("k3", True)])
def test_near_the_reference_only_k1_in_the_reward_pulls_back(estimator: KlEstimator, vanishes: bool) -> None:
    # A drift of 1e-4 in one logit: a first-order pull is of size 1e-4, a second-order one of size 1e-8.
    reference = torch.tensor([0.2, 0.3, 0.1], dtype=torch.float64).log_softmax(0)
    logits = (reference + torch.tensor([1e-4, 0.0, 0.0])).requires_grad_()
    size = reward_gradient(estimator, logits, reference).abs().max().item()
    assert (size < 1e-7) is vanishes


def test_the_weighted_k3_has_the_gradient_of_the_reverse_kl_off_policy_too() -> None:
    logits = torch.tensor([1.0, 0.0, -1.5], dtype=torch.float64, requires_grad=True)
    sampler = torch.tensor([0.0, 0.5, 0.0], dtype=torch.float64).log_softmax(0)
    reference = torch.tensor([0.2, 0.3, 0.1], dtype=torch.float64).log_softmax(0)
    value = (sampler.exp() * importance_weighted_kl(logits.log_softmax(0), sampler, reference)).sum()
    reverse, _ = true_gradients(logits, reference)
    assert torch.allclose(torch.autograd.grad(value, logits)[0], reverse)


@pytest.mark.parametrize(("difference", "bounded"), [(-30.0, -20.0), (30.0, 20.0)])
def test_k3_stays_finite_for_absurd_differences(difference: float, bounded: float) -> None:
    value, gradient = estimate(difference, "k3")
    assert value == pytest.approx(exp(-bounded) - 1 + bounded)
    assert gradient == 0.0


def test_no_gradient_reaches_the_reference() -> None:
    reference = torch.tensor([-1.0], requires_grad=True)
    value = kl_estimate(torch.tensor([-2.0], requires_grad=True), reference, "k3")
    value.sum().backward()
    assert reference.grad is None


def test_bfloat16_is_raised_to_float32() -> None:
    value = kl_estimate(torch.tensor([-1.0]).bfloat16(), torch.tensor([-1.5]).bfloat16(), "k1")
    assert value.dtype is torch.float32


MASK = torch.tensor([[True, True, False], [True, True, True], [False, True, False]])
OLD = torch.tensor([[-1.0, -2.0, float("nan")], [-1.0, -1.0, -1.0], [7.0, -0.5, 7.0]])
REFERENCE = torch.tensor([[-2.0, -2.5, 9.0], [-1.0, -0.5, -1.0], [0.0, -1.5, float("inf")]])


def test_kl_in_the_reward_on_paper() -> None:
    # d = 1, 0.5 | 0, -0.5, 0 | 1; coefficient 0.1; the reward sits on the last trained token.
    found = kl_token_rewards(torch.tensor([1.0, 0.0, 2.0]), OLD, REFERENCE, MASK, kl_coef=0.1)
    assert found.flatten().tolist() == pytest.approx([-0.1, 0.95, 0.0, 0.0, 0.05, 0.0, 0.0, 1.9, 0.0])
    assert rewards_to_go(found)[0].tolist() == pytest.approx([0.85, 0.95, 0.0])
    assert found.sum(dim=1).tolist() == pytest.approx([0.85, 0.05, 1.9])


def test_the_estimator_of_the_reward_can_be_chosen() -> None:
    found = kl_token_rewards(torch.zeros(3), OLD, REFERENCE, MASK, kl_coef=1.0, estimator="k2")
    assert found.sum(dim=1).tolist() == pytest.approx([-0.5 - 0.125, -0.125, -0.5])


def test_a_kl_reward_carries_no_gradient() -> None:
    old = torch.zeros(1, 2, requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    assert not kl_token_rewards(
        torch.ones(1, requires_grad=True), old, torch.ones(1, 2), mask, kl_coef=1.0
    ).requires_grad


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\[0\] trained tokens a row"):
        kl_token_rewards(torch.ones(1), torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2) > 0, kl_coef=1.0)
    with pytest.raises(ValueError, match=r"rewards \[2\]"):
        kl_token_rewards(torch.ones(2), torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1, 2) > 0, kl_coef=1.0)
    with pytest.raises(ValueError, match="common shape"):
        kl_token_rewards(torch.ones(1), torch.zeros(1, 3), torch.zeros(1, 2), torch.ones(1, 2) > 0, kl_coef=1.0)
    with pytest.raises(ValueError, match=r"loss_mask \[1, 2\]"):
        kl_token_rewards(torch.ones(1), torch.zeros(1, 3), torch.zeros(1, 3), torch.ones(1, 2) > 0, kl_coef=1.0)
    with pytest.raises(ValueError, match="ref_logprobs"):
        kl_estimate(torch.zeros(2), torch.zeros(1), "k1")


def test_what_is_still_to_come_on_paper() -> None:
    # Half discount a trained token; the hole costs nothing and is not looked at.
    rewards, mask = torch.tensor([[4.0, nan, 2.0, 8.0]]), torch.tensor([[True, False, True, True]])
    assert rewards_to_go(rewards, mask, gamma=0.5).tolist() == [[7.0, 0.0, 6.0, 8.0]]
    assert rewards_to_go(rewards, mask).tolist() == [[14.0, 0.0, 10.0, 8.0]]
    assert rewards_to_go(rewards, mask, gamma=0.0).tolist() == [[4.0, 0.0, 2.0, 8.0]]
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\]"):
        rewards_to_go(rewards, mask, gamma=-0.1)


POLICY = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
REFERENCE_POLICY = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)


def test_the_exact_kl_on_paper() -> None:
    # 1/2 log 2 + 0 - 1/4 log 2. One token apart from the others: 1/2 log 2 + 1/2 log((1/2) / (3/4)).
    logits = POLICY.log().requires_grad_()
    value = exact_kl(logits, REFERENCE_POLICY.log())
    assert value.item() == pytest.approx(log(2) / 4)
    (gradient,) = torch.autograd.grad(value, logits)
    assert gradient.tolist() == pytest.approx([0.5 * 0.75 * log(2), -0.25 * 0.25 * log(2), -0.25 * 1.25 * log(2)])
    assert exact_kl(logits, REFERENCE_POLICY.log(), top_k=1).item() == pytest.approx((log(2) + log(2 / 3)) / 2)
    warm = exact_kl(3 * POLICY.log(), 3 * REFERENCE_POLICY.log(), temperature=3.0)
    assert warm.item() == pytest.approx(log(2) / 4)


rows = st.lists(st.floats(-4, 4), min_size=5, max_size=5)


@given(logits=rows, other=rows, top_k=st.integers(1, 5))
def test_a_coarser_view_never_sees_more_divergence(logits: list[float], other: list[float], top_k: int) -> None:
    policy, reference = torch.tensor(logits, dtype=torch.float64), torch.tensor(other, dtype=torch.float64)
    whole = exact_kl(policy, reference).item()
    assert -1e-12 <= exact_kl(policy, reference, top_k=top_k).item() <= whole + 1e-12
    assert exact_kl(policy, reference, top_k=5).item() == pytest.approx(whole)


def test_chunks_of_rows_give_the_same() -> None:
    logits, reference = torch.randn(2, 3, 7).double(), torch.randn(2, 3, 7).double()
    chunks = [exact_kl(*pair, top_k=2) for pair in zip(logits, reference, strict=True)]
    assert torch.allclose(torch.stack(chunks), exact_kl(logits, reference, top_k=2))


def test_impossible_tokens() -> None:
    # The policy never says the third; only what the policy may say counts.
    logits = torch.tensor([0.0, 0.0, -inf], requires_grad=True)
    reference = torch.tensor([0.0, 0.0, 0.0])
    for top_k in (None, 2):
        value = exact_kl(logits, reference, top_k=top_k)
        assert value.item() == pytest.approx(log(3 / 2))
        (gradient,) = torch.autograd.grad(value, logits)
        assert gradient.tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-7)
    assert exact_kl(reference, logits).item() == inf


def test_the_exact_kl_has_no_gradient_towards_the_reference() -> None:
    assert not exact_kl(torch.zeros(3), torch.ones(3, requires_grad=True)).requires_grad


@pytest.mark.parametrize("top_k", [0, 4])
def test_the_exact_kl_refuses_what_does_not_fit(top_k: int) -> None:
    with pytest.raises(ValueError, match=r"1\.\.3"):
        exact_kl(torch.zeros(3), torch.zeros(3), top_k=top_k)
    with pytest.raises(ValueError, match="common shape"):
        exact_kl(torch.zeros(3), torch.zeros(1, 3))
    with pytest.raises(ValueError, match="temperature"):
        exact_kl(torch.zeros(3), torch.zeros(3), temperature=0.0)


@pytest.mark.parametrize(("divergence", "factor"), [(12.0, 1.1), (6.6, 1.05), (6.0, 1.0), (0.0, 0.9)])
def test_the_coefficient_is_steered_by_at_most_a_fifth(divergence: float, factor: float) -> None:
    found = adapted_kl_coef(0.2, divergence, target=6.0, horizon=1000, num_samples=500)
    assert found == pytest.approx(0.2 * factor)


@pytest.mark.parametrize(("target", "horizon"), [(0.0, 10), (1.0, 0)])
def test_steering_needs_a_target(target: float, horizon: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        adapted_kl_coef(0.1, 1.0, target=target, horizon=horizon, num_samples=1)
