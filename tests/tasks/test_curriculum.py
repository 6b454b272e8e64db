"""Difficulty that follows success, and priorities, on paper."""

from math import tanh

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncurve.tasks.curriculum import adarft_target, importance_of_draw, nearest_in_difficulty, priority_weights

rates = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def test_the_target_follows_the_reward() -> None:
    shape = {"wanted_reward": 0.25, "sensitivity": 2.0, "step": 10.0, "lowest": -4.0, "highest": 7.0}
    assert adarft_target(1.0, 0.25, **shape) == 1.0
    assert adarft_target(1.0, 0.5, **shape) == pytest.approx(1 + 10 * tanh(0.5))
    assert adarft_target(1.0, 1.0, **shape) == 7.0
    assert adarft_target(-3.0, 0.0, **shape) == -4.0
    with pytest.raises(ValueError, match="lowest <= highest"):
        adarft_target(0.0, 0.5, lowest=1.0, highest=0.0)


def test_the_closest_tasks_come_first_and_the_earlier_on_a_tie() -> None:
    assert nearest_in_difficulty([9.0, 4.0, 6.0, 5.5], 5.0, 3) == [3, 1, 2]
    assert nearest_in_difficulty([], 5.0, 0) == []
    with pytest.raises(ValueError, match="2 tasks are wanted but 1"):
        nearest_in_difficulty([1.0], 5.0, 2)


def test_priorities_on_paper() -> None:
    assert priority_weights([0.0, 0.5, 1.0], mode="failure", eps=9.0) == pytest.approx([2 / 3, 1 / 3, 0.0])
    # sqrt(p (1 - p)) = 0, 0.4, 0.5; with 0.1 more: 0.1, 0.5, 0.6.
    assert priority_weights([0.0, 0.8, 0.5], mode="variance", eps=0.1) == pytest.approx([1 / 12, 5 / 12, 6 / 12])


@pytest.mark.parametrize("mode", ["failure", "variance"])
def test_without_any_priority_all_are_equal(mode: str) -> None:
    assert priority_weights([1.0, 1.0], mode=mode) == [0.5, 0.5]  # type: ignore[arg-type]


@given(success=rates, eps=st.floats(0.01, 1))
def test_the_weight_of_a_draw_restores_the_uniform_average(success: list[float], eps: float) -> None:
    drawn = priority_weights(success, mode="variance", eps=eps)
    assert sum(drawn) == pytest.approx(1)
    uniform = sum(success) / len(success)
    weighed = sum(p * importance_of_draw(p, len(drawn)) * rate for p, rate in zip(drawn, success, strict=True))
    assert weighed == pytest.approx(uniform)


@pytest.mark.parametrize("success", [[], [1.1], [-0.1], [float("nan")]])
def test_rates_lie_between_0_and_1(success: list[float]) -> None:
    with pytest.raises(ValueError, match="success rates"):
        priority_weights(success, mode="failure")


@pytest.mark.parametrize("eps", [-0.1, float("inf"), float("nan")])
def test_eps_is_a_small_number(eps: float) -> None:
    with pytest.raises(ValueError, match="eps"):
        priority_weights([0.5], mode="variance", eps=eps)


@pytest.mark.parametrize("probability", [0.0, 1.5])
def test_what_is_never_drawn_has_no_weight(probability: float) -> None:
    with pytest.raises(ValueError, match="drawn"):
        importance_of_draw(probability, 3)
