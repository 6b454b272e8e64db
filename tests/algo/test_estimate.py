"""Rewards to advantages under any estimator: each goes to its own function, with its own numbers."""

from typing import Any

import pytest
import torch
from torch import Tensor

from oncurve.algo import (
    AdvantageSettings,
    GradedRewards,
    batch_loo_advantages,
    batch_std_advantages,
    difficulty_advantages,
    estimate_advantages,
    finish_advantages,
    gdpo_advantages,
    length_weighted_advantages,
    maxrl_advantages,
    ngrpo_advantages,
    passk_advantages,
    pkpo_advantages,
    raft_selection,
    reinforce_pp_baseline_advantages,
    shrink_advantages,
    token_advantages,
    top_gap_advantages,
)
from oncurve.algo.advantage_settings import idle_numbers
from tests.algo.objectives import ESTIMATORS

REWARDS = torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
SCORED = torch.tensor([[True, True, True, True], [True, True, False, True]])
LENGTHS = torch.tensor([[3, 1, 4, 2], [5, 2, 6, 1]])
TRAINED = torch.where(SCORED, LENGTHS, 0) * torch.tensor([1, 1, 1, 0])
COMPONENTS = torch.stack([REWARDS, REWARDS.flip(1)], dim=-1)
WEIGHTS = torch.tensor([1.0, 0.5], dtype=torch.float64)
REPEATS = torch.tensor([[False, False, False, True], [False] * 4])


def graded(**changes: Any) -> GradedRewards:
    known = {"rewards": REWARDS, "scored": SCORED, "lengths": LENGTHS, "trained_lengths": TRAINED}
    known |= {"components": COMPONENTS, "component_weights": WEIGHTS, "is_repeat": REPEATS}
    return GradedRewards(**known | changes)


EXPECTED: dict[str, tuple[dict[str, Any], Tensor]] = {
    "length_weighted": ({}, length_weighted_advantages(REWARDS, LENGTHS, scored=SCORED)),
    "batch_std": (
        {"ddof": 1, "std_eps": 0.1, "std_of": "centered"},
        batch_std_advantages(REWARDS, ddof=1, std_eps=0.1, std_of="centered", scored=SCORED),
    ),
    "batch_loo": ({}, batch_loo_advantages(REWARDS, scored=SCORED)),
    "shrink": ({"shrinkage": 0.4}, shrink_advantages(REWARDS, shrinkage=0.4, scored=SCORED)),
    "reinforce_pp_baseline": ({"ddof": 1}, reinforce_pp_baseline_advantages(REWARDS, TRAINED, ddof=1, scored=SCORED)),
    "maxrl": ({"std_eps": 0.1}, maxrl_advantages(REWARDS, mean_eps=0.1, scored=SCORED)),
    "ngrpo": (
        {"max_reward": 2.0, "num_virtual": 3, "ddof": 1, "std_eps": 0.1},
        ngrpo_advantages(REWARDS, max_reward=2.0, num_virtual=3, ddof=1, std_eps=0.1, scored=SCORED),
    ),
    "pass_at_k": ({"k": 2, "std_eps": 0.1}, passk_advantages(REWARDS, k=2, std_eps=0.1, scored=SCORED)),
    "pkpo": ({"k": 3}, pkpo_advantages(REWARDS, k=3, baseline="loo1", scored=SCORED)),
    "top_gap": (
        {"ddof": 1, "std_eps": 0.1},
        top_gap_advantages(REWARDS, ddof=1, std_eps=0.1, scored=SCORED),
    ),
    "gdpo": (
        {"ddof": 1, "std_eps": 0.1},
        gdpo_advantages(COMPONENTS, WEIGHTS, ddof=1, std_eps=0.1, scored=SCORED),
    ),
    "difficulty": (
        {
            "ddof": 1,
            "std_eps": 0.1,
            "difficulty": {"weight_min": 0.3, "weight_max": 1.2, "midpoint": 0.6, "slope": 4.0},
        },
        difficulty_advantages(
            REWARDS, ddof=1, std_eps=0.1, weight_min=0.3, weight_max=1.2, midpoint=0.6, slope=4.0, scored=SCORED
        ),
    ),
    "raft": (
        {"threshold": 0.5},
        raft_selection(REWARDS, threshold=0.5, is_repeat=REPEATS, scored=SCORED).double(),
    ),
}


@pytest.mark.parametrize("estimator", EXPECTED)
def test_each_estimator_is_its_function_with_the_numbers_of_the_settings(estimator: str) -> None:
    numbers, expected = EXPECTED[estimator]
    found = estimate_advantages(AdvantageSettings(estimator=estimator, **numbers), graded())  # type: ignore[arg-type]
    assert torch.equal(found, expected)
    assert bool(expected.any())


def test_raft_limits_a_group_or_takes_its_best() -> None:
    def chosen(**rules: Any) -> list[list[float]]:
        found: list[list[float]] = estimate_advantages(AdvantageSettings(estimator="raft", **rules), graded()).tolist()
        return found

    assert chosen(threshold=0.0, max_per_group=2) == [[1, 1, 0, 0], [1, 1, 0, 0]]
    assert chosen(threshold=0.0, best_of_group=True) == [[1, 0, 0, 0], [1, 0, 0, 0]]
    assert chosen(threshold=0.0) == [[1, 1, 1, 0], [1, 1, 0, 1]]  # neither the repeat nor the one without a verdict


def test_pkpo_without_a_baseline_and_the_basic_three() -> None:
    plain = estimate_advantages(AdvantageSettings(estimator="pkpo", k=2, leave_one_out=False), graded())
    assert torch.equal(plain, pkpo_advantages(REWARDS, k=2, baseline="plain", scored=SCORED))
    # Second group: one of three right.
    mean = estimate_advantages(AdvantageSettings(estimator="group_mean"), graded())
    assert mean[1].tolist() == pytest.approx([2 / 3, -1 / 3, 0.0, -1 / 3])
    others = estimate_advantages(AdvantageSettings(estimator="rloo"), graded())
    assert others[1].tolist() == pytest.approx([1.0, -0.5, 0.0, -0.5])


BINARY_OR_WITHOUT_TOLERANCE = ("gae", "reinforce_pp", "pass_at_k", "pkpo", "raft", "maxrl")


@pytest.mark.parametrize("estimator", [name for name in ESTIMATORS if name not in BINARY_OR_WITHOUT_TOLERANCE])
def test_the_tolerance_reaches_every_estimator_that_has_one(estimator: str) -> None:
    # A span of 0.3 is silence at a tolerance of 0.4, and signal at the default one.
    rewards = torch.tensor([[0.7, 1.0, 0.7, 0.7], [1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    known = graded(rewards=rewards, components=torch.stack([rewards, rewards], dim=-1))

    def found(tolerance: float) -> bool:
        setting = AdvantageSettings(estimator=estimator, tolerance=tolerance)  # type: ignore[arg-type]
        return bool(estimate_advantages(setting, known)[0].any())

    assert (found(1e-6), found(0.4)) == (True, False)


def test_maxrl_is_silent_within_its_tolerance() -> None:
    silent = estimate_advantages(AdvantageSettings(estimator="maxrl", tolerance=1.0), graded())
    assert not bool(silent.any())


def test_gae_on_paper() -> None:
    # delta = 0.6 - 0.3 and 1 - 0.6; A_1 = 0.5 * 0.6 - 0.3 + 0.5 * 0.8 * 0.4.
    token_rewards = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    mask = torch.ones(1, 2, dtype=torch.bool)
    values = torch.tensor([[0.3, 0.6]], dtype=torch.float64)
    credit = token_advantages(AdvantageSettings(estimator="gae", gamma=0.5, lam=0.8), token_rewards, mask, values)
    assert credit.advantages.tolist() == [pytest.approx([0.16, 0.4])]
    assert credit.returns.tolist() == [pytest.approx([0.46, 1.0])]
    # lam = 1 - 1 / (1 * 2): the advantage looks half as far, the critic learns the whole return.
    credit = token_advantages(AdvantageSettings(estimator="gae", lam_alpha=1.0), token_rewards, mask, values)
    assert credit.advantages.tolist() == [pytest.approx([0.3 + 0.5 * 0.4, 0.4])]
    assert credit.returns.tolist() == [pytest.approx([1.0, 1.0])]


def test_reinforce_pp_on_paper() -> None:
    # Rewards to go 0.5, 1 and 0, 0: mean 0.375; squares 0.0156 + 0.3906 + 2 * 0.1406 = 0.6875, over 3.
    token_rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    mask = torch.ones(2, 2, dtype=torch.bool)
    credit = token_advantages(AdvantageSettings(estimator="reinforce_pp", gamma=0.5, ddof=1), token_rewards, mask)
    std = (0.6875 / 3) ** 0.5
    assert credit.advantages.tolist()[0] == pytest.approx([0.125 / std, 0.625 / std])
    assert not bool(credit.returns.any())


def test_whitening_counts_tokens_and_clipping_comes_last() -> None:
    # A = 2 on one token, -1 on three: mean -0.25; squares 5.0625 + 3 * 0.5625 = 6.75, over 4 or 3. The fourth is not
    # trained and stays outside.
    gains, counts = torch.tensor([2.0, -1.0, 9.0]).double(), torch.tensor([1, 3, 0])
    population = finish_advantages(AdvantageSettings(whiten=True), gains, counts)
    assert population.tolist() == pytest.approx([2.25 / 1.6875**0.5, -0.75 / 1.6875**0.5, 0.0])
    sample = finish_advantages(AdvantageSettings(whiten=True, ddof=1, clip=1.2), gains, counts)
    assert sample.tolist() == pytest.approx([1.2, -0.5, 0.0])
    assert finish_advantages(AdvantageSettings(clip=1.5), gains, counts).tolist() == [1.5, -1.0, 0.0]
    assert finish_advantages(AdvantageSettings(), gains, counts).tolist() == [2.0, -1.0, 0.0]


def test_one_token_is_not_whitened() -> None:
    gains = torch.tensor([3.0]).double()
    assert finish_advantages(AdvantageSettings(whiten=True, ddof=1), gains, torch.tensor([1])).tolist() == [3.0]


def test_an_estimator_of_the_other_kind_is_refused() -> None:
    mask = torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match="call token_advantages"):
        estimate_advantages(AdvantageSettings(estimator="gae"), graded())
    with pytest.raises(ValueError, match="call estimate_advantages"):
        token_advantages(AdvantageSettings(), torch.zeros(1, 2), mask)
    with pytest.raises(ValueError, match="values of a critic"):
        token_advantages(AdvantageSettings(estimator="gae"), torch.zeros(1, 2), mask)
    with pytest.raises(ValueError, match="pass components"):
        estimate_advantages(AdvantageSettings(estimator="gdpo"), graded(components=None))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_what_an_estimator_says_of_itself_is_consistent(estimator: str) -> None:
    setting = AdvantageSettings(estimator=estimator)  # type: ignore[arg-type]
    assert setting.is_token_level == (estimator in ("gae", "reinforce_pp"))
    assert setting.needs_group == (estimator not in ("gae", "reinforce_pp", "batch_loo", "raft"))
    assert set(idle_numbers(estimator, whiten=True)) <= set(idle_numbers(estimator, whiten=False))
