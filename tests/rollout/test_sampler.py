"""Draws against tables on paper, an independent search, and the softmax they must follow."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from oncurve.rollout.sampler import draw, inverse_cdf, uniform_stream
from oncurve.types import Sampling

LIKELY = [0.5, 0.3, 0.2]  # running sums 0.5, 0.8, 1.0


def draw_from(probs: list[float], uniforms: list[float], *, scale: float = 1.0, **sampling: float) -> tuple:
    logits = scale * torch.tensor([probs]).log().expand(len(uniforms), -1)
    drawn = draw(logits, torch.tensor(uniforms, dtype=torch.float64), Sampling(**sampling))
    return drawn.ids.tolist(), drawn.logprobs.exp().tolist()


def test_a_uniform_selects_the_token_whose_interval_it_falls_into():
    ids, probs = draw_from(LIKELY, [0.0, 0.49, 0.51, 0.79, 0.81, 1 - 2**-53])
    assert ids == [0, 0, 1, 1, 2, 2]
    assert probs == pytest.approx([0.5, 0.5, 0.3, 0.3, 0.2, 0.2])


def test_temperature_divides_the_logits_before_the_draw_and_in_the_logprob():
    # logits 2 log p at temperature 2 are log p again; at temperature 1 they are p^2 / 0.38 = 0.658, 0.237, 0.105.
    assert draw_from(LIKELY, [0.6, 0.9], scale=2.0, temperature=2.0) == ([1, 2], pytest.approx([0.3, 0.2]))
    assert draw_from(LIKELY, [0.6, 0.9], scale=2.0) == ([0, 2], pytest.approx([0.25 / 0.38, 0.04 / 0.38]))


def test_greedy_takes_the_likeliest_and_reports_the_probability_at_temperature_one():
    assert draw_from([0.2, 0.5, 0.3], [0.99], temperature=0.0) == ([1], pytest.approx([0.5]))


def test_top_k_renormalises_the_draw_but_not_the_logprob():
    # 0.5 and 0.3 remain: the border lies at 0.5 / 0.8 = 0.625.
    ids, probs = draw_from([0.2, 0.5, 0.3], [0.62, 0.63, 0.999], top_k=2)
    assert ids == [1, 2, 2]
    assert probs == pytest.approx([0.5, 0.3, 0.3])


def test_top_k_beyond_the_vocabulary_keeps_everything():
    assert draw_from(LIKELY, [0.81], top_k=9)[0] == [2]


@pytest.mark.parametrize(("top_p", "last"), [(0.49, 0), (0.51, 1), (0.79, 1), (0.81, 2)])
def test_top_p_keeps_the_token_that_reaches_the_mass(top_p, last):
    assert draw_from(LIKELY, [0.9999], top_p=top_p)[0] == [last]


def test_top_k_acts_before_top_p():
    # Top-k 2 leaves 4/7 and 3/7, of which the first alone reaches 0.5. Before top-k it would be 0.4 < 0.5: two kept.
    assert draw_from([0.4, 0.3, 0.2, 0.1], [0.99], top_k=2, top_p=0.5)[0] == [0]


def test_min_p_drops_what_is_below_a_share_of_the_likeliest_and_keeps_the_logprob():
    # The border is 0.7 * 0.5 = 0.35 or 0.5 * 0.5 = 0.25: 0.2 falls in both cases, 0.3 only in the first. Kept are 0.5
    # and 0.3, token 0 up to 0.5 / 0.8 = 0.625.
    assert draw_from(LIKELY, [0.999], min_p=0.7) == ([0], pytest.approx([0.5]))
    assert draw_from(LIKELY, [0.62, 0.63, 0.999], min_p=0.5) == ([0, 1, 1], pytest.approx([0.5, 0.3, 0.3]))
    assert draw_from(LIKELY, [0.62, 0.999], min_p=0.5, top_k=3)[0] == [0, 1]
    assert Sampling(min_p=0.5).is_filtered


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7}, {"top_k": 50}, {"min_p": 0.1}, {"temperature": 0.0}])
def test_rows_in_chunks_draw_what_each_row_draws_alone(options):
    num_tokens = 300_000  # three rows a chunk
    logits = torch.randn(8, num_tokens, generator=torch.Generator().manual_seed(1))
    uniforms = torch.from_numpy(uniform_stream(5, 8))
    together = draw(logits, uniforms, Sampling(**options))
    for row in range(8):
        alone = draw(logits[row : row + 1], uniforms[row : row + 1], Sampling(**options))
        assert alone.ids[0] == together.ids[row]
        assert alone.logprobs[0] == together.logprobs[row]


def test_a_banned_token_is_never_drawn_and_a_broken_row_is_visible():
    logits = torch.tensor([[-math.inf, 0.0, -math.inf], [0.0, math.nan, 0.0], [math.inf, 0.0, 0.0]])
    drawn = draw(logits, torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64), Sampling())
    assert drawn.ids[0] == 1
    assert drawn.logprobs[0] == 0.0
    assert not drawn.logprobs[1:].isfinite().any()


@given(st.integers(0, 2**32), st.integers(2, 3000))
def test_the_two_level_search_agrees_with_one_running_sum(seed, width):
    rng = np.random.default_rng(seed)
    weights = (rng.random((4, width)) ** 8 * (rng.random((4, width)) < 0.5)).astype(np.float32)
    weights[:, rng.integers(width)] = 1.0
    uniforms = rng.random(4)
    found = inverse_cdf(torch.from_numpy(weights), torch.from_numpy(uniforms)).numpy()
    cdf = weights.astype(np.float64).cumsum(axis=1)
    for row, index in enumerate(found):
        assert weights[row, index] > 0
        share_before = (cdf[row, index] - weights[row, index]) / cdf[row, -1]
        share_after = cdf[row, index] / cdf[row, -1]
        assert share_before - 1e-6 <= uniforms[row] <= share_after + 1e-6  # block sums are float32


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
@pytest.mark.parametrize("width", [3, 512, 513, 1024, 1500])
def test_the_ends_of_the_unit_interval_select_the_first_and_last_positive_weight(width, uniform):
    weights = torch.zeros(1, width)
    weights[0, 1] = weights[0, width - 2] = 0.5
    expected = 1 if uniform == 0.0 else width - 2
    assert inverse_cdf(weights, torch.tensor([uniform], dtype=torch.float64)).tolist() == [expected]


def test_a_block_sum_that_rounds_up_does_not_lead_beyond_the_weights():
    # 1 + 1.5 * 2^-24 is 1 + 2^-23 as a float32 block sum, more than the float64 running sum inside the block.
    weights = torch.zeros(1, 1024)
    weights[0, 0], weights[0, 1] = 1.0, 1.5 * 2**-24
    assert inverse_cdf(weights, torch.tensor([1 - 2**-53], dtype=torch.float64)).tolist() == [1]


@pytest.mark.parametrize("num_tokens", [40, 1200])
def test_draws_follow_the_softmax(num_tokens):
    logits = 0.5 * torch.randn(num_tokens, generator=torch.Generator().manual_seed(1))
    num_draws = 20_000
    uniforms = torch.from_numpy(uniform_stream(5, num_draws))
    drawn = draw(logits.expand(num_draws, -1), uniforms, Sampling(temperature=0.7))
    counts = torch.bincount(drawn.ids, minlength=num_tokens)
    expected = torch.softmax(logits.double() / 0.7, -1) * num_draws
    assert chisquare(counts.numpy(), expected.numpy()).pvalue > 0.01


def test_a_stream_depends_on_its_seed_and_begins_the_same_at_any_length():
    assert np.array_equal(uniform_stream(3, 10)[:4], uniform_stream(3, 4))
    assert not np.array_equal(uniform_stream(3, 4), uniform_stream(4, 4))
    numbers = uniform_stream(2**64 - 1, 1000)
    assert numbers.min() >= 0
    assert numbers.max() < 1
