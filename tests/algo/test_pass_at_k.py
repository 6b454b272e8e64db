"""Estimators of the best of k attempts, against enumeration of all subsets."""

from itertools import combinations, product
from math import sqrt
from statistics import mean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oncurve import algo

BASELINES = ("plain", "loo1")


def table(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@given(correct=st.lists(st.integers(0, 1), min_size=2, max_size=6), data=st.data())
def test_passk_is_the_mean_over_all_subsets_of_the_advantage_of_the_subset(
    correct: list[int], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(correct)))
    subsets = list(combinations(range(len(correct)), k))
    wins = {subset: max(correct[place] for place in subset) for subset in subsets}
    rate = mean(wins.values())
    scale = sqrt(rate * (1 - rate)) + 0.1
    found = algo.passk_advantages(table([float(value) for value in correct]), k=k, std_eps=0.1)[0].tolist()
    for place in range(len(correct)):
        own = mean(wins[subset] - rate for subset in subsets if place in subset) / scale
        assert found[place] == pytest.approx(own, abs=1e-12)


def best(rewards: list[float], places: tuple[int, ...]) -> float:
    return max(rewards[place] for place in places)


@given(rewards=st.lists(st.integers(-3, 3).map(lambda n: n / 2), min_size=2, max_size=6), data=st.data())
def test_pkpo_is_the_sum_over_all_subsets(rewards: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(2, len(rewards)))
    subsets = list(combinations(range(len(rewards)), k))
    plain = algo.pkpo_advantages(table(rewards), k=k, baseline="plain")[0].tolist()
    lean = algo.pkpo_advantages(table(rewards), k=k, baseline="loo1")[0].tolist()
    for place in range(len(rewards)):
        mine = [subset for subset in subsets if place in subset]
        gains = [best(rewards, subset) for subset in mine]
        without = [best(rewards, tuple(other for other in subset if other != place)) for subset in mine]
        assert plain[place] == pytest.approx(sum(gains) / len(subsets), abs=1e-12)
        assert lean[place] == pytest.approx((sum(gains) - sum(without)) / len(subsets), abs=1e-12)
        assert lean[place] >= 0


def test_with_one_attempt_pkpo_is_the_reward() -> None:
    assert algo.pkpo_advantages(table([3.0, -1.0, 0.0]), k=1, baseline="plain")[0].tolist() == pytest.approx(
        [1.0, -1 / 3, 0.0]
    )


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("k", [2, 3])
def test_the_expected_gradient_of_pkpo_is_that_of_the_best_of_k(baseline: str, k: int) -> None:
    outcomes = torch.tensor([0.2, 1.0, 0.5], dtype=torch.float64)
    logits = torch.tensor([0.3, -0.4, 0.1], dtype=torch.float64, requires_grad=True)
    logprobs = logits.log_softmax(0)
    surrogate = torch.zeros((), dtype=torch.float64)
    for group in product(range(3), repeat=3):
        drawn = logprobs[list(group)]
        weights = algo.pkpo_advantages(outcomes[list(group)][None], k=k, baseline=baseline)[0]  # type: ignore[arg-type]
        surrogate = surrogate + drawn.sum().exp().detach() * (weights * drawn).sum()
    best_of_k = sum(
        logprobs[list(tries)].sum().exp() * outcomes[list(tries)].max() for tries in product(range(3), repeat=k)
    )
    wanted = torch.autograd.grad(best_of_k, logits, retain_graph=True)[0]
    assert torch.allclose(torch.autograd.grad(surrogate, logits)[0], wanted, atol=1e-12)


def test_a_group_with_fewer_verdicts_than_attempts_is_silent() -> None:
    rewards = table([1.0, 0.0, torch.nan, torch.nan], [1.0, 0.0, 0.0, 0.0])
    scored = ~rewards.isnan()
    assert algo.passk_advantages(rewards, k=3, scored=scored)[0].tolist() == [0.0] * 4
    for baseline in BASELINES:
        found = algo.pkpo_advantages(rewards, k=3, baseline=baseline, scored=scored)  # type: ignore[arg-type]
        assert found[0].tolist() == [0.0] * 4
        assert found[1, 0] > 0


@pytest.mark.parametrize("k", [0, 4])
def test_k_must_fit_the_group(k: int) -> None:
    with pytest.raises(ValueError, match="1 <= k <= group_size"):
        algo.passk_advantages(table([1.0, 0.0, 0.0]), k=k)
    with pytest.raises(ValueError, match="1 <= k <= group_size"):
        algo.pkpo_advantages(table([1.0, 0.0, 0.0]), k=k, baseline="plain")


def test_leaving_one_out_needs_two_attempts() -> None:
    with pytest.raises(ValueError, match="2 <= k <= group_size"):
        algo.pkpo_advantages(table([1.0, 0.0]), k=1, baseline="loo1")


def test_passk_refuses_shaped_rewards() -> None:
    with pytest.raises(ValueError, match="exactly 0 or 1"):
        algo.passk_advantages(table([0.5, 0.0]), k=1)


def test_the_top_gap_on_paper() -> None:
    # best 5, then 3: gap 2, std of 5, 3, 1 is sqrt(8/3).
    gap = algo.top_gap_advantages(table([3.0, 5.0, 1.0]), ddof=0, std_eps=0.5)
    assert gap[0].tolist() == pytest.approx([0.0, 2 / (sqrt(8 / 3) + 0.5), 0.0])
    assert algo.top_gap_advantages(table([5.0, 5.0, 1.0]), ddof=0, std_eps=0.5)[0].tolist() == [0.0, 0.0, 0.0]
    below_zero = table([-3.0, -1.0, torch.nan])  # gap 2, std 1; what is unscored is not a 0 that beats both
    negative = algo.top_gap_advantages(below_zero, ddof=0, std_eps=1.0, scored=~below_zero.isnan())
    assert negative[0].tolist() == pytest.approx([0.0, 1.0, 0.0])
