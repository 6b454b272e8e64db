"""Estimators that stay within a group: on paper and against their definitions."""

from itertools import product
from math import exp, log, sqrt

import pytest
import torch
from torch import Tensor

from oncurve import algo


def table(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_a_baseline_weighted_by_length_on_paper() -> None:
    # (1 * 3 + 2 * 0) / 3 = 1 is the baseline of a short good and a long bad one.
    found = algo.length_weighted_advantages(table([3.0, 0.0]), torch.tensor([[1, 2]]))
    assert found[0].tolist() == pytest.approx([2.0, -1.0])
    with pytest.raises(ValueError, match="common shape"):
        algo.length_weighted_advantages(table([1.0, 0.0]), torch.tensor([[1]]))


def test_maxrl_on_paper() -> None:
    assert algo.maxrl_advantages(table([1.0, 0.0]), mean_eps=0.5)[0].tolist() == pytest.approx([0.5, -0.5])


def test_maxrl_climbs_every_pass_at_k_below_the_group_size() -> None:
    # One answer is right with probability p; G = 3. Over all 8 groups the mean of A log p(o) has the gradient of
    # sum over k = 1, 2 of (1 - (1 - p)^k) / k.
    logit = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    right = torch.sigmoid(logit)
    surrogate = torch.zeros((), dtype=torch.float64)
    for group in product([1.0, 0.0], repeat=3):
        outcome = torch.tensor([group], dtype=torch.float64)
        logprobs = torch.where(outcome > 0, right.log(), (1 - right).log())
        gain = algo.maxrl_advantages(outcome, mean_eps=0.0)
        surrogate = surrogate + logprobs.sum().exp().detach() * (gain * logprobs).mean()
    wanted = sum((1 - (1 - right) ** k) / k for k in (1, 2))
    assert torch.autograd.grad(surrogate, logit, retain_graph=True)[0].item() == pytest.approx(
        torch.autograd.grad(wanted, logit)[0].item()
    )


@pytest.mark.parametrize("value", [0.5, -1.0, 2.0])
def test_maxrl_refuses_shaped_rewards(value: float) -> None:
    with pytest.raises(ValueError, match="exactly 0 or 1"):
        algo.maxrl_advantages(table([value, 0.0]))


def test_virtual_rewards_on_paper() -> None:
    # 1, 0 and two virtual 2s: mean 5/4, squares 1/16 + 25/16 + 18/16 = 44/16.
    found = algo.ngrpo_advantages(table([1.0, 0.0]), max_reward=2.0, num_virtual=2, ddof=0, std_eps=0.5)
    scale = sqrt(44 / 64) + 0.5
    assert found[0].tolist() == pytest.approx([-0.25 / scale, -1.25 / scale])


def test_an_all_right_group_is_silent_under_virtual_rewards_and_an_all_wrong_one_is_not() -> None:
    found = algo.ngrpo_advantages(table([1.0, 1.0], [0.0, 0.0]), max_reward=1.0, num_virtual=1, ddof=1, std_eps=0.0)
    assert found[0].tolist() == [0.0, 0.0]
    assert found[1].tolist() == pytest.approx([-1 / sqrt(3)] * 2)  # mean 1/3, std sqrt(1/3)


def test_difficulty_on_paper() -> None:
    # Three of four right, z = 1/sqrt(3) and -sqrt(3). exp(slope * (3/4 - 1/2)) = 3: w(3/4) = 1 + 2/4 for the right
    # ones, and w(1/4) = 1 + 2/(4/3) for the wrong one, which stands out on an easy prompt.
    shape = {"weight_min": 1.0, "weight_max": 3.0, "midpoint": 0.5, "slope": 4 * log(3)}
    found = algo.difficulty_advantages(table([5.0, 5.0, 5.0, -1.0]), ddof=0, std_eps=0.0, **shape)
    assert found[0].tolist() == pytest.approx([1.5 / sqrt(3)] * 3 + [-2.5 * sqrt(3)])


def test_by_default_a_rare_right_answer_weighs_most() -> None:
    # z of the right ones is 3/2 and 1/2; w(1/4) = 0.4 + 1.1 / (1 + exp(-5)), and w(3/4) = 0.95 is half-way.
    rare = algo.difficulty_advantages(table([1.0, 0.0, 0.0, 0.0]), ddof=1, std_eps=0.0)[0, 0].item()
    usual = algo.difficulty_advantages(table([1.0, 1.0, 1.0, 0.0]), ddof=1, std_eps=0.0)[0, 0].item()
    assert rare == pytest.approx(1.5 * (0.4 + 1.1 / (1 + exp(-5))))
    assert usual == pytest.approx(0.5 * 0.95)
