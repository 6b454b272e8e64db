"""Baselines that are carried along, on paper."""

from math import inf, nan, sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oncurve import algo

MEMORY = {"half_life": 0.5, "kept_min": 0.25, "kept_max": 0.75}


def test_a_running_baseline_on_paper() -> None:
    # 3 of 4; half of the counts survive a divergence of one half-life.
    advantage, later = algo.RunningBaseline(3.0, 1.0).update(0.5, 0.5, **MEMORY)
    assert advantage == -0.25
    assert later == algo.RunningBaseline(2.0, 1.0)
    assert later.value == pytest.approx(2 / 3)


@pytest.mark.parametrize(("divergence", "kept"), [(0.0, 0.75), (-0.1, 0.75), (5.0, 0.25)])
def test_memory_has_two_limits(divergence: float, kept: float) -> None:
    _, later = algo.RunningBaseline(4.0, 8.0).update(1.0, divergence, **MEMORY)
    assert later == algo.RunningBaseline(4 * kept + 1, 8 * kept)


@given(rewards=st.lists(st.floats(0, 1), max_size=20))
def test_the_expectation_stays_a_success_rate(rewards: list[float]) -> None:
    baseline = algo.RunningBaseline(1.0, 1.0)
    for reward in rewards:
        advantage, baseline = baseline.update(reward, 0.1, **MEMORY)
        assert -1 <= advantage <= 1
        assert 0 <= baseline.value <= 1


@pytest.mark.parametrize("reward", [-0.1, 1.1, nan])
def test_only_rewards_between_0_and_1_can_be_tracked(reward: float) -> None:
    with pytest.raises(ValueError, match=r"must be in \[0, 1\]"):
        algo.RunningBaseline(1.0, 1.0).update(reward, 0.0, **MEMORY)


@pytest.mark.parametrize("change", [{"half_life": 0.0}, {"kept_min": 0.8}, {"kept_max": 1.5}, {"kept_min": -0.1}])
def test_a_senseless_memory_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="kept_min"):
        algo.RunningBaseline(1.0, 1.0).update(1.0, 0.0, **{**MEMORY, **change})


@pytest.mark.parametrize("counts", [(0.0, 0.0), (-1.0, 2.0), (nan, 1.0)])
def test_a_baseline_starts_from_counts(counts: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="must be counts"):
        algo.RunningBaseline(*counts)


def test_a_kalman_filter_on_paper() -> None:
    # No drift, equal noise: gains 1/2, 1/3 and variances 1/2, 1/3. The second is unscored in group 2.
    rewards = torch.tensor([[4.0, 5.0], [4.0, inf]], dtype=torch.float64)
    found = algo.kalman_advantages(rewards, process_noise=0.0, measurement_noise=1.0, std_eps=0.5, scored=rewards < 9)
    first, second = 2 / (sqrt(1 / 2) + 0.5), 2 / (sqrt(1 / 3) + 0.5)
    assert found.advantages.tolist() == [pytest.approx([first, second]), pytest.approx([first, 0.0])]
    assert found.mean.tolist() == pytest.approx([3.0, 2.0])
    assert found.variance.tolist() == pytest.approx([1 / 3, 1 / 2])


def test_drift_and_prior_count() -> None:
    # P' = 1 + 1, gain 2 / (2 + 2) = 1/2: x = 1 + (3 - 1) / 2 = 2, P = 1.
    found = algo.kalman_advantages(
        torch.tensor([[3.0]]),
        process_noise=1.0,
        measurement_noise=2.0,
        prior_mean=1.0,
        prior_variance=1.0,
        std_eps=0.0,
    )
    assert (found.advantages.item(), found.mean.item(), found.variance.item()) == pytest.approx((1.0, 2.0, 1.0))


def test_the_order_of_the_samples_matters() -> None:
    forward = algo.kalman_advantages(torch.tensor([[1.0, 0.0]])).advantages
    backward = algo.kalman_advantages(torch.tensor([[0.0, 1.0]])).advantages
    assert not torch.allclose(forward.flip(1), backward)
