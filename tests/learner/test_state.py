"""Stopping and continuing gives what never stopping gives, to the bit."""

import copy
from pathlib import Path

import pytest
import torch

from oncurve.algo import ObjectiveSettings
from oncurve.learner import Learner, LearnerSettings, load_state, save_checkpoint
from oncurve.model import LoraSettings, Policy, reference_of
from oncurve.model.lora import attach_adapter
from oncurve.types import RunError
from tests.learner.build import SAMPLING, sample_groups, tiny_policy

REWARDS = [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
SETTINGS = LearnerSettings(lr=0.01, warmup_steps=3, updates_per_rollout=2)
OBJECTIVE = ObjectiveSettings(kl_coef=0.1)


def start(kind: str) -> Policy:
    policy = tiny_policy("llama", dtype=torch.bfloat16 if kind == "bfloat16" else torch.float32)
    if kind == "lora":
        policy.adapter = attach_adapter(policy.model, LoraSettings(rank=2, dropout=0.5), seed=0)
    return policy


def run(learner: Learner, policy: Policy, seeds: range) -> list[dict[str, float]]:
    return [learner.update(sample_groups(policy, REWARDS, seed=seed)).metrics for seed in seeds]


def learner_of(policy: Policy) -> Learner:
    settings = SETTINGS if policy.adapter is None else SETTINGS.model_copy(update={"max_logprob_gap": 9.0})
    return Learner(policy, settings, OBJECTIVE, sampling=SAMPLING)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "lora"])
def test_two_steps_a_checkpoint_and_two_steps_equal_four_steps(kind: str, tmp_path: Path):
    torch.manual_seed(1)
    straight_policy = start(kind)
    straight = learner_of(straight_policy)
    expected = run(straight, straight_policy, range(4))

    first_policy = start(kind)
    first = learner_of(first_policy)
    before = run(first, first_policy, range(2))
    save_checkpoint(tmp_path, 2, first_policy, {"learner": first.state_dict()})

    torch.manual_seed(99)  # the global random state of the new process is another one
    policy = start(kind)
    resumed = learner_of(policy)
    resumed.load_state_dict(load_state(tmp_path / "step_000002")["learner"])
    assert before + run(resumed, policy, range(2, 4)) == expected
    assert resumed.num_steps == straight.num_steps == 8
    for (name, mine), (_, theirs) in zip(
        policy.model.named_parameters(), straight_policy.model.named_parameters(), strict=True
    ):
        assert torch.equal(mine, theirs), name


def test_with_lora_the_state_holds_only_the_adapter():
    policy = start("lora")
    masters = learner_of(policy).state_dict()["optimizer"]["masters"]
    assert masters
    assert all("lora_" in name for name in masters)


def test_a_loaded_state_is_not_written_to_by_later_steps():
    policy = start("float32")
    learner = learner_of(policy)
    run(learner, policy, range(1))
    state = copy.deepcopy(learner.state_dict())
    kept = copy.deepcopy(state)
    learner.load_state_dict(state)
    run(learner, policy, range(1, 2))
    moments = state["optimizer"]["adamw"]["state"][0]["exp_avg"]
    assert torch.equal(moments, kept["optimizer"]["adamw"]["state"][0]["exp_avg"])


def test_the_reference_is_that_of_construction():
    policy = start("float32")
    other = learner_of(start("float32"))
    run(other, other.policy, range(2))
    resumed = Learner(policy, SETTINGS, OBJECTIVE, sampling=SAMPLING, reference=reference_of(policy))
    resumed.load_state_dict(copy.deepcopy(other.state_dict()))
    assert run(resumed, policy, range(2, 3))[0]["kl/reference"] > 1e-5


def test_a_state_that_no_learner_wrote_is_refused():
    with pytest.raises(RunError, match="lacks coefficients"):
        learner_of(start("float32")).load_state_dict({"num_updates": 1})
