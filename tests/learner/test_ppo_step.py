"""PPO: policy and critic in one optimiser phase."""

import copy
from dataclasses import replace

import pytest
import torch

from oncurve.algo import ObjectiveSettings
from oncurve.learner import Critic, CriticSettings, Learner, LearnerSettings, load_state, save_checkpoint
from oncurve.learner.stopwatch import PARTS, PHASES
from oncurve.model import LoraSettings, Policy, reference_of
from oncurve.model.lora import attach_adapter
from oncurve.types import Group, RunError
from tests.learner import slow
from tests.learner.build import SAMPLING, gradient_of, gradient_settings, largest_difference, sample_groups, tiny_policy
from tests.learner.rollouts import clone, critic_of, learner_of, other, recorded, rollout, told, values_of

REWARDS = [[1.0, 0.0, 0.0], [0.0, 1.0], [1.0, 1.0, None]]
PPO = ObjectiveSettings(preset="ppo", advantage={"lam": 0.95})
FAST = LearnerSettings(lr=0.01)


def ppo(
    start: Policy, objective: ObjectiveSettings = PPO, learner: LearnerSettings = FAST, **critic: object
) -> tuple[Learner, Critic]:
    settings = CriticSettings(**{"lr": 0.01, "warmup_rollouts": 0, **critic})
    mine = Critic(start, settings, learner, seed=0)
    found = Learner(start, learner, objective, sampling=SAMPLING, reference=reference_of(other()), critic=mine)
    return found, mine


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def is_same(model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(weight, weights[name]) for name, weight in model.named_parameters())


def test_while_the_critic_warms_up_the_policy_stays_to_the_bit():
    start = clone()
    learner, critic = ppo(start, warmup_rollouts=2)
    policy_weights, critic_weights = weights_of(start.model), weights_of(critic._stepper.model)
    for rollout_number in range(2):
        metrics = learner.update(sample_groups(start, REWARDS, seed=rollout_number)).metrics
        assert is_same(start.model, policy_weights)
        assert not is_same(critic._stepper.model, critic_weights)
        assert (learner.num_steps, critic.num_steps) == (0, rollout_number + 1)
        assert metrics["grad/norm"] == 0.0
        assert metrics["critic/grad_norm"] > 0
        assert metrics["gap/mean_abs"] < 1e-9  # the sampler is checked all the same
        assert metrics["advantage/mean_abs"] > 0
    learner.update(sample_groups(start, REWARDS, seed=2))
    assert not is_same(start.model, policy_weights)
    assert (learner.num_updates, learner.num_steps, critic.num_steps) == (3, 1, 3)


def test_the_critic_learns_its_returns_before_whitening():
    # Its step is the one that Critic.update takes on gamma-discounted lambda-returns, written out.
    objective = ObjectiveSettings(preset="ppo", advantage={"gamma": 0.9, "lam": 0.8})
    learner = learner_of(objective)
    critic = learner._critic
    values = values_of(critic, rollout())
    alone = critic_of(clone())
    learner.update(rollout())
    plain = objective.model_copy(update={"advantage": objective.advantage.model_copy(update={"whiten": False})})
    advantages = slow.graded(plain, replace(told(rollout()), values=values))
    chosen = {i: c for i, c in enumerate(recorded(rollout())) if told(rollout()).rewards[i] is not None}
    returns = {i: torch.tensor(advantages[i]) + torch.tensor(values[i]) for i in chosen}
    alone.update(chosen, returns, {i: torch.tensor(values[i]) for i in chosen})
    assert largest_difference(_moment(critic), _moment(alone)) < 1e-6
    assert critic.num_steps == 1


def _moment(critic: Critic) -> dict[str, torch.Tensor]:
    return gradient_of(critic)  # type: ignore[arg-type]


def test_whitening_is_over_the_trained_tokens_and_leaves_those_alone_that_are_not():
    # Weighted by their tokens the advantages have mean 0 and mean square 1; unscored ones have 0.
    start = clone()
    for masks in (False, True):
        objective = ObjectiveSettings(preset="ppo", mask_truncated=masks)
        learner, _ = ppo(clone(), objective)
        groups = sample_groups(start, REWARDS, seed=1)
        graded = learner.gradient(groups).graded
        kept = [
            graded.advantages[i]
            for i, completion in enumerate(recorded(groups))
            if told(groups).rewards[i] is not None and not (masks and completion.is_truncated)
        ]
        tokens = torch.cat(kept)
        assert len(tokens) > 5
        assert tokens.mean().item() == pytest.approx(0.0, abs=1e-9)
        assert tokens.square().mean().item() == pytest.approx(1.0, abs=1e-3)
        assert not graded.advantages[-1].any()


def test_truncated_ones_teach_the_critic_though_they_are_not_trained():
    start = clone()
    objective = ObjectiveSettings(preset="ppo", mask_truncated=True)
    learner, _ = ppo(start, objective)
    groups = sample_groups(start, REWARDS)
    assert any(completion.is_truncated for completion in recorded(groups))
    probe = learner.gradient(groups)
    assert not any(member.completion.is_truncated for member in probe.members)
    assert sorted(probe.graded.returns) == [i for i, r in enumerate(told(groups).rewards) if r is not None]


def test_the_value_clip_holds_a_critic_that_takes_several_steps_on_one_rollout():
    moved = {}
    for clip in (0.01, None):
        start = clone()
        settings = LearnerSettings(lr=1e-9, updates_per_rollout=3, beta1=0.0)  # no momentum: no gradient, no move
        learner, critic = ppo(start, learner=settings, value_clip=clip, lr=0.002)
        groups = sample_groups(start, [[1.0, 1.0]] * 3)
        before = critic.values(dict(enumerate(recorded(groups))))
        metrics = learner.update(groups).metrics
        after = critic.values(dict(enumerate(recorded(groups))))
        moved[clip] = sum((after[i] - before[i]).abs().mean().item() for i in before)
        assert critic.num_steps == 3
        assert (metrics["critic/clip_frac"] > 0.3) == (clip is not None)
    assert moved[0.01] < 0.7 * moved[None]


def test_critic_and_policy_step_side_by_side_on_the_same_shares_of_the_rollout():
    start = clone()
    learner, critic = ppo(start, learner=LearnerSettings(lr=0.01, updates_per_rollout=3))
    result = learner.update(sample_groups(start, REWARDS))
    assert (learner.num_steps, critic.num_steps) == (3, 3)
    assert result.metrics["critic/lr"] == 0.01
    assert {"reference", "critic"} <= set(result.seconds) <= {*PHASES, *PARTS}
    assert all(value > 0 for value in result.seconds.values())
    dropped = learner.update(sample_groups(start, [[None, None], [None]]))
    assert (learner.num_steps, critic.num_steps) == (3, 3)
    assert dropped.advantages == ((0.0, 0.0), (0.0,))
    assert "critic/loss" not in dropped.metrics


def test_groups_of_one_and_all_equal_ones_are_learned_from():
    start = clone()
    learner, _ = ppo(start)
    result = learner.update(sample_groups(start, [[1.0], [1.0, 1.0]]))
    assert learner.num_steps == 1
    assert result.metrics["groups/dropped"] == 0.0
    assert all(gain != 0 for row in result.advantages for gain in row)


def start_of(kind: str) -> Policy:
    start = tiny_policy("llama", dtype=torch.bfloat16 if kind == "bfloat16" else torch.float32)
    if kind == "lora":
        start.adapter = attach_adapter(start.model, LoraSettings(rank=2, dropout=0.5), seed=0)
    return start


STEERED = ObjectiveSettings(
    preset="ppo",
    kl_coef=0.1,
    kl_estimator="k1",
    kl_placement="reward",
    kl_adaptive={"target": 0.01, "horizon": 50},
    entropy_coef=0.01,
    entropy_adaptive={"target": 2.5},
)


def resumable(kind: str) -> tuple[Policy, Learner]:
    start = start_of(kind)
    settings = LearnerSettings(lr=0.01, updates_per_rollout=2, max_logprob_gap=9.0)
    critic = Critic(start, CriticSettings(lr=0.01, warmup_rollouts=1), settings, seed=0)
    return start, Learner(start, settings, STEERED, sampling=SAMPLING, critic=critic)


def run(learner: Learner, seeds: range) -> list[object]:
    found: list[object] = []
    for seed in seeds:
        result = learner.update(sample_groups(learner.policy, REWARDS, seed=seed))
        found.append((result.metrics, result.advantages))
    return found


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "lora"])
def test_stopping_and_continuing_gives_what_never_stopping_gives(kind, tmp_path):
    torch.manual_seed(1)
    straight_policy, straight = resumable(kind)
    expected = run(straight, range(3))
    first_policy, first = resumable(kind)
    before = run(first, range(2))
    save_checkpoint(tmp_path, 2, first_policy, {"learner": first.state_dict()})
    torch.manual_seed(99)  # the global random state of the new process is another one
    resumed_policy, resumed = resumable(kind)
    resumed.load_state_dict(load_state(tmp_path / "step_000002")["learner"])
    assert before + run(resumed, range(2, 3)) == expected
    assert is_same(resumed_policy.model, weights_of(straight_policy.model))
    assert is_same(resumed._critic._stepper.model, weights_of(straight._critic._stepper.model))
    assert resumed._critic.num_steps == straight._critic.num_steps


def test_a_state_without_critic_does_not_continue_ppo():
    learner, _ = ppo(clone())
    state = learner.state_dict()
    del state["critic"]
    before = weights_of(learner.policy.model)
    with pytest.raises(RunError, match="lacks critic"):
        learner.load_state_dict(state)
    assert is_same(learner.policy.model, before)


def test_a_critic_is_needed_by_gae_and_refused_by_everyone_else():
    start = clone()
    with pytest.raises(ValueError, match=r"estimator gae without a critic.*Pass critic"):
        Learner(start, FAST, PPO, sampling=SAMPLING)
    with pytest.raises(ValueError, match="estimator group_zscore with a critic"):
        Learner(start, FAST, ObjectiveSettings(), sampling=SAMPLING, critic=critic_of(start))


def by_prompt(groups: list[Group]) -> list[Group]:
    """A toy with something to foresee: the second prompt is always right, the others never are."""
    return [
        replace(group, verdicts=sample_groups(tiny_policy(), [[float(p == 1)] * 3])[0].verdicts)
        for p, group in enumerate(groups)
    ]


def test_explained_variance_rises_where_the_prompt_decides():
    start = tiny_policy("gpt2")
    learner, _ = ppo(start, learner=LearnerSettings(lr=1e-9))
    groups = by_prompt(sample_groups(start, [[0.0] * 3] * 3))
    found = [learner.update(groups).metrics for _ in range(40)]
    assert found[0]["critic/explained_variance"] < 0.2
    assert found[-1]["critic/explained_variance"] > 0.9
    assert found[-1]["critic/loss"] < 0.1 * found[0]["critic/loss"]


def test_ppo_moves_the_policy_towards_what_is_rewarded():
    start = clone()
    learner, _ = ppo(start, learner=LearnerSettings(lr=0.01, old_logprobs="recompute", max_logprob_gap=99.0))
    groups = sample_groups(start, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    done = recorded(groups)
    first = slow.floats(start.model, done, SAMPLING.temperature)
    for _ in range(6):
        learner.update(groups)
    last = slow.floats(start.model, done, SAMPLING.temperature)
    assert all(sum(last[i]) > sum(first[i]) for i in (0, 4))


def test_the_critic_never_touches_the_policy_gradient():
    # Same values, one critic that is about to be trained hard and one that is not: the policy's step is the same.
    gradients = []
    for lr in (1e-9, 0.5):
        start = clone()
        critic = Critic(start, CriticSettings(lr=lr, warmup_rollouts=0), gradient_settings(), seed=0)
        learner = Learner(start, gradient_settings(), PPO, sampling=SAMPLING, critic=critic)
        learner.update(sample_groups(start, REWARDS))
        gradients.append(copy.deepcopy(gradient_of(learner)))
    assert all(torch.equal(gradients[0][name], value) for name, value in gradients[1].items())
