"""Baselines and scales of the whole batch, on paper."""

from math import nan, sqrt

import pytest
import torch
from torch import Tensor

from oncurve import algo


def table(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_the_std_of_the_batch_on_paper() -> None:
    rewards = table([3.0, 0.0], [1.0, 1.0])
    # raw: mean 5/4, squares 49/16 + 25/16 + 1/16 + 1/16 = 76/16; centred: 1.5, -1.5, 0, 0.
    raw = algo.batch_std_advantages(rewards, ddof=0, std_eps=0.5, std_of="rewards")
    centred = algo.batch_std_advantages(rewards, ddof=1, std_eps=0.5, std_of="centered")
    assert raw[0].tolist() == pytest.approx([1.5 / (sqrt(76 / 64) + 0.5), -1.5 / (sqrt(76 / 64) + 0.5)])
    assert centred[0].tolist() == pytest.approx([1.5 / (sqrt(1.5) + 0.5), -1.5 / (sqrt(1.5) + 0.5)])


def test_leave_one_out_over_the_batch_works_with_groups_of_one() -> None:
    assert algo.batch_loo_advantages(table([3.0], [0.0], [1.0])).flatten().tolist() == pytest.approx([2.5, -2.0, -0.5])
    rewards = table([3.0], [0.0], [nan])
    assert algo.batch_loo_advantages(rewards, scored=~rewards.isnan()).flatten().tolist() == [3.0, -3.0, 0.0]


def test_an_easy_prompt_stands_out_from_the_batch() -> None:
    found = algo.batch_loo_advantages(table([1.0, 1.0], [0.0, 0.0]))
    assert found[0].tolist() == pytest.approx([2 / 3, 2 / 3])


def test_a_lone_completion_has_no_baseline_and_gets_zero() -> None:
    assert algo.batch_loo_advantages(table([3.0])).tolist() == [[0.0]]


def test_shrinkage_on_paper() -> None:
    # Group 1: the other says 0, the other group 1: b = 1/4. Its other half: b = 3/4 * 3 + 1/4.
    # Group 2: the others say 1, the other group 3/2: b = 3/4 + 3/8 = 9/8.
    rewards = table([3.0, 0.0, nan], [1.0, 1.0, 1.0])
    found = algo.shrink_advantages(rewards, shrinkage=0.25, scored=~rewards.isnan())
    assert found.flatten().tolist() == pytest.approx([2.75, -2.5, 0.0, -0.125, -0.125, -0.125])


def test_groups_without_a_verdict_are_no_company_and_a_lone_verdict_is() -> None:
    rewards = table([3.0, 0.0], [nan, nan], [5.0, nan])
    found = algo.shrink_advantages(rewards, shrinkage=1.0, scored=~rewards.isnan())
    assert found.tolist() == [[-2.0, -5.0], [0.0, 0.0], [0.0, 0.0]]


def test_without_company_or_shrinkage_it_is_rloo() -> None:
    rewards = table([3.0, 0.0, 1.0], [1.0, 0.0, 0.0])
    settings = algo.AdvantageSettings(estimator="rloo")
    assert torch.allclose(algo.shrink_advantages(rewards, shrinkage=0.0), algo.group_advantages(rewards, settings))
    alone = rewards[:1]
    assert torch.allclose(algo.shrink_advantages(alone, shrinkage=0.7), algo.group_advantages(alone, settings))


@pytest.mark.parametrize("shrinkage", [-0.1, 1.1])
def test_shrinkage_is_a_share(shrinkage: float) -> None:
    with pytest.raises(ValueError, match=r"must be in \[0, 1\]"):
        algo.shrink_advantages(table([1.0, 0.0]), shrinkage=shrinkage)


def test_gdpo_on_paper() -> None:
    # Component 1 differs in group 1 only, component 2 in group 2 only; stds 1 and 1: z = 1 / 1.5 with eps 1/2.
    # a = 2 z, -2 z, z, -z: std sqrt(10/4) z. The units of component 2 (tens) do not matter but for eps.
    rewards = torch.tensor([[[3.0, 5.0], [1.0, 5.0]], [[0.0, 2.0], [0.0, 0.0]]], dtype=torch.float64)
    found = algo.gdpo_advantages(rewards, table([2.0, 1.0])[0], ddof=0, std_eps=0.5)
    z = 1 / 1.5
    scale = sqrt(2.5) * z + 0.5
    assert found.flatten().tolist() == pytest.approx([2 * z / scale, -2 * z / scale, z / scale, -z / scale])
    # With ddof 1 the stds are sqrt(2) and sqrt(2), and the batch divides by 3.
    sample = algo.gdpo_advantages(rewards, table([2.0, 1.0])[0], ddof=1, std_eps=0.0)
    assert sample[0, 0].item() == pytest.approx(2 / sqrt(10 / 3))


def test_gdpo_tells_apart_what_a_sum_does_not() -> None:
    # Two of four have format, one has the answer: (0, 1) is rarer than (1, 0).
    rewards = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], dtype=torch.float64)
    found = algo.gdpo_advantages(rewards, table([1.0, 1.0])[0], ddof=0, std_eps=0.0)[0]
    assert found[2] > found[0] > found[3]
    # z1 = 1, 1, -1, -1; z2 = (-1, -1, 3, -1) / sqrt(3): a sums to 0.
    assert found.sum().item() == pytest.approx(0)


def test_gdpo_wants_a_weight_a_component() -> None:
    with pytest.raises(ValueError, match="one weight a component"):
        algo.gdpo_advantages(torch.zeros(1, 2, 3), torch.ones(2), ddof=0, std_eps=0.0)
    with pytest.raises(ValueError, match="one weight a component"):
        algo.gdpo_advantages(torch.zeros(1, 2), torch.ones(2), ddof=0, std_eps=0.0)
