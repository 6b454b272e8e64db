"""Evaluation estimators against brute force over all subsets."""

from collections import Counter
from itertools import combinations, product
from math import sqrt
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncurve.evaluate.estimators import (
    Interval,
    avg_at_k,
    best_of_n,
    bootstrap_interval,
    bootstrap_se,
    clustered_interval,
    clustered_se,
    maj_at_k,
    naive_se,
    paired_comparison,
    pass_at_k,
    pass_hat_k,
    token_cost,
    wilson_interval,
)

outcomes = st.lists(st.integers(0, 1), min_size=1, max_size=7)


@given(correct=outcomes, data=st.data())
def test_pass_at_k_and_pass_hat_k_are_means_over_all_subsets(correct: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(correct)))
    subsets = list(combinations(correct, k))
    assert pass_at_k(len(correct), sum(correct), k) == pytest.approx(mean(map(max, subsets)))
    assert pass_hat_k(len(correct), sum(correct), k) == pytest.approx(mean(map(min, subsets)))


@given(num_samples=st.integers(2, 300), data=st.data())
def test_more_attempts_and_more_right_answers_help(num_samples: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(1, num_samples))
    k = data.draw(st.integers(1, num_samples - 1))
    assert pass_at_k(num_samples, right, k) <= pass_at_k(num_samples, right, k + 1)
    assert pass_at_k(num_samples, right - 1, k) <= pass_at_k(num_samples, right, k)
    assert pass_hat_k(num_samples, right, k) >= pass_hat_k(num_samples, right, k + 1)
    assert pass_at_k(num_samples, right, 1) == pytest.approx(right / num_samples)


@pytest.mark.parametrize(("samples", "right", "k"), [(5, 6, 1), (5, -1, 1), (5, 2, 0), (5, 2, 6)])
def test_impossible_counts_are_refused(samples: int, right: int, k: int) -> None:
    for estimator in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError, match="at least k completions"):
            estimator(samples, right, k)


def vote(answers: tuple[str | None, ...]) -> float:
    votes = Counter(answer for answer in answers if answer is not None)
    top = [answer for answer in votes if votes[answer] == max(votes.values())]
    return ("a" in top) / len(top) if top else 0.0


@given(answers=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8), data=st.data())
def test_a_majority_vote_is_the_mean_over_all_subsets(answers: list[str | None], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(answers)))
    assert maj_at_k(answers, "a", k) == pytest.approx(mean(map(vote, combinations(answers, k))))


def test_a_large_vote_is_still_exact_and_fast() -> None:
    answers = ["a"] * 40 + ["b"] * 20 + [f"x{index}" for index in range(40)]
    assert 0.999 < maj_at_k(answers, "a", 64) < 1.0


def test_a_vote_needs_voters() -> None:
    with pytest.raises(ValueError, match="k = 2"):
        maj_at_k(["a"], "a", 2)


def best(subset: tuple[tuple[int, int], ...]) -> float:
    top = max(score for score, _ in subset)
    return mean(correct for score, correct in subset if score == top)


@given(samples=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=7), data=st.data())
def test_best_of_n_is_the_mean_over_all_subsets(samples: list[tuple[int, int]], data: st.DataObject) -> None:
    n = data.draw(st.integers(1, len(samples)))
    scores, correct = zip(*samples, strict=True)
    assert best_of_n(scores, correct, n) == pytest.approx(mean(map(best, combinations(samples, n))))


def test_with_the_verifier_as_scorer_best_of_n_is_pass_at_n() -> None:
    correct = [1, 0, 0, 1, 0]
    assert best_of_n(correct, correct, 3) == pytest.approx(pass_at_k(5, 2, 3))


@pytest.mark.parametrize(("scores", "correct"), [([1.0], [1, 0]), ([float("nan")], [1])])
def test_unusable_scores_are_refused(scores: list[float], correct: list[int]) -> None:
    with pytest.raises(ValueError, match="none NaN"):
        best_of_n(scores, correct, 1)


ROWS = [[1, 0], [1, 1], [0, 0], [1, 0]]


def test_averages_and_errors_on_paper() -> None:
    # Means 1/2, 1, 0, 1/2: mean 1/2, squares 1/4 + 1/4.
    assert avg_at_k(ROWS) == 0.5
    assert naive_se(ROWS) == pytest.approx(sqrt(0.25 / 8))
    assert clustered_se(ROWS) == pytest.approx(sqrt(0.5 / (4 * 3)))
    assert bootstrap_se(ROWS) == pytest.approx(sqrt(0.5) / 4)


def test_rows_of_different_lengths_weigh_the_same() -> None:
    # Means 1 and 1/3; pooled 2 of 4.
    assert avg_at_k([[1], [1, 0, 0]]) == pytest.approx(2 / 3)
    assert naive_se([[1], [1, 0, 0]]) == pytest.approx(0.25)


def test_the_t_quantile_is_wider_and_limits_stay_inside() -> None:
    se = clustered_se(ROWS)
    normal = clustered_interval(ROWS, quantile="normal", clip=False)
    student = clustered_interval(ROWS, clip=False)
    assert (normal.low, normal.high) == pytest.approx((0.5 - 1.959964 * se, 0.5 + 1.959964 * se))
    assert (student.low, student.high) == pytest.approx((0.5 - 3.182446 * se, 0.5 + 3.182446 * se))  # 3 degrees
    assert clustered_interval(ROWS) == Interval(0.0, 1.0)
    narrow = clustered_interval(ROWS, level=0.5, quantile="normal")
    assert (narrow.low, narrow.high) == pytest.approx((0.5 - 0.674490 * se, 0.5 + 0.674490 * se))


def test_wilson_on_paper() -> None:
    # (p + z^2/2n +- z sqrt(p q / n + z^2 / 4n^2)) / (1 + z^2/n) with p = 8/10, z = 1.959964.
    z, n, p = 1.959964, 10, 0.8
    middle, half = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    found = wilson_interval(8, 10)
    assert (found.low, found.high) == pytest.approx(
        ((middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n))
    )
    assert wilson_interval(0, 10).low == 0.0
    assert wilson_interval(8, 10, level=0.5).low > found.low


def test_the_bootstrap_repeats_itself_and_agrees_with_its_closed_form() -> None:
    rows = [[index % 3 == 0, index % 2] for index in range(60)]
    found = bootstrap_interval(rows, seed=3, num_resamples=4000)
    assert found == bootstrap_interval(rows, seed=3, num_resamples=4000)
    assert found != bootstrap_interval(rows, seed=4, num_resamples=4000)
    half = 1.959964 * bootstrap_se(rows)
    assert found.high - avg_at_k(rows) == pytest.approx(half, rel=0.15)
    assert avg_at_k(rows) - found.low == pytest.approx(half, rel=0.15)
    tight = bootstrap_interval(rows, seed=3, num_resamples=4000, level=0.5)
    assert tight.high - tight.low < (found.high - found.low) / 2


@pytest.mark.parametrize("rows", [[], [[]], [[1], []]])
def test_averages_of_nothing_are_refused(rows: list[list[int]]) -> None:
    for estimator in (avg_at_k, naive_se, clustered_se, bootstrap_se):
        with pytest.raises(ValueError, match="at least one"):
            estimator(rows)


def test_one_prompt_has_no_clustered_error() -> None:
    with pytest.raises(ValueError, match="at least two prompts"):
        clustered_se([[1, 0]])


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_is_a_coverage(level: float) -> None:
    with pytest.raises(ValueError, match="coverage"):
        clustered_interval(ROWS, level=level)
    with pytest.raises(ValueError, match="coverage"):
        wilson_interval(1, 2, level=level)
    with pytest.raises(ValueError, match="coverage"):
        bootstrap_interval(ROWS, seed=0, level=level)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=8))
def test_the_sign_flip_test_is_exact(pairs: list[tuple[int, int]]) -> None:
    a, b = [left / 4 for left, _ in pairs], [right / 4 for _, right in pairs]
    d = [new - old for old, new in zip(a, b, strict=True)]
    flips = [
        abs(sum(sign * step for sign, step in zip(signs, d, strict=True))) for signs in product((1, -1), repeat=len(d))
    ]
    found = paired_comparison(a, b)
    assert found.p_sign_flip == pytest.approx(mean(flip >= abs(sum(d)) for flip in flips))
    assert found.difference == pytest.approx(mean(d))
    backwards = paired_comparison(b, a)
    assert (backwards.p_sign_flip, backwards.p_sign_test) == (found.p_sign_flip, found.p_sign_test)


def test_a_comparison_on_paper() -> None:
    # d = 1, 1, 1, -1, 0: mean 0.4, squares 3 * 0.36 + 1.96 + 0.16 = 3.2.
    found = paired_comparison([0, 0, 0, 1, 1], [1, 1, 1, 0, 1])
    assert found.se == pytest.approx(sqrt(3.2 / 4 / 5))
    assert found.z == pytest.approx(0.4 / sqrt(0.16))
    assert found.p_sign_test == pytest.approx(2 * (1 + 4) / 16)
    assert found.p_sign_flip == pytest.approx(2 * (1 + 4) / 16)


def test_tenths_are_compared_as_tenths() -> None:
    found = paired_comparison([0.1, 0.2, 0.3], [0.2, 0.3, 0.4])
    assert found.z is None
    assert found.p_sign_flip == 0.25


def test_no_difference_is_no_evidence() -> None:
    found = paired_comparison([1, 0], [1, 0])
    assert (found.difference, found.z, found.p_sign_flip, found.p_sign_test) == (0.0, None, 1.0, 1.0)


def test_many_prompts_are_fast_and_irregular_ones_refused() -> None:
    many = paired_comparison([0] * 400, [1] * 220 + [0] * 180)
    assert many.p_sign_flip == pytest.approx(2.0**-219)
    with pytest.raises(ValueError, match="Round the scores"):
        paired_comparison([0.0] * 40, [sqrt(index) for index in range(2, 42)])


@pytest.mark.parametrize(
    ("a", "b"), [([1], [1]), ([1, 2], [1]), ([1, float("nan")], [1, 0]), ([1, 0], [1, float("inf")])]
)
def test_unpaired_scores_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match="same two or more prompts"):
        paired_comparison(a, b)


def test_token_cost_without_a_right_or_a_wrong_answer() -> None:
    none_right = token_cost([10, 20], [0, 0])
    assert (none_right.tokens_per_correct, none_right.mean_tokens_correct) == (None, None)
    assert (none_right.accuracy, none_right.mean_tokens_wrong) == (0.0, 15.0)
    assert token_cost([10, 20], [True, True]).mean_tokens_wrong is None
    for tokens, correct in (([], []), ([1], [])):
        with pytest.raises(ValueError, match="one or more completions"):
            token_cost(tokens, correct)
