"""What holds for every estimator: silence, locality, order, and completions without a verdict."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oncurve import algo

Function = Callable[[Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class Estimator:
    function: Function
    is_centred: bool = True
    """An all-equal group gets exactly 0, whatever the other groups do."""
    is_local: bool = True
    """One group never influences another."""
    keeps_order: bool = False
    """The result depends on the order of the samples."""


def lengths(rewards: Tensor) -> Tensor:
    """Lengths that go with the rewards, so that permuting one permutes the other."""
    return 1 + 4 * torch.nan_to_num(rewards.detach())


def two_components(rewards: Tensor) -> Tensor:
    return torch.stack([rewards, 1 - rewards.square()], dim=2)


def zscore(rewards: Tensor, scored: Tensor | None) -> Tensor:
    return algo.group_advantages(rewards, algo.AdvantageSettings(), scored=scored)


def pkpo(baseline: str) -> Function:
    return lambda r, s: algo.pkpo_advantages(r, k=2, baseline=baseline, scored=s)  # type: ignore[arg-type]


def batch_std(std_of: str) -> Function:
    return lambda r, s: algo.batch_std_advantages(r, ddof=1, std_eps=0.1, std_of=std_of, scored=s)  # type: ignore[arg-type]


WEIGHTS = torch.tensor([1.0, 0.5])
ESTIMATORS = {
    "batch_loo": Estimator(lambda r, s: algo.batch_loo_advantages(r, scored=s), is_centred=False, is_local=False),
    "batch_std_centered": Estimator(batch_std("centered"), is_local=False),
    "batch_std_rewards": Estimator(batch_std("rewards"), is_local=False),
    "difficulty": Estimator(lambda r, s: algo.difficulty_advantages(r, ddof=1, std_eps=0.1, scored=s)),
    "gdpo": Estimator(
        lambda r, s: algo.gdpo_advantages(two_components(r), WEIGHTS, ddof=1, std_eps=0.1, scored=s), is_local=False
    ),
    "kalman": Estimator(
        lambda r, s: algo.kalman_advantages(r, scored=s).advantages, is_centred=False, keeps_order=True
    ),
    "length_weighted": Estimator(lambda r, s: algo.length_weighted_advantages(r, lengths(r), scored=s)),
    "maxrl": Estimator(lambda r, s: algo.maxrl_advantages(r, scored=s)),
    "ngrpo": Estimator(
        lambda r, s: algo.ngrpo_advantages(r, max_reward=1.0, num_virtual=1, ddof=1, std_eps=0.1, scored=s),
        is_centred=False,
    ),
    "passk": Estimator(lambda r, s: algo.passk_advantages(r, k=2, scored=s)),
    "pkpo_loo1": Estimator(pkpo("loo1")),
    "pkpo_plain": Estimator(pkpo("plain"), is_centred=False),
    "reinforce_pp_baseline": Estimator(
        lambda r, s: algo.reinforce_pp_baseline_advantages(r, lengths(r), scored=s), is_centred=False, is_local=False
    ),
    "shrink": Estimator(
        lambda r, s: algo.shrink_advantages(r, shrinkage=0.3, scored=s), is_centred=False, is_local=False
    ),
    "top_gap": Estimator(lambda r, s: algo.top_gap_advantages(r, ddof=1, std_eps=0.1, scored=s)),
    "zscore": Estimator(zscore),
}
CENTRED = [name for name, estimator in ESTIMATORS.items() if estimator.is_centred]
LOCAL = [name for name, estimator in ESTIMATORS.items() if estimator.is_local]
SHARED = [name for name, estimator in ESTIMATORS.items() if not estimator.is_local]
ORDERLESS = [name for name, estimator in ESTIMATORS.items() if not estimator.keeps_order]
FRACTIONS = [name for name in CENTRED if name not in ("maxrl", "passk")]

outcomes = st.lists(st.integers(0, 1).map(float), min_size=4, max_size=4)


def table(*rows: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(rows, dtype=dtype)


def run(name: str, rewards: Tensor, scored: Tensor | None = None) -> Tensor:
    return ESTIMATORS[name].function(rewards, scored)


@pytest.mark.parametrize("name", CENTRED)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_an_equal_group_is_exactly_zero_beside_an_unequal_one(name: str, value: float) -> None:
    rewards = torch.tensor([[value] * 4, [1.0, 0.0, 0.0, 0.0]], requires_grad=True)
    found = run(name, rewards)
    assert found[0].tolist() == [0.0] * 4
    assert bool(found[1].abs().sum() > 0.1)
    assert bool(torch.isfinite(found).all())
    assert not found.requires_grad
    assert found.dtype is torch.float32


@pytest.mark.parametrize("name", FRACTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_fractions_are_exactly_zero(name: str, dtype: torch.dtype) -> None:
    # Fifteen times 0.7 has a std of 1.2e-7 in float32.
    rewards = torch.full((2, 15), 0.7, dtype=dtype)
    assert torch.equal(run(name, rewards), torch.zeros_like(rewards))


@pytest.mark.parametrize("name", ["batch_loo", "reinforce_pp_baseline", "shrink"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_a_difference_in_the_whole_batch_all_is_exactly_zero(name: str, dtype: torch.dtype) -> None:
    # In float64 the mean of 7 * 15 times 0.7 is not 0.7.
    rewards = torch.full((7, 15), 0.7, dtype=dtype)
    assert torch.equal(run(name, rewards), torch.zeros_like(rewards))


@pytest.mark.parametrize("name", LOCAL)
@given(first=outcomes, second=outcomes, third=outcomes)
def test_one_group_never_influences_another(
    name: str, first: list[float], second: list[float], third: list[float]
) -> None:
    assert torch.equal(run(name, table(first, second))[0], run(name, table(first, third))[0])


@pytest.mark.parametrize("name", SHARED)
def test_estimators_that_say_so_do_look_at_the_other_groups(name: str) -> None:
    beside_failure = run(name, table([1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]))[0]
    beside_success = run(name, table([1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]))[0]
    assert not torch.allclose(beside_failure, beside_success)


@pytest.mark.parametrize("name", ORDERLESS)
@given(first=outcomes, second=outcomes, order=st.permutations(range(4)))
def test_reordering_a_group_reorders_its_advantages(
    name: str, first: list[float], second: list[float], order: list[int]
) -> None:
    rewards = table(first, second)
    shuffled = torch.stack([rewards[0, order], rewards[1]])
    expected = run(name, rewards)
    expected[0] = expected[0, order]
    assert torch.allclose(run(name, shuffled), expected, atol=1e-12)


@pytest.mark.parametrize("name", ESTIMATORS)
@given(first=outcomes, second=outcomes)
def test_reordering_the_groups_reorders_the_rows(name: str, first: list[float], second: list[float]) -> None:
    assert torch.allclose(run(name, table(first, second)).flip(0), run(name, table(second, first)), atol=1e-12)


@pytest.mark.parametrize("name", ESTIMATORS)
@given(first=outcomes, second=outcomes, place=st.integers(0, 4))
def test_a_completion_without_a_verdict_is_as_if_it_were_not_there(
    name: str, first: list[float], second: list[float], place: int
) -> None:
    rewards = table(first, second)
    hole = torch.full((2, 1), torch.nan, dtype=torch.float64)
    wider = torch.cat([rewards[:, :place], hole, rewards[:, place:]], dim=1)
    found = run(name, wider, ~wider.isnan())
    assert found[:, place].tolist() == [0.0, 0.0]
    there = [column for column in range(5) if column != place]
    assert torch.allclose(found[:, there], run(name, rewards), atol=1e-12)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_group_without_any_verdict_changes_nothing(name: str) -> None:
    rewards = table([1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [torch.nan] * 3)
    found = run(name, rewards, ~rewards.isnan())
    assert found[2].tolist() == [0.0] * 3
    assert torch.allclose(found[:2], run(name, rewards[:2]))


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in ("batch_loo", "kalman")])
def test_a_lone_verdict_is_not_a_group(name: str) -> None:
    rewards = table([1.0, torch.nan, torch.nan], [0.0, torch.nan, torch.nan], [1.0, 0.0, 0.0])
    assert run(name, rewards, ~rewards.isnan())[:2].tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "passk"])  # no pair fails: nothing to learn
def test_two_verdicts_are_a_group(name: str) -> None:
    rewards = table([1.0, torch.nan, 0.0])
    assert run(name, rewards, ~rewards.isnan())[0, 0] > 0.05


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in ("batch_loo", "kalman")])
def test_groups_of_one_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"raise rollout\.group_size"):
        run(name, table([1.0]))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_bad_rewards_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="common shape"):
        run(name, table([1.0, 0.0]), torch.ones(1, 3) > 0)
    with pytest.raises(ValueError, match=r"rewards\[0, 1\] is nan"):
        run(name, table([1.0, torch.nan]))
    with pytest.raises(ValueError, match=r"float \[P, G\]"):
        run(name, torch.ones(1, 2, dtype=torch.long))
