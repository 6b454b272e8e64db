"""Estimators of how good a frozen policy is, with honest uncertainty. numpy and scipy only.

P prompts, k or n samples a prompt. ``correct`` values are 0/1 or fractions in between. Samples of one prompt are
correlated: intervals that pool them are too narrow, so the clustered one is the one to report.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, isfinite, lcm, sqrt
from typing import Literal

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Return the chance that at least one of k attempts is right, without bias.

    1 - C(n - c, k) / C(n, k): the share of the k-subsets of the n samples that hold a right one. The plug-in
    1 - (1 - c/n)^k is biased.

    Args:
        num_samples: n samples of one prompt.
        num_correct: c of them are right.
        k: attempts, 1 <= k <= n.

    Raises:
        ValueError: the counts do not satisfy 0 <= c <= n and 1 <= k <= n.

    Source:
        arXiv:2107.03374, section 2.1.
    """
    _require_counts(num_samples, num_correct, k)
    return 1 - comb(num_samples - num_correct, k) / comb(num_samples, k)


def pass_hat_k(num_samples: int, num_correct: int, k: int) -> float:
    """Return the chance that all of k attempts are right: C(c, k) / C(n, k).

    Args:
        num_samples: n samples of one prompt.
        num_correct: c of them are right.
        k: attempts, 1 <= k <= n.

    Raises:
        ValueError: the counts do not satisfy 0 <= c <= n and 1 <= k <= n.

    Source:
        tau-bench, arXiv:2406.12045.
    """
    _require_counts(num_samples, num_correct, k)
    return comb(num_correct, k) / comb(num_samples, k)


def maj_at_k(answers: Sequence[str | None], gold: str, k: int) -> float:
    """Return the exact chance that a majority vote of k of these samples is right.

    Averages over all k-subsets: answers that tie for the most votes share the credit, an unparsable answer (None) uses
    up a place without voting, and a subset without any vote scores 0. Give equal answers one spelling first.

    Args:
        answers: the answer of each of the n samples of one prompt.
        gold: the right answer, spelled like the answers.
        k: voters, 1 <= k <= n.

    Raises:
        ValueError: k is not in 1..n.

    Source:
        Self-consistency, arXiv:2203.11171; the expectation over subsets replaces one random draw.
    """
    votes = Counter(answer for answer in answers if answer is not None)
    _require_counts(len(answers), votes[gold], k)
    rivals = [count for answer, count in votes.items() if answer != gold]
    silent = len(answers) - votes.total()
    credit = Fraction(0)
    for won in range(1, min(votes[gold], k) + 1):
        for ties, ways in _ways_not_to_beat(rivals, silent, won, k - won).items():
            credit += Fraction(comb(votes[gold], won) * ways, 1 + ties)
    return float(credit / comb(len(answers), k))


def _ways_not_to_beat(rivals: Sequence[int], silent: int, limit: int, places: int) -> dict[int, int]:
    """Count the ways to fill ``places`` with rivals of at most ``limit`` votes each, by number that reach the limit."""
    ways = {(0, places): 1}
    for size in rivals:
        grown: Counter[tuple[int, int]] = Counter()
        for (ties, left), count in ways.items():
            for taken in range(min(size, limit, left) + 1):
                grown[ties + (taken == limit), left - taken] += count * comb(size, taken)
        ways = dict(grown)
    total: Counter[int] = Counter()
    for (ties, left), count in ways.items():
        total[ties] += count * comb(silent, left)
    return dict(total)


def best_of_n(scores: Sequence[float], correct: Sequence[float], n: int) -> float:
    """Return the expected correctness of the best-scored sample among n random ones of these.

    Samples with equal scores share their place. With the verifier itself as the scorer this is pass@n, so say which
    scorer it was.

    Args:
        scores: score of each of the N samples of one prompt, higher is better.
        correct: whether each is right.
        n: samples to choose from, 1 <= n <= N.

    Raises:
        ValueError: the lengths differ, a score is NaN, or n is not in 1..N.
    """
    if len(scores) != len(correct) or any(score != score for score in scores):
        raise ValueError(f"best_of_n needs a score for each of {len(correct)} samples, none NaN, got {list(scores)}")
    _require_counts(len(scores), 0, n)
    expected, below = 0.0, 0
    for score in sorted(set(scores)):
        tied = [value for value, own in zip(correct, scores, strict=True) if own == score]
        upto = below + len(tied)
        expected += (comb(upto, n) - comb(below, n)) / comb(len(scores), n) * sum(tied) / len(tied)
        below = upto
    return expected


def avg_at_k(correct: Sequence[Sequence[float]]) -> float:
    """Return the mean over prompts of the mean over the samples of the prompt.

    Args:
        correct: one row a prompt; rows may have different lengths.

    Raises:
        ValueError: there is no prompt, or a prompt has no sample.
    """
    return float(_prompt_means(correct).mean())


def naive_se(correct: Sequence[Sequence[float]]) -> float:
    """Return sqrt(p (1 - p) / n) of all n samples pooled: too small whenever a prompt has several samples.

    Raises:
        ValueError: as ``avg_at_k``.
    """
    _prompt_means(correct)
    pooled = np.concatenate([np.asarray(row, dtype=float) for row in correct])
    return sqrt(pooled.mean() * (1 - pooled.mean()) / len(pooled))


def clustered_se(correct: Sequence[Sequence[float]]) -> float:
    """Return the standard error of ``avg_at_k`` with prompts as clusters: sqrt(sum (x_q - mean)^2 / (P (P - 1))).

    Raises:
        ValueError: fewer than two prompts, or a prompt has no sample.

    Source:
        arXiv:2411.00640.
    """
    means = _prompt_means(correct)
    if len(means) < 2:
        raise ValueError("a clustered standard error needs at least two prompts, got 1. Evaluate on more tasks.")
    return float(means.std(ddof=1) / sqrt(len(means)))


def clustered_interval(
    correct: Sequence[Sequence[float]],
    *,
    level: float = 0.95,
    quantile: Literal["t", "normal"] = "t",
    clip: bool = True,
) -> Interval:
    """Return mean +- quantile * ``clustered_se``: the interval to report.

    With few prompts of equal means it collapses to a point; add ``wilson_interval`` of one sample a prompt when there
    are fewer than 30 prompts.

    Args:
        correct: one row a prompt.
        level: coverage.
        quantile: ``t`` with P - 1 degrees of freedom, or ``normal``.
        clip: limit the interval to [0, 1].

    Raises:
        ValueError: as ``clustered_se``, or level is not inside (0, 1).
    """
    _require_level(level)
    tail = (1 + level) / 2
    factor = stats.t.ppf(tail, len(correct) - 1) if quantile == "t" else stats.norm.ppf(tail)
    mean, half = avg_at_k(correct), float(factor) * clustered_se(correct)
    low, high = mean - half, mean + half
    return Interval(max(0.0, low), min(1.0, high)) if clip else Interval(low, high)


def wilson_interval(num_correct: int, num_samples: int, *, level: float = 0.95) -> Interval:
    """Return the Wilson score interval of a proportion: right for independent samples, one a prompt.

    Args:
        num_correct: successes.
        num_samples: trials, >= 1.
        level: coverage.

    Raises:
        ValueError: the counts are impossible, or level is not inside (0, 1).
    """
    _require_counts(num_samples, num_correct, 1)
    _require_level(level)
    found = stats.binomtest(num_correct, num_samples).proportion_ci(level, method="wilson")
    return Interval(float(found.low), float(found.high))


def bootstrap_se(correct: Sequence[Sequence[float]]) -> float:
    """Return the standard deviation of the mean under resampling of prompts: sqrt(sum (x_q - mean)^2) / P.

    It is the limit of infinitely many resamples, in closed form.

    Raises:
        ValueError: as ``avg_at_k``.
    """
    means = _prompt_means(correct)
    return float(means.std() / sqrt(len(means)))


def bootstrap_interval(
    correct: Sequence[Sequence[float]], *, seed: int, level: float = 0.95, num_resamples: int = 10_000
) -> Interval:
    """Return the percentile interval of the mean under resampling of prompts.

    Args:
        correct: one row a prompt.
        seed: of the resampling; the same seed gives the same interval.
        level: coverage.
        num_resamples: bootstrap samples, >= 1.

    Raises:
        ValueError: as ``avg_at_k``, or level is not inside (0, 1).
    """
    _require_level(level)
    means = _prompt_means(correct)
    rng = np.random.default_rng(seed)
    resampled = [rng.choice(means, size=len(means)).mean() for _ in range(num_resamples)]
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


@dataclass(frozen=True)
class Comparison:
    """Policy b against policy a on the same prompts."""

    difference: float
    """Mean of b - a."""
    se: float
    """Standard error over prompts."""
    z: float | None
    """difference / se; None when all differences are equal."""
    p_sign_flip: float
    """Exact two-sided permutation p: how often random signs move the mean at least as far."""
    p_sign_test: float
    """Exact two-sided sign test on the prompts that differ; McNemar's test for 0/1 outcomes."""


def paired_comparison(a: Sequence[float], b: Sequence[float]) -> Comparison:
    """Compare two policies on the same prompts, graded and decoded alike.

    It covers the evaluation error only: training runs differ by more than that, so compare several seeds.

    Args:
        a: score of the first policy on each prompt.
        b: score of the second on the same prompts in the same order. Differences are taken as fractions with
            denominators up to 10^6.

    Raises:
        ValueError: the lengths differ, there are fewer than two prompts, a score is not finite, or the exact
            permutation test would need more than a million distinct sums.
    """
    if len(a) != len(b) or len(a) < 2 or not all(isfinite(score) for score in (*a, *b)):
        raise ValueError(
            f"a paired comparison needs finite scores of the same two or more prompts, got {len(a)} and {len(b)}"
        )
    differences = [Fraction(new - old).limit_denominator(10**6) for old, new in zip(a, b, strict=True)]
    values = np.asarray(differences, dtype=float)
    mean, se = float(values.mean()), float(values.std(ddof=1) / sqrt(len(values)))
    better, worse = sum(value > 0 for value in differences), sum(value < 0 for value in differences)
    return Comparison(
        difference=mean,
        se=se,
        z=mean / se if len(set(differences)) > 1 else None,
        p_sign_flip=_sign_flip_p(differences),
        p_sign_test=min(1.0, 2 * float(stats.binom.cdf(min(better, worse), better + worse, 0.5))),
    )


def _sign_flip_p(differences: Sequence[Fraction], max_sums: int = 1_000_000) -> float:
    """Return P(|sum of +-d| >= |sum of d|) over independent fair signs, exactly, by counting distinct sums."""
    scale = lcm(*(value.denominator for value in differences))
    steps = [abs(int(value * scale)) for value in differences if value != 0]
    ways: Mapping[int, int] = {0: 1}
    for step in steps:
        grown: Counter[int] = Counter()
        for total, count in ways.items():
            grown[total + step] += count
            grown[total - step] += count
        if len(grown) > max_sums:
            raise ValueError(
                f"the exact permutation test of {len(steps)} differences has more than {max_sums} distinct sums. "
                "Round the scores, for example to multiples of 1/k."
            )
        ways = grown
    observed = abs(int(sum(differences) * scale))
    at_least = sum(count for total, count in ways.items() if abs(total) >= observed)
    return float(Fraction(at_least, 2 ** len(steps)))


@dataclass(frozen=True)
class TokenCost:
    """What a right answer costs. None where no completion qualifies."""

    tokens_per_correct: float | None
    """All tokens over the number of right answers: the expected tokens until the first success."""
    accuracy: float
    mean_tokens_correct: float | None
    mean_tokens_wrong: float | None


def token_cost(tokens: Sequence[int], correct: Sequence[bool | int]) -> TokenCost:
    """Relate tokens spent to right answers.

    Args:
        tokens: sampled tokens of each completion.
        correct: whether each is right.

    Raises:
        ValueError: the lengths differ or there is no completion.
    """
    if len(tokens) != len(correct) or not tokens:
        raise ValueError(f"token_cost needs one or more completions, got {len(tokens)} and {len(correct)}")
    right = [count for count, good in zip(tokens, correct, strict=True) if good]
    wrong = [count for count, good in zip(tokens, correct, strict=True) if not good]
    return TokenCost(
        tokens_per_correct=sum(tokens) / len(right) if right else None,
        accuracy=len(right) / len(tokens),
        mean_tokens_correct=sum(right) / len(right) if right else None,
        mean_tokens_wrong=sum(wrong) / len(wrong) if wrong else None,
    )


def _prompt_means(correct: Sequence[Sequence[float]]) -> np.ndarray:
    """Return [P] mean of each row."""
    if len(correct) == 0 or any(len(row) == 0 for row in correct):
        raise ValueError("an average over prompts needs at least one prompt, and at least one sample of each")
    return np.asarray([np.mean(np.asarray(row, dtype=float)) for row in correct])


def _require_counts(num_samples: int, num_correct: int, k: int) -> None:
    if not (0 <= num_correct <= num_samples and 1 <= k <= num_samples):
        raise ValueError(
            f"need 0 <= correct <= samples and 1 <= k <= samples, got {num_correct} correct, {num_samples} samples, "
            f"k = {k}. Sample at least k completions a prompt."
        )


def _require_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level is a coverage inside (0, 1) such as 0.95, got {level}")
