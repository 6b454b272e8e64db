"""Which completions are imitated, and by which loss."""

from math import nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oncurve import algo

REWARDS = torch.tensor([[1.0, 0.5, 1.0, 2.0], [0.0, 0.5, 0.5, nan]])
SCORED = ~REWARDS.isnan()
REPEATS = torch.tensor([[False, False, True, False], [False, False, False, False]])


def chosen(**rules: object) -> list[list[int]]:
    found = algo.raft_selection(REWARDS, scored=SCORED, **rules)  # type: ignore[arg-type]
    return [row.nonzero().flatten().tolist() for row in found]


def test_the_rules_on_paper() -> None:
    assert chosen(threshold=1.0) == [[0, 2, 3], []]
    assert chosen(threshold=None) == [[0, 1, 2, 3], [0, 1, 2]]
    assert chosen(threshold=1.0, is_repeat=REPEATS) == [[0, 3], []]
    assert chosen(threshold=None, best_of_group=True) == [[3], [1]]  # the first of two at 0.5
    assert chosen(threshold=0.6, best_of_group=True) == [[3], []]
    assert chosen(threshold=0.5, max_per_group=1) == [[0], [1]]
    assert chosen(threshold=0.5, max_per_group=2, is_repeat=REPEATS) == [[0, 1], [1, 2]]


def test_groups_of_one_are_fine_and_a_limit_of_none_is_not() -> None:
    assert algo.raft_selection(torch.tensor([[1.0], [0.0]]), threshold=1.0).tolist() == [[True], [False]]
    with pytest.raises(ValueError, match="at least 1"):
        algo.raft_selection(REWARDS, threshold=None, max_per_group=0, scored=SCORED)
    with pytest.raises(ValueError, match="common shape"):
        algo.raft_selection(REWARDS, threshold=None, is_repeat=REPEATS[:1], scored=SCORED)


@given(st.lists(st.integers(0, 3).map(float), min_size=1, max_size=6), st.integers(1, 6))
def test_never_more_than_the_limit_and_never_less_than_possible(rewards: list[float], limit: int) -> None:
    found = algo.raft_selection(torch.tensor([rewards]), threshold=2.0, max_per_group=limit)
    assert found.sum().item() == min(limit, sum(reward >= 2 for reward in rewards))


def nll(selected: Tensor | None) -> tuple[float, list[list[float]]]:
    logprobs = torch.tensor([[-1.0, -2.0], [-6.0, nan]], dtype=torch.float64, requires_grad=True)
    loss = algo.mean_nll(logprobs, torch.tensor([[True, True], [True, False]]), selected)
    return loss.item(), torch.autograd.grad(loss, logprobs)[0].tolist()


def test_the_likelihood_of_the_selected_on_paper() -> None:
    assert nll(None) == (3.0, [[pytest.approx(-1 / 3), pytest.approx(-1 / 3)], [pytest.approx(-1 / 3), 0.0]])
    assert nll(torch.tensor([True, False])) == (1.5, [[-0.5, -0.5], [0.0, 0.0]])
    assert nll(torch.tensor([False, False])) == (0.0, [[0.0, 0.0], [0.0, 0.0]])


def test_shapes_must_fit() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="common shape"):
        algo.mean_nll(torch.zeros(2, 2), mask)
    with pytest.raises(ValueError, match="common shape"):
        algo.mean_nll(torch.zeros(2, 3), mask, torch.ones(3, dtype=torch.bool))
