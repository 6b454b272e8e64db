"""Rewards for length and manner, on paper."""

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncurve.verify.length_rewards import (
    cosine_length_reward,
    kimi_length_rewards,
    l1_exact_reward,
    l1_max_reward,
    lead_length_rewards,
    length_band_penalty,
    overlong_penalty,
    repetition_penalty,
    stop_properly_reward,
)

lengths = st.integers(0, 300)


@pytest.mark.parametrize(("length", "penalty"), [(0, 0.0), (60, 0.0), (70, -0.5), (100, -2.0), (500, -2.0)])
def test_the_last_tokens_before_the_limit_cost(length: int, penalty: float) -> None:
    assert overlong_penalty(length, max_tokens=100, margin=40, factor=2.0) == pytest.approx(penalty)


@pytest.mark.parametrize("margin", [0, 101])
def test_a_margin_lies_within_the_limit(margin: int) -> None:
    with pytest.raises(ValueError, match=r"1\.\.max_tokens"):
        overlong_penalty(1, max_tokens=100, margin=margin)


@pytest.mark.parametrize(
    ("length", "is_correct", "reward"),
    [(0, True, 3.0), (50, True, 2.0), (100, True, 1.0), (200, True, 1.0), (0, False, -4.0), (50, False, -3.0)],
)
def test_half_a_cosine(length: int, is_correct: bool, reward: float) -> None:
    ends = {"correct_ends": (3.0, 1.0), "wrong_ends": (-4.0, -2.0)}
    assert cosine_length_reward(length, is_correct, max_tokens=100, **ends) == pytest.approx(reward)


def test_a_cosine_needs_a_length() -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        cosine_length_reward(1, True, max_tokens=0)


def test_by_default_short_and_right_is_best_and_short_and_wrong_worst() -> None:
    ends = [cosine_length_reward(length, right, max_tokens=9) for right in (True, False) for length in (0, 9)]
    assert ends == pytest.approx([1.0, 0.5, -1.0, -0.5])


def test_kimi_on_paper() -> None:
    # Shares of the way from 10 to 50: 0, 1/4, 1, 0.
    found = kimi_length_rewards([10, 20, 50, 10], [True, True, False, False])
    assert found == [0.5, 0.25, -0.5, 0.0]
    assert kimi_length_rewards([7, 7], [True, False]) == [0.0, 0.0]
    assert kimi_length_rewards([], []) == []


@given(st.lists(st.tuples(lengths, st.booleans()), min_size=1, max_size=6))
def test_a_wrong_answer_never_gains_by_its_length(group: list[tuple[int, bool]]) -> None:
    sizes, correct = zip(*group, strict=True)
    for reward, is_right in zip(kimi_length_rewards(sizes, correct), correct, strict=True):
        assert -0.5 <= reward <= (0.5 if is_right else 0.0)


def test_asked_lengths_on_paper() -> None:
    assert l1_exact_reward(90, True, target=100, slope=0.01) == pytest.approx(0.9)
    assert l1_exact_reward(120, False, target=100, slope=0.01) == pytest.approx(-0.2)
    found = [l1_max_reward(length, True, target=100, slope=0.01, offset=0.25) for length in (0, 95, 120, 130)]
    assert found == pytest.approx([1.0, 0.3, 0.05, 0.0])
    assert l1_max_reward(0, False, target=100) == 0.0
    assert l1_exact_reward(0, True, target=1000) == pytest.approx(0.7)  # 3 in 10,000 a token
    assert l1_max_reward(1000, True, target=1000) == 0.5


def test_lengths_among_right_answers_on_paper() -> None:
    # 1, 3 and 5 tokens: mean 3, std sqrt(8/2) = 2 or sqrt(8/3). The long wrong answer sets no scale.
    group, correct = [1, 3, 99, 5], [True, True, False, True]
    found = lead_length_rewards(group, correct, alpha=0.5, ddof=1, std_eps=0.0, wrong_reward=-3.0)
    assert found == pytest.approx([exp(0.5), 1.0, -3.0, exp(-0.5)])
    wide = lead_length_rewards(group, correct, alpha=0.5, ddof=0, std_eps=1.0)
    assert wide[0] == pytest.approx(exp(1 / ((8 / 3) ** 0.5 + 1)))
    assert wide[2] == -1.0


@pytest.mark.parametrize(
    ("correct", "rewards"), [([True, False], [1.0, -1.0]), ([False, False], [-1.0, -1.0]), ([True, True], [1.0, 1.0])]
)
def test_without_a_spread_among_right_answers_length_says_nothing(correct: list[bool], rewards: list[float]) -> None:
    assert lead_length_rewards([5, 5], correct, std_eps=0.0) == rewards


@pytest.mark.parametrize(
    ("length", "penalty"), [(0, -3.0), (5, -1.5), (10, 0.0), (20, 0.0), (25, -0.5), (40, -2.0), (99, -2.0)]
)
def test_too_short_and_too_long_are_weighed_apart(length: int, penalty: float) -> None:
    found = length_band_penalty(length, low=10, high=20, max_tokens=40, short_weight=3.0, long_weight=2.0)
    assert found == pytest.approx(penalty)


def test_a_band_may_have_no_lower_end() -> None:
    assert length_band_penalty(0, low=0, high=20, max_tokens=40, short_weight=3.0, long_weight=2.0) == 0.0


@pytest.mark.parametrize(("low", "high", "max_tokens"), [(-1, 5, 9), (6, 5, 9), (1, 9, 9)])
def test_a_band_is_a_range(low: int, high: int, max_tokens: int) -> None:
    with pytest.raises(ValueError, match="low <= high < max_tokens"):
        length_band_penalty(1, low=low, high=high, max_tokens=max_tokens, short_weight=1.0, long_weight=1.0)


@pytest.mark.parametrize(
    ("tokens", "penalty"),
    [([1, 2, 3, 4], 0.0), ([1, 2, 1, 2, 1], -1.0), ([7, 7, 7, 7, 7], -1.5), ([1], 0.0), ([], 0.0)],
)
def test_repeated_pairs_cost(tokens: list[int], penalty: float) -> None:
    # 1 2 1 2 1: four pairs, two different; 7 7 7 7 7: four pairs, one different; weight 2.
    assert repetition_penalty(tokens, ngram_size=2, weight=2.0) == pytest.approx(penalty)


def test_an_ngram_has_a_token() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        repetition_penalty([1, 2], ngram_size=0)


def test_running_into_the_limit_costs_a_share() -> None:
    assert stop_properly_reward(2.0, True, factor=0.25) == 0.5
    assert stop_properly_reward(2.0, False, factor=0.25) == 2.0
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        stop_properly_reward(2.0, True, factor=1.5)


def test_lengths_and_flags_come_in_pairs() -> None:
    for function in (kimi_length_rewards, lead_length_rewards):
        with pytest.raises(ValueError, match="a length and a flag"):
            function([1, 2], [True])
