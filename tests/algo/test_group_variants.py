"""Other advantages: on paper and against their definitions."""

from itertools import combinations
from math import sqrt
from statistics import mean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oncurve import algo

VARIANTS = {
    "batch_std_raw": lambda r: algo.batch_std_advantages(r, ddof=1, std_eps=0.0, std_of="rewards"),
    "batch_std_centered": lambda r: algo.batch_std_advantages(r, ddof=1, std_eps=0.0, std_of="centered"),
    "length_weighted": lambda r: algo.length_weighted_advantages(r, torch.tensor([[1, 2, 3]]).expand(r.shape)),
    "maxrl": lambda r: algo.maxrl_advantages(r, mean_eps=0.0),
    "passk": lambda r: algo.passk_advantages(r, k=2, std_eps=0.0),
    "top_gap": lambda r: algo.top_gap_advantages(r, ddof=0, std_eps=0.0),
}


def table(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_groups_without_signal_are_exactly_zero(name: str, value: float) -> None:
    rewards = torch.tensor([[value] * 3, [1.0, 0.0, 0.0]])
    found = VARIANTS[name](rewards.requires_grad_())
    assert found[0].tolist() == [0.0, 0.0, 0.0]
    assert bool(torch.isfinite(found).all())
    assert not found.requires_grad


@pytest.mark.parametrize("name", ["batch_std_raw", "batch_std_centered", "length_weighted", "top_gap"])
def test_equal_fractions_are_exactly_zero_in_float32(name: str) -> None:
    assert torch.equal(VARIANTS[name](torch.full((2, 3), 0.7)), torch.zeros(2, 3))


def test_variants_on_paper() -> None:
    rewards = table([3.0, 0.0], [1.0, 1.0])
    # raw: mean 5/4, squares 49/16 + 25/16 + 1/16 + 1/16 = 76/16; centred: 1.5, -1.5, 0, 0.
    raw = algo.batch_std_advantages(rewards, ddof=0, std_eps=0.5, std_of="rewards")
    centred = algo.batch_std_advantages(rewards, ddof=1, std_eps=0.5, std_of="centered")
    assert raw[0].tolist() == pytest.approx([1.5 / (sqrt(76 / 64) + 0.5), -1.5 / (sqrt(76 / 64) + 0.5)])
    assert centred[0].tolist() == pytest.approx([1.5 / (sqrt(1.5) + 0.5), -1.5 / (sqrt(1.5) + 0.5)])
    # (1 * 3 + 2 * 0) / 3 = 1 is the baseline of a short good and a long bad one.
    weighted = algo.length_weighted_advantages(table([3.0, 0.0]), torch.tensor([[1, 2]]))
    assert weighted[0].tolist() == pytest.approx([2.0, -1.0])
    assert algo.maxrl_advantages(table([1.0, 0.0]), mean_eps=0.5)[0].tolist() == pytest.approx([0.5, -0.5])
    # 1, 0 and two virtual 2s: mean 5/4, squares 1/16 + 25/16 + 18/16 = 44/16.
    virtual = algo.ngrpo_advantages(table([1.0, 0.0]), max_reward=2.0, num_virtual=2, ddof=0, std_eps=0.5)
    scale = sqrt(44 / 64) + 0.5
    assert virtual[0].tolist() == pytest.approx([-0.25 / scale, -1.25 / scale])
    # best 5, then 3: gap 2, std of 5, 3, 1 is sqrt(8/3).
    gap = algo.top_gap_advantages(table([3.0, 5.0, 1.0]), ddof=0, std_eps=0.5)
    assert gap[0].tolist() == pytest.approx([0.0, 2 / (sqrt(8 / 3) + 0.5), 0.0])
    assert algo.top_gap_advantages(table([5.0, 5.0, 1.0]), ddof=0, std_eps=0.5)[0].tolist() == [0.0, 0.0, 0.0]


def test_an_all_right_group_is_silent_under_virtual_rewards_and_an_all_wrong_one_is_not() -> None:
    found = algo.ngrpo_advantages(table([1.0, 1.0], [0.0, 0.0]), max_reward=1.0, num_virtual=1, ddof=1, std_eps=0.0)
    assert found[0].tolist() == [0.0, 0.0]
    assert found[1].tolist() == pytest.approx([-1 / sqrt(3)] * 2)  # mean 1/3, std sqrt(1/3)


@given(correct=st.lists(st.integers(0, 1), min_size=2, max_size=6), data=st.data())
def test_passk_is_the_mean_over_all_subsets_of_the_advantage_of_the_subset(
    correct: list[int], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(correct)))
    subsets = list(combinations(range(len(correct)), k))
    wins = {subset: max(correct[place] for place in subset) for subset in subsets}
    rate = mean(wins.values())
    scale = sqrt(rate * (1 - rate)) + 0.1
    found = algo.passk_advantages(table([float(value) for value in correct]), k=k, std_eps=0.1)[0].tolist()
    for place in range(len(correct)):
        own = mean(wins[subset] - rate for subset in subsets if place in subset) / scale
        assert found[place] == pytest.approx(own, abs=1e-12)


@pytest.mark.parametrize("k", [0, 4])
def test_k_must_fit_the_group(k: int) -> None:
    with pytest.raises(ValueError, match="1 <= k <= group_size"):
        algo.passk_advantages(table([1.0, 0.0, 0.0]), k=k)


@pytest.mark.parametrize("call", [lambda r: algo.maxrl_advantages(r), lambda r: algo.passk_advantages(r, k=1)])
def test_shaped_rewards_are_refused_where_only_0_and_1_make_sense(call: object) -> None:
    for value in (0.5, -1.0, 2.0):
        with pytest.raises(ValueError, match="exactly 0 or 1"):
            call(table([value, 0.0]))  # type: ignore[operator]


def test_groups_of_one_and_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"raise rollout\.group_size"):
        algo.maxrl_advantages(table([1.0]))
    with pytest.raises(ValueError, match="common shape"):
        algo.length_weighted_advantages(table([1.0, 0.0]), torch.tensor([[1]]))
