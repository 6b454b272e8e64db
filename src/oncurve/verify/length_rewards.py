"""Rewards for length and manner, to be added to the task reward with a weight of their own.

Keep them apart from the task reward: a filter for groups without signal must look at the task alone, since a reward
with a length term is never constant. Lengths are in tokens, the terminator included. Pure functions, without torch.
"""

from collections.abc import Sequence
from math import cos, exp, pi, sqrt


def overlong_penalty(length: int, *, max_tokens: int, margin: int, factor: float = 1.0) -> float:
    """Return a penalty that sets in ``margin`` tokens before the limit and is full at it.

    0 up to max_tokens - margin, then linear, -factor from max_tokens on. It is capped there.

    Args:
        length: of the completion.
        max_tokens: the limit of generation.
        margin: tokens before the limit, in 1..max_tokens.
        factor: size of the full penalty.

    Raises:
        ValueError: margin is not in 1..max_tokens.

    Source:
        DAPO, arXiv:2503.14476, equation 13.
    """
    if not 1 <= margin <= max_tokens:
        raise ValueError(f"margin must be in 1..max_tokens ({max_tokens}), got {margin}")
    return factor * _clip((max_tokens - margin - length) / margin, -1.0, 0.0)


def cosine_length_reward(
    length: int,
    is_correct: bool,
    *,
    max_tokens: int,
    correct_ends: tuple[float, float] = (1.0, 0.5),
    wrong_ends: tuple[float, float] = (-1.0, -0.5),
) -> float:
    """Return a reward that moves from its value at length 0 to that at max_tokens along half a cosine.

    e1 + (e0 - e1) / 2 * (1 + cos(pi * min(length / max_tokens, 1)))

    With the defaults a right answer is better short, and a wrong one better long: more thought may help it.

    Args:
        length: of the completion.
        is_correct: which pair of ends.
        max_tokens: from here on the reward stays at e1, > 0.
        correct_ends: (e0, e1) of a right answer.
        wrong_ends: (e0, e1) of a wrong answer.

    Raises:
        ValueError: max_tokens is not positive.

    Source:
        arXiv:2502.03373, appendix C.
    """
    if max_tokens <= 0:
        raise ValueError(f"max_tokens must be positive, got {max_tokens}")
    start, end = correct_ends if is_correct else wrong_ends
    return end + (start - end) / 2 * (1 + cos(pi * min(length / max_tokens, 1.0)))


def kimi_length_rewards(lengths: Sequence[int], correct: Sequence[bool]) -> list[float]:
    """Return 0.5 - (length - shortest) / (longest - shortest) over the completions of one group.

    From 0.5 for the shortest to -0.5 for the longest; a wrong answer never gets more than 0 for being short. All 0 when
    all are equally long. Add it after a phase without: it hampers early learning.

    Args:
        lengths: of the completions of one group.
        correct: one flag a completion.

    Raises:
        ValueError: the two differ in length.

    Source:
        Kimi k1.5, arXiv:2501.12599.
    """
    _require_pairs(lengths, correct)
    shortest, longest = min(lengths, default=0), max(lengths, default=0)
    if shortest == longest:
        return [0.0] * len(lengths)
    merits = [0.5 - (length - shortest) / (longest - shortest) for length in lengths]
    return [merit if right else min(0.0, merit) for merit, right in zip(merits, correct, strict=True)]


def l1_exact_reward(length: int, is_correct: bool, *, target: int, slope: float = 3e-4) -> float:
    """Return 1 for a right answer, minus slope * |target - length| for any: hit the length that was asked for.

    Args:
        length: of the completion.
        is_correct: whether the answer is right.
        target: tokens that the prompt asked for.
        slope: reward lost a token.

    Source:
        L1 / LCPO, arXiv:2503.04697.
    """
    return float(is_correct) - slope * abs(target - length)


def l1_max_reward(length: int, is_correct: bool, *, target: int, slope: float = 3e-4, offset: float = 0.5) -> float:
    """Return clip(slope * (target - length) + offset, 0, 1) for a right answer, 0 for a wrong one: stay below a length.

    Args:
        length: of the completion.
        is_correct: whether the answer is right.
        target: largest length that the prompt asked for.
        slope: reward lost a token.
        offset: reward at the target.

    Source:
        L1 / LCPO, arXiv:2503.04697.
    """
    return _clip(slope * (target - length) + offset, 0.0, 1.0) if is_correct else 0.0


def lead_length_rewards(
    lengths: Sequence[int],
    correct: Sequence[bool],
    *,
    alpha: float = 0.05,
    ddof: int = 1,
    std_eps: float = 1e-6,
    wrong_reward: float = -1.0,
) -> list[float]:
    """Return exp(-alpha * z) for right answers, with z the z-score of their length among the right ones of the group.

    Wrong answers get ``wrong_reward``: they neither set the scale nor gain by being short. z is 0 when the right
    answers are equally long, or there is only one.

    Args:
        lengths: of the completions of one group.
        correct: one flag a completion.
        alpha: strength.
        ddof: the variance divides by the number of right answers - ddof.
        std_eps: added to the std, in tokens.
        wrong_reward: of a wrong answer.

    Raises:
        ValueError: the two differ in length.

    Source:
        GRPO-LEAD, arXiv:2504.09696.
    """
    _require_pairs(lengths, correct)
    right = [length for length, is_right in zip(lengths, correct, strict=True) if is_right]
    if not right or min(right) == max(right):
        return [1.0 if is_right else wrong_reward for is_right in correct]
    mean = sum(right) / len(right)
    std = sqrt(sum((length - mean) ** 2 for length in right) / (len(right) - ddof))
    return [
        exp(-alpha * (length - mean) / (std + std_eps)) if is_right else wrong_reward
        for length, is_right in zip(lengths, correct, strict=True)
    ]


def length_band_penalty(
    length: int, *, low: int, high: int, max_tokens: int, short_weight: float, long_weight: float
) -> float:
    """Penalise too short and too long answers independently; 0 from ``low`` to ``high``.

    -short_weight * max(0, 1 - length / low) - long_weight * clip((length - high) / (max_tokens - high), 0, 1)

    Two weights, so that curing rambling does not reward guessing without thought. Take low and high from quantiles of
    the lengths of right answers.

    Args:
        length: of the completion.
        low: shortest length without penalty; 0: none is too short.
        high: longest length without penalty.
        max_tokens: length of the full penalty, > high.
        short_weight: penalty of an empty answer.
        long_weight: penalty from max_tokens on.

    Raises:
        ValueError: not 0 <= low <= high < max_tokens.
    """
    if not 0 <= low <= high < max_tokens:
        raise ValueError(f"need 0 <= low <= high < max_tokens, got {low}, {high}, {max_tokens}")
    shortfall = max(0.0, 1 - length / low) if low else 0.0
    excess = _clip((length - high) / (max_tokens - high), 0.0, 1.0)
    return 0.0 - short_weight * shortfall - long_weight * excess


def repetition_penalty(token_ids: Sequence[int], *, ngram_size: int = 3, weight: float = 1.0) -> float:
    """Return -weight * (1 - different n-grams / n-grams): 0 when none comes twice, towards -weight in a loop.

    Args:
        token_ids: of the completion. With fewer than ngram_size tokens there is nothing to repeat: 0.
        ngram_size: tokens in a row, >= 1.
        weight: size of the full penalty.

    Raises:
        ValueError: ngram_size is below 1.

    Source:
        arXiv:2502.03373, appendix C.2.
    """
    if ngram_size < 1:
        raise ValueError(f"ngram_size must be at least 1, got {ngram_size}")
    ngrams = list(zip(*(token_ids[start:] for start in range(ngram_size)), strict=False))
    return weight * (len(set(ngrams)) / len(ngrams) - 1) if ngrams else 0.0


def stop_properly_reward(reward: float, is_truncated: bool, *, factor: float) -> float:
    """Return the reward, times ``factor`` when the completion ran into the limit instead of ending.

    Meant for rewards >= 0: it would soften a negative one.

    Args:
        reward: of the completion.
        is_truncated: True when no terminator was sampled (not when the length equals the limit).
        factor: in [0, 1]; 0 takes everything.

    Raises:
        ValueError: factor is outside [0, 1].
    """
    if not 0 <= factor <= 1:
        raise ValueError(f"factor must be in [0, 1], got {factor}: it takes a share of the reward away")
    return reward * factor if is_truncated else reward


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _require_pairs(lengths: Sequence[int], correct: Sequence[bool]) -> None:
    if len(lengths) != len(correct):
        raise ValueError(f"each completion needs a length and a flag, got {len(lengths)} and {len(correct)}")
