"""REINFORCE++: rewards-to-go, whitened over tokens."""

from math import nan, sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oncurve import algo


def test_tokens_on_paper() -> None:
    # Rewards-to-go at half discount: 1, 2 | -3. Mean 0, squares 14: var 7 with ddof 1.
    rewards = torch.tensor([[0.0, 2.0], [-3.0, nan]], dtype=torch.float64)
    mask = torch.tensor([[True, True], [True, False]])
    found = algo.reinforce_pp_advantages(rewards, mask, gamma=0.5, ddof=1)
    assert found.flatten().tolist() == pytest.approx([1 / sqrt(7), 2 / sqrt(7), -3 / sqrt(7), 0.0])
    assert algo.reinforce_pp_advantages(rewards, mask, gamma=0.5)[1, 0].item() == pytest.approx(-3 / sqrt(14 / 3))


def test_the_variance_has_a_floor() -> None:
    rewards, mask = torch.tensor([[1.0], [-1.0]]), torch.ones(2, 1, dtype=torch.bool)
    assert algo.reinforce_pp_advantages(rewards, mask, var_floor=4.0).flatten().tolist() == [0.5, -0.5]
    assert algo.reinforce_pp_advantages(rewards, mask).flatten().tolist() == [1.0, -1.0]


def test_equal_returns_are_exactly_zero() -> None:
    rewards = torch.full((15, 1), 0.7)
    found = algo.reinforce_pp_advantages(rewards.requires_grad_(), torch.ones(15, 1, dtype=torch.bool))
    assert torch.equal(found, torch.zeros(15, 1))
    assert not found.requires_grad


def test_an_all_right_group_can_be_pushed_down_when_lengths_go_with_rewards() -> None:
    # c = 1/2, -1/2 | 0, 0; by token 3 * 1/2 - 1/2 over 6 tokens: mu = 1/6 > 0.
    rewards = torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    found = algo.reinforce_pp_baseline_advantages(rewards, torch.tensor([[3, 1], [1, 1]]))
    std = sqrt((3 * (1 / 3) ** 2 + (2 / 3) ** 2 + 2 * (1 / 6) ** 2) / 6)
    assert found.flatten().tolist() == pytest.approx([1 / 3 / std, -2 / 3 / std, -1 / 6 / std, -1 / 6 / std])


@given(
    rewards=st.lists(st.integers(0, 3).map(float), min_size=4, max_size=4),
    lengths=st.lists(st.integers(1, 5), min_size=4, max_size=4),
    ddof=st.integers(0, 1),
)
def test_it_is_the_whitening_of_copies_on_every_token(rewards: list[float], lengths: list[int], ddof: int) -> None:
    table, counts = torch.tensor(rewards, dtype=torch.float64).view(2, 2), torch.tensor(lengths)
    centred = (table - table.mean(dim=1, keepdim=True)).flatten().repeat_interleave(counts)
    whitened = algo.whiten(centred, torch.ones_like(centred) > 0, ddof=ddof, eps=0.0, var_floor=1e-8)
    found = algo.reinforce_pp_baseline_advantages(table, counts.view(2, 2), ddof=ddof)
    assert torch.allclose(found.flatten().repeat_interleave(counts), whitened, atol=1e-9)


def test_bad_arguments_are_refused() -> None:
    mask = torch.zeros(1, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match="more than 0 valid entries, got 0"):
        algo.reinforce_pp_advantages(torch.zeros(1, 2), mask)
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\]"):
        algo.reinforce_pp_advantages(torch.zeros(1, 2), ~mask, gamma=1.5)
    with pytest.raises(ValueError, match="common shape"):
        algo.reinforce_pp_baseline_advantages(torch.zeros(1, 2), torch.ones(1, 3))
