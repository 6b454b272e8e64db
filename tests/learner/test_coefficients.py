"""Coefficients that steer themselves: on paper, in a run, and across a restart."""

import copy

import pytest
import torch

from oncurve.algo import ObjectiveSettings
from oncurve.learner import Learner, LearnerSettings
from oncurve.learner.coefficients import Coefficients
from oncurve.model import reference_of
from tests.learner.build import SAMPLING, sample_groups, tiny_policy
from tests.learner.rollouts import clone, critic_of, other, policy

REWARDS = [[1.0, 0.0, 0.0], [0.0, 1.0], [0.0, 1.0, 1.0]]
STEERED = ObjectiveSettings(
    kl_coef=0.1,
    kl_adaptive={"target": 0.5, "horizon": 20},
    entropy_coef=0.003,
    entropy_adaptive={"target": 2.0, "step": 0.001, "coef_max": 0.005},
)


def learner_of(objective: ObjectiveSettings, **settings: object) -> Learner:
    mine = clone()
    return Learner(
        mine,
        LearnerSettings(**{"lr": 0.01, **settings}),
        objective,
        sampling=SAMPLING,
        reference=reference_of(other()),
        critic=critic_of(mine, warmup_rollouts=1) if objective.advantage.estimator == "gae" else None,
    )


def run(learner: Learner, seeds: range) -> list[dict[str, float]]:
    return [learner.update(sample_groups(learner.policy, REWARDS, seed=seed)).metrics for seed in seeds]


def test_the_kl_coefficient_on_paper():
    # 10 completions of a horizon of 100: the error, cut to a fifth, counts a tenth.
    found = Coefficients(ObjectiveSettings(kl_coef=0.1, kl_adaptive={"target": 0.05, "horizon": 100}))
    assert found.metrics() == {"objective/kl_coef": 0.1}
    for divergence, expected in [(0.2, 0.1 * 1.02), (0.052, 0.102 * 1.004), (0.0, 0.102 * 1.004 * 0.98)]:
        found.after_rollout(divergence, 10)
        assert found.objective().kl_coef == pytest.approx(expected, rel=1e-12)
    found.after_rollout(None, 10)
    assert found.metrics() == {"objective/kl_coef": pytest.approx(0.102 * 1.004 * 0.98, rel=1e-12)}


def test_a_rollout_larger_than_the_horizon_never_turns_the_sign():
    found = Coefficients(ObjectiveSettings(kl_coef=0.1, kl_adaptive={"target": 0.05, "horizon": 5}))
    found.after_rollout(0.0, 1000)
    assert found.objective().kl_coef == pytest.approx(0.08)
    found.after_rollout(9.0, 1000)
    assert found.objective().kl_coef == pytest.approx(0.096)


def test_the_entropy_coefficient_on_paper():
    adaptive = {"target": 0.2, "step": 0.001, "coef_max": 0.005}
    found = Coefficients(ObjectiveSettings(entropy_coef=0.003, entropy_adaptive=adaptive))
    assert found.objective().entropy_coef == 0.0  # no entropy is known before the first step
    told = [(0.1, 0.003), (0.2, 0.004), (0.1, 0.005), (0.1, 0.005), (0.3, 0.0), (0.1, 0.004), (0.3, 0.0), (0.3, 0.0)]
    for entropy, applied in told:
        found.after_step(entropy)
        assert found.objective().entropy_coef == pytest.approx(applied)
        assert found.metrics() == {"objective/entropy_coef": pytest.approx(applied)}
    for _ in range(9):
        found.after_step(0.3)
    found.after_step(0.1)
    assert found.objective().entropy_coef == 0.0  # crept down to 0, and no further
    found.after_step(0.1)
    assert found.objective().entropy_coef == pytest.approx(0.001)


def test_what_is_not_adapted_stays_as_it_was_given():
    objective = ObjectiveSettings(kl_coef=0.1, entropy_coef=0.2)
    found = Coefficients(objective)
    found.after_step(0.1)
    found.after_rollout(9.0, 100)
    assert found.objective() is objective
    assert found.metrics() == {}
    half = Coefficients(ObjectiveSettings(kl_coef=0.1, kl_adaptive={"target": 1.0}, entropy_coef=0.2))
    half.after_step(0.1)
    assert (half.objective().kl_coef, half.objective().entropy_coef) == (0.1, 0.2)


def test_a_run_follows_the_formulas_and_shows_what_it_used():
    learner = learner_of(STEERED)
    kl_coef, entropy_coef, entropy = 0.1, 0.003, None
    for seed in range(5):
        metrics = learner.update(sample_groups(learner.policy, REWARDS, seed=seed)).metrics
        applied = entropy_coef if entropy is not None and entropy <= 2.0 else 0.0
        assert metrics["objective/kl_coef"] == pytest.approx(kl_coef, rel=1e-12)
        assert metrics["objective/entropy_coef"] == pytest.approx(applied, rel=1e-12)
        assert metrics["loss/total"] == pytest.approx(
            metrics["loss/policy"] + kl_coef * metrics["loss/kl"] - applied * metrics["entropy/mean"], abs=1e-12
        )
        error = min(max(metrics["kl/reference"] / 0.5 - 1, -0.2), 0.2)
        kl_coef *= 1 + error * 8 / 20
        if entropy is not None:
            entropy_coef = min(max(entropy_coef + (0.001 if entropy <= 2.0 else -0.001), 0.0), 0.005)
        entropy = metrics["entropy/mean"]
    assert kl_coef != pytest.approx(0.1)
    assert entropy_coef != 0.003


def test_the_entropy_coefficient_moves_with_every_step_and_shows_that_of_the_first():
    adaptive = {"target": 9.0, "step": 0.001, "coef_max": 1.0}  # always below it
    objective = ObjectiveSettings(entropy_coef=0.003, entropy_adaptive=adaptive)
    learner = learner_of(objective, updates_per_rollout=3)
    first, second = run(learner, range(2))
    assert first["objective/entropy_coef"] == 0.0
    assert second["objective/entropy_coef"] == pytest.approx(0.005)  # .003 in step 1, .004 in step 2, .005 in step 3


def test_an_adapted_kl_in_the_reward_costs_more_each_time():
    objective = ObjectiveSettings(
        kl_coef=0.1,
        kl_estimator="k1",
        kl_placement="reward",
        kl_adaptive={"target": 1e-3, "horizon": 8},
        advantage={"estimator": "group_mean"},
    )
    groups = sample_groups(policy(), REWARDS)
    frozen = learner_of(objective, lr=1e-12)
    rows = [[gain for row in frozen.update(groups).advantages for gain in row] for _ in range(3)]
    plain = [2 / 3, -1 / 3, -1 / 3, -0.5, 0.5, -2 / 3, 1 / 3, 1 / 3]
    costs = [[gain - base for gain, base in zip(row, plain, strict=True)] for row in rows]
    assert max(map(abs, costs[0])) > 0.01
    assert costs[1] == pytest.approx([1.2 * cost for cost in costs[0]], abs=1e-9)
    assert costs[2] == pytest.approx([1.44 * cost for cost in costs[0]], abs=1e-9)


def test_a_critic_that_warms_up_leaves_the_coefficients_alone():
    objective = STEERED.model_copy(
        update={
            "advantage": STEERED.advantage.model_copy(update={"estimator": "gae"}),
            "zero_variance": "keep",
        }
    )
    learner = learner_of(objective)
    waiting, working, after = run(learner, range(3))
    assert waiting["objective/kl_coef"] == working["objective/kl_coef"] == 0.1
    assert after["objective/kl_coef"] != 0.1


def test_coefficients_survive_a_restart_to_the_bit():
    straight = learner_of(STEERED)
    expected = run(straight, range(4))
    first = learner_of(STEERED)
    before = run(first, range(2))
    state = copy.deepcopy(first.state_dict())
    torch.manual_seed(99)
    resumed = learner_of(STEERED)
    resumed.load_state_dict(state)
    assert resumed.state_dict()["coefficients"] == state["coefficients"]
    assert before + run(resumed, range(2, 4)) == expected
    assert state["coefficients"]["kl"] != 0.1
    assert state["coefficients"]["last_entropy"] is not None
    fresh = Coefficients(STEERED)
    fresh.load_state_dict(Coefficients(STEERED).state_dict())
    assert fresh.state_dict() == {"kl": 0.1, "entropy": 0.003, "last_entropy": None}


def test_in_bfloat16_the_starting_coefficient_is_still_exact():
    start = tiny_policy("llama", dtype=torch.bfloat16)
    learner = Learner(start, LearnerSettings(), STEERED, sampling=SAMPLING)
    metrics = learner.update(sample_groups(start, REWARDS)).metrics
    assert metrics["objective/kl_coef"] == 0.1
