"""Intervals of means over prompts."""

import numpy as np
import pytest

from oncurve.icl.intervals import mean_intervals


def test_the_interval_of_a_mean():
    # 400 tosses of a fair coin: the mean has a standard deviation of 0.5 / 20.
    values = np.stack([np.tile([0.0, 1.0], 200), np.full(400, 3.0)], 1)
    for found, deviations in zip(
        mean_intervals(values, [0.9, 0.95], resamples=2000, seed=0), (1.645, 1.96), strict=True
    ):
        half = deviations * 0.5 / 20
        assert found[:, 0].tolist() == pytest.approx([0.5 - half, 0.5 + half], abs=0.006)
        assert found[:, 1].tolist() == [3.0, 3.0]


def test_the_seed_and_the_number_of_draws_count():
    values = np.arange(20.0)
    found = [
        mean_intervals(values, [0.9], resamples=resamples, seed=seed)[0].tolist()
        for resamples, seed in ((100, 0), (100, 0), (100, 1), (110, 0))
    ]
    assert found[0] == found[1]
    assert found[0] not in found[2:]
