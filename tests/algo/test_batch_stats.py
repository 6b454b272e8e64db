"""Rewards, lengths and versions of a batch."""

from math import sqrt

import pytest
import torch

from oncurve.algo import group_stats, length_stats, staleness

NAN = float("nan")


def test_group_stats_on_paper() -> None:
    # mixed; all right; all wrong; equal but in between; one scored member; none scored.
    rewards = torch.tensor(
        [[1.0, 0.0, 0.5], [1.0, 1.0, NAN], [0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [NAN, 1.0, NAN], [NAN] * 3]
    )
    scored = ~rewards.isnan()
    found = group_stats(rewards, tolerance=1e-6, scored=scored)
    assert found.zero_variance == pytest.approx(4 / 5)
    assert found.all_right == pytest.approx(2 / 5)
    assert found.all_wrong == pytest.approx(1 / 5)
    assert found.mean_std == pytest.approx(0.5 / 4)  # sqrt((0.25 + 0.25) / 2), 0, 0, 0
    assert found.mean_reward == pytest.approx((1.5 + 2 + 0 + 1.5 + 1) / 12)


def test_right_and_wrong_are_the_ends_of_the_reward_within_the_tolerance() -> None:
    rewards = torch.tensor([[2.0, 1.9], [-1.0, -0.9], [2.0, -1.0]], dtype=torch.float64)
    found = group_stats(rewards, tolerance=0.11, lowest=-1.0, highest=2.0)
    assert (found.all_right, found.all_wrong, found.zero_variance) == pytest.approx((1 / 3, 1 / 3, 2 / 3))
    strict = group_stats(rewards, tolerance=0.05, lowest=-1.0, highest=2.0)
    assert (strict.all_right, strict.all_wrong, strict.zero_variance) == (0.0, 0.0, 0.0)
    assert strict.mean_std == pytest.approx((0.1 / sqrt(2) * 2 + 3 / sqrt(2)) / 3)


def test_a_batch_without_pairs_has_no_spread_and_one_without_verdicts_no_stats() -> None:
    one = torch.tensor([[True, False]])
    assert group_stats(torch.ones(1, 2), tolerance=0.0, scored=one).mean_std == 0.0
    with pytest.raises(ValueError, match="no reward is scored"):
        group_stats(torch.ones(1, 2), tolerance=0.0, scored=torch.zeros(1, 2) > 0)


def test_length_stats_on_paper() -> None:
    lengths = torch.tensor([1, 2, 3, 4, 10])
    advantages = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0])
    found = length_stats(
        lengths,
        advantages,
        torch.tensor([False, False, False, True, True]),
        torch.tensor([True, False, True, False, False]),
    )
    assert (found.mean, found.p50, found.max, found.truncated_frac) == (4.0, 3.0, 10.0, 0.4)
    assert (found.p10, found.p90) == pytest.approx((1.4, 7.6))  # 0.4 of the way from 1 to 2; 0.6 from 4 to 10
    # centred lengths -3 -2 -1 0 6; products -6 - 2 - 0 - 0 - 12 = -20; squares 50 and 10.
    assert found.advantage_correlation == pytest.approx(-20 / sqrt(500))
    assert (found.mean_correct, found.mean_wrong) == pytest.approx((2.0, 16 / 3))


def test_what_does_not_exist_is_none() -> None:
    flags = torch.tensor([True, True])
    found = length_stats(torch.tensor([3, 3]), torch.tensor([1.0, -1.0]), ~flags, flags)
    assert found.advantage_correlation is None
    assert found.mean_wrong is None
    assert found.mean_correct == 3.0
    assert length_stats(torch.tensor([3, 3]), torch.tensor([1.0, -1.0]), ~flags, ~flags).mean_correct is None


@pytest.mark.parametrize("size", [0, 1])
def test_lengths_of_nothing_or_of_another_shape_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=r"common shape|non-empty"):
        length_stats(torch.ones(0), torch.ones(0), torch.ones(0) > 0, torch.ones(size) > 0)


def test_staleness_on_paper() -> None:
    found = staleness(7, [[7], [5, 6], [3, 3]], limit=4)
    assert found.mean_token_lag == pytest.approx((0 + 2 + 1 + 4 + 4) / 5)
    assert found.max_lag == 4
    assert found.mean_oldest_lag == pytest.approx((0 + 2 + 4) / 3)
    assert found.over_limit_frac == 0.0
    assert found.mixed_version_frac == pytest.approx(1 / 3)
    assert staleness(7, [[7], [5, 6], [3, 3]], limit=3).over_limit_frac == pytest.approx(1 / 3)


@pytest.mark.parametrize("versions", [[], [[1], []]])
def test_staleness_of_nothing_is_refused(versions: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        staleness(1, versions, limit=1)
