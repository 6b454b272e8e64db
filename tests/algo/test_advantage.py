"""Group advantages, by paper and by property."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oncurve.algo import AdvantageSettings, group_advantages, informative_scale, is_zero_variance
from oncurve.algo.advantage_settings import idle_numbers

ESTIMATORS = ("group_zscore", "group_mean", "rloo")
finite = st.floats(-100, 100, allow_subnormal=False)


def rows(min_size: int = 2) -> st.SearchStrategy[list[float]]:
    return st.lists(finite, min_size=min_size, max_size=8)


def table(*groups: list[float]) -> Tensor:
    return torch.tensor(groups, dtype=torch.float64)


def basic(estimator: str, **numbers: Any) -> AdvantageSettings:
    """Settings with those of the numbers that the estimator uses."""
    idle = idle_numbers(estimator, whiten=False)
    used = {name: value for name, value in numbers.items() if name not in idle}
    return AdvantageSettings(estimator=estimator, **used)  # type: ignore[arg-type]


def test_the_std_is_the_populations_by_default_and_the_samples_on_demand() -> None:
    # [2, 0, 0, 0]: mean 0.5, squares 2.25 + 3 * 0.25 = 3; std sqrt(3/4) or sqrt(3/3).
    rewards = table([2.0, 0.0, 0.0, 0.0])
    population = group_advantages(rewards, AdvantageSettings(std_eps=0.0))
    sample = group_advantages(rewards, AdvantageSettings(std_eps=0.0, ddof=1))
    assert population[0].tolist() == pytest.approx([3**0.5, *[-1 / 3**0.5] * 3])
    assert sample[0].tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5])


def test_std_eps_is_added_to_the_std() -> None:
    # [1, 0]: c = +-0.5, std 0.5, so 0.5 / (0.5 + 0.5).
    found = group_advantages(table([1.0, 0.0]), AdvantageSettings(std_eps=0.5))
    assert found[0].tolist() == pytest.approx([0.5, -0.5])


def test_leave_one_out_compares_with_the_mean_of_the_others() -> None:
    # 4 - (1 + 0) / 2 and so on.
    found = group_advantages(table([4.0, 1.0, 0.0]), AdvantageSettings(estimator="rloo"))
    assert found[0].tolist() == pytest.approx([3.5, -1.0, -2.5])


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ("group_mean", [1.5, -1.5, 0.0]),  # mean of 4 and 1
        ("rloo", [3.0, -3.0, 0.0]),  # 4 - 1 and 1 - 4
        ("group_zscore", [1.0, -1.0, 0.0]),  # std 1.5
    ],
)
def test_an_unscored_member_gets_zero_and_no_say(estimator: str, expected: list[float]) -> None:
    settings = basic(estimator, std_eps=0.0)
    scored = torch.tensor([[True, True, False]])
    found = group_advantages(table([4.0, 1.0, float("nan")]), settings, scored=scored)
    assert found[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_fewer_than_two_scored_members_have_no_baseline(estimator: str) -> None:
    settings = AdvantageSettings(estimator=estimator)  # type: ignore[arg-type]
    scored = torch.tensor([[True, False, False], [False, False, False]])
    assert torch.equal(
        group_advantages(table([5.0, 1.0, 0.0], [5.0, 1.0, 0.0]), settings, scored=scored), torch.zeros(2, 3).double()
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(reward=st.floats(-1e3, 1e3, width=32), group_size=st.integers(2, 16))
def test_equal_rewards_give_exactly_zero(estimator: str, reward: float, group_size: int) -> None:
    settings = basic(estimator, std_eps=0.0, tolerance=0.0)
    found = group_advantages(torch.full((1, group_size), reward, dtype=torch.float32), settings)
    assert torch.equal(found, torch.zeros(1, group_size))


def test_fifteen_times_seven_tenths_is_exactly_zero_in_float32() -> None:
    # The float32 mean of these is off by 1e-7 and so is the std: their quotient is 0.96, not 0.
    rewards = torch.full((1, 15), 0.7, dtype=torch.float32)
    assert torch.equal(group_advantages(rewards, AdvantageSettings(std_eps=1e-9)), torch.zeros(1, 15))


def test_the_tolerance_decides_and_belongs_to_the_equal_side() -> None:
    rewards = table([0.0, 0.25])
    assert group_advantages(rewards, AdvantageSettings(tolerance=0.25)).tolist() == [[0.0, 0.0]]
    assert group_advantages(rewards, AdvantageSettings(tolerance=0.24, std_eps=0.0)).tolist() == [[-1.0, 1.0]]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(rewards=rows(), shift=finite)
def test_rows_sum_to_zero_and_a_shift_changes_nothing(estimator: str, rewards: list[float], shift: float) -> None:
    settings = basic(estimator, std_eps=1e-3, tolerance=1e-3)
    found = group_advantages(table(rewards), settings)
    assert found.sum().item() == pytest.approx(0, abs=1e-9)
    if max(rewards) - min(rewards) > 2e-3:
        shifted = group_advantages(table([reward + shift for reward in rewards]), settings)
        assert torch.allclose(found, shifted, atol=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(rewards=rows(3), data=st.data())
def test_order_does_not_matter(estimator: str, rewards: list[float], data: st.DataObject) -> None:
    settings = AdvantageSettings(estimator=estimator)  # type: ignore[arg-type]
    order = data.draw(st.permutations(range(len(rewards))))
    found = group_advantages(table(rewards), settings)[0]
    shuffled = group_advantages(table([rewards[place] for place in order]), settings)[0]
    assert torch.allclose(found[order], shuffled, atol=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(first=st.lists(finite, min_size=4, max_size=4), second=st.lists(finite, min_size=4, max_size=4))
def test_another_group_never_matters(estimator: str, first: list[float], second: list[float]) -> None:
    settings = AdvantageSettings(estimator=estimator)  # type: ignore[arg-type]
    alone = group_advantages(table(first), settings)
    together = group_advantages(table(second, first), settings)
    assert torch.equal(alone[0], together[1])


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(rewards=rows(), garbage=st.sampled_from([float("nan"), float("inf"), -1e9, 0.0]))
def test_a_masked_member_is_the_same_as_none(estimator: str, rewards: list[float], garbage: float) -> None:
    settings = basic(estimator, ddof=1)
    scored = torch.tensor([[True] * len(rewards) + [False]])
    found = group_advantages(table([*rewards, garbage]), settings, scored=scored)
    assert torch.allclose(found[0, :-1], group_advantages(table(rewards), settings)[0], atol=1e-9)
    assert found[0, -1].item() == 0.0


def test_statistics_are_taken_in_float64() -> None:
    # The mean, 2^24 + 1, does not exist in float32.
    rewards = torch.tensor([[2.0**24, 2.0**24 + 2]], dtype=torch.float32)
    assert group_advantages(rewards, AdvantageSettings(estimator="group_mean")).tolist() == [[-1.0, 1.0]]


def test_the_defaults_are_those_of_the_published_method_with_a_small_eps() -> None:
    found = group_advantages(table([1.0, 0.0]), AdvantageSettings())
    assert found[0].tolist() == pytest.approx([0.5 / 0.500001, -0.5 / 0.500001], rel=1e-12)


def test_the_dtype_is_kept_and_no_gradient_flows() -> None:
    rewards = torch.tensor([[1.0, 0.0]], dtype=torch.float32, requires_grad=True)
    found = group_advantages(rewards, AdvantageSettings())
    assert found.dtype is torch.float32
    assert not found.requires_grad


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        (torch.zeros(3, 1), "raise rollout.group_size"),
        (torch.zeros(4), r"must be float \[P, G\]"),
        (torch.zeros(2, 2, dtype=torch.int64), "float"),
        (torch.tensor([[0.0, 1.0], [0.0, float("nan")]]), r"rewards\[1, 1\] is nan"),
        (torch.tensor([[float("inf"), 1.0]]), r"rewards\[0, 0\] is inf"),
    ],
)
def test_unusable_rewards_are_refused(rewards: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        group_advantages(rewards, AdvantageSettings())
    with pytest.raises(ValueError, match=message):
        is_zero_variance(rewards, tolerance=0.0)


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"scored \[1, 2\]"):
        group_advantages(torch.zeros(1, 3), AdvantageSettings(), scored=torch.ones(1, 2, dtype=torch.bool))


def test_an_empty_batch_is_an_empty_answer() -> None:
    assert group_advantages(torch.zeros(0, 4), AdvantageSettings()).shape == (0, 4)
    assert is_zero_variance(torch.zeros(0, 4), tolerance=0.0).shape == (0,)


def test_silent_groups_are_found_among_scored_members_only() -> None:
    rewards = table([1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0])
    scored = torch.tensor([[True, True, True], [True, True, True], [True, True, False], [True, False, False]])
    assert is_zero_variance(rewards, tolerance=0.0, scored=scored).tolist() == [False, True, True, True]
    assert is_zero_variance(rewards, tolerance=0.0).tolist() == [False, True, False, False]
    assert is_zero_variance(rewards, tolerance=1.0).tolist() == [True, True, True, True]


def test_the_informative_scale_counts_completions() -> None:
    sizes = torch.tensor([4, 2, 2])
    assert informative_scale(torch.tensor([False, True, True]), sizes) == 2.0  # 8 / 4
    assert informative_scale(torch.tensor([True, False, False]), sizes) == 2.0
    assert informative_scale(torch.tensor([False, False, True]), sizes) == pytest.approx(8 / 6)
    assert informative_scale(torch.tensor([True, True, True]), sizes) == 1.0
    with pytest.raises(ValueError, match="common shape"):
        informative_scale(torch.tensor([True]), sizes)
