"""Ratios and log-probs to watch."""

from math import exp, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oncurve.algo import clip_fractions, logprob_gap, ratio_stats

NAN = float("nan")


def test_clip_fractions_on_paper() -> None:
    # Band [0.8, 1.3]. Trained: below with A < 0 and A > 0, above with A > 0 (twice) and A < 0, inside, on both borders.
    ratio = torch.tensor([0.7, 0.7, 1.4, 1.5, 6.0, 1.0, 0.8, 1.3, NAN], dtype=torch.float64)
    advantages = torch.tensor([-1.0, 1.0, 1.0, 2.0, -1.0, 1.0, -1.0, 1.0, NAN], dtype=torch.float64)
    mask = ~ratio.isnan()
    found = clip_fractions(ratio, advantages, mask, clip_low=0.2, clip_high=0.3, dual_clip=5.0)
    assert (found.low, found.high, found.out_of_band, found.dual) == (1 / 8, 2 / 8, 5 / 8, 1 / 8)
    assert clip_fractions(ratio, advantages, mask, clip_low=0.2, clip_high=0.3).dual == 0.0


def test_a_zero_advantage_is_never_clipped_and_the_dual_bound_itself_is_allowed() -> None:
    ratio, advantages = torch.tensor([0.5, 2.0, 3.0]), torch.tensor([0.0, 0.0, -1.0])
    found = clip_fractions(ratio, advantages, torch.ones(3) > 0, clip_low=0.2, clip_high=0.2, dual_clip=3.0)
    assert (found.low, found.high, found.dual) == (0.0, 0.0, 0.0)
    zero = clip_fractions(ratio[1:2], advantages[1:2], torch.ones(1) > 0, clip_low=0.2, clip_high=0.2, dual_clip=1.5)
    assert zero.dual == 0.0


def test_ratio_stats_on_paper() -> None:
    # Ratios 2, 1/2 and 1, padding ignored.
    logprobs = torch.tensor([[log(2) - 1, -log(2) - 1], [-3.0, NAN]], dtype=torch.float64)
    old = torch.tensor([[-1.0, -1.0], [-3.0, 5.0]], dtype=torch.float64)
    found = ratio_stats(logprobs, old, torch.tensor([[True, True], [True, False]]))
    assert found.kl_k1 == pytest.approx(0.0, abs=1e-12)
    assert found.kl_k3 == pytest.approx((2 - 1 - log(2) + 0.5 - 1 + log(2)) / 3)
    assert (found.mean, found.min, found.max) == pytest.approx((3.5 / 3, 0.5, 2.0))
    assert found.effective_sample_frac == pytest.approx(3.5**2 / (3 * 5.25))


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6))
def test_equal_policies_have_ratio_one(logprobs: list[float]) -> None:
    same = torch.tensor(logprobs)
    found = ratio_stats(same, same, torch.ones(len(logprobs)) > 0)
    assert (found.kl_k1, found.kl_k3, found.mean, found.min, found.max) == (0, 0, 1, 1, 1)
    assert found.effective_sample_frac == pytest.approx(1.0)


def test_the_gap_on_paper() -> None:
    # trainer - sampler: log 2 and 0 | -log 4 | nothing trained.
    trainer = torch.tensor([[log(2) - 1, -1.0], [-log(4) - 1, NAN], [NAN, NAN]], dtype=torch.float64)
    sampler = torch.full((3, 2), -1.0, dtype=torch.float64)
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    found = logprob_gap(trainer, sampler, mask)
    assert found.mean_abs == pytest.approx(log(8) / 3)
    assert found.max_abs == pytest.approx(log(4))
    assert found.kl_k1 == pytest.approx(log(2) / 3)
    assert found.kl_k3 == pytest.approx((2 + 1 + 0.25) / 3 - 1 + log(2) / 3)
    assert found.mean_exp_abs == pytest.approx((2 + 1 + 4) / 3)
    assert found.mean_weight == pytest.approx((2 + 1 + 0.25) / 3)
    assert found.chi2_token == pytest.approx((4 + 1 + 1 / 16) / 3 - 1)
    assert found.chi2_sequence == pytest.approx((4 + 1 / 16) / 2 - 1)
    assert found.perplexity_ratio == pytest.approx((exp(-log(2) / 2) + 4) / 2)


def test_nothing_trained_is_refused() -> None:
    empty = torch.zeros(1, 2) > 0
    for call in (ratio_stats, logprob_gap):
        with pytest.raises(ValueError, match="no token is trained"):
            call(torch.zeros(1, 2), torch.zeros(1, 2), empty)
    with pytest.raises(ValueError, match="no token is trained"):
        clip_fractions(torch.zeros(1, 2), torch.zeros(1, 2), empty, clip_low=0.2, clip_high=0.2)


def test_different_shapes_are_refused() -> None:
    one, two = torch.ones(1, 1), torch.ones(1, 2)
    for call in (ratio_stats, logprob_gap):
        with pytest.raises(ValueError, match="common shape"):
            call(two, two, one > 0)
    with pytest.raises(ValueError, match="common shape"):
        clip_fractions(two, one, two > 0, clip_low=0.2, clip_high=0.2)
