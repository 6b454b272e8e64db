"""verl's run: batches, schedule, model, data, rewards, critic."""

from pathlib import Path

import pytest

from oncurve.config import load_config
from oncurve.config.migrate import Migration, import_config
from oncurve.types import ConfigError

DATA = Path(__file__).parent / "data"
ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."


def verl(tmp_path: Path, *overrides: str) -> Migration:
    path = tmp_path / "overrides.txt"
    path.write_text("\n".join([f"{ROLLOUT}n=4", "algorithm.adv_estimator=grpo", "trainer.total_training_steps=20",
                               *overrides]))  # fmt: skip
    return import_config("verl", path)


def fate(found: Migration, key: str) -> str:
    return next(entry.fate for entry in found.entries if entry.key == key)


def text(found: Migration, key: str) -> str:
    return next(entry.text for entry in found.entries if entry.key == key)


def test_prompts_and_mini_batches(tmp_path):
    config = verl(tmp_path, "data.train_batch_size=96", f"{ACTOR}ppo_mini_batch_size=32").config
    assert (config.rollout.num_prompts, config.rollout.group_size) == (96, 4)
    assert config.learner.updates_per_rollout == 3
    assert config.steps == 20


def test_one_completion_a_prompt_becomes_two_of_half_as_many(tmp_path):
    found = verl(tmp_path, "data.train_batch_size=8", f"{ACTOR}ppo_mini_batch_size=4", f"{ROLLOUT}n=1")
    assert (found.config.rollout.num_prompts, found.config.rollout.group_size) == (4, 2)
    assert found.config.learner.updates_per_rollout == 2
    assert fate(found, f"{ROLLOUT}n") == "absent"


def test_repeated_epochs_have_no_counterpart(tmp_path):
    assert fate(verl(tmp_path, f"{ACTOR}ppo_epochs=1"), f"{ACTOR}ppo_epochs") == "same"
    assert fate(verl(tmp_path, f"{ACTOR}ppo_epochs=4"), f"{ACTOR}ppo_epochs") == "absent"


def test_the_dapo_script(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    config = import_config("verl", DATA / "verl_dapo.sh").config
    assert (config.rollout.num_prompts, config.rollout.group_size, config.learner.updates_per_rollout) == (512, 16, 16)
    assert config.rollout.sampling.max_tokens == 1024 * 20
    assert config.tasks.path == tmp_path / "verl/data/math-17k.parquet"
    assert config.tasks.held_out_path == tmp_path / "verl/data/aime-2024.parquet"
    assert config.model.path == str(tmp_path / "verl/models/base-7b")
    objective, length = config.objective, config.reward.length
    assert (objective.zero_variance, objective.resample_rounds) == ("resample", 10)
    assert (objective.clip_low, objective.clip_high, objective.dual_clip) == (0.2, 0.28, 10.0)
    assert length is not None
    assert (length.max_tokens, length.margin, length.weight) == (20480, 4096, 1.0)
    assert (config.evaluation.num_samples, config.evaluation.every, config.checkpoint_every) == (32, 5, 5)


def test_a_choice_without_a_dot_is_not_lost():
    found = import_config("verl", DATA / "verl_dapo.sh")
    assert fate(found, "model_engine") == "absent"


def test_nested_yaml():
    found = import_config("verl", DATA / "verl_nested.yaml")
    config = found.config
    assert config.rollout.sampling.max_tokens == 256  # through ${data.max_response_length}
    assert config.rollout.sampling.temperature == 0.8
    assert (config.objective.loss, config.objective.clip_low) == ("gspo_token", 3e-4)
    assert config.model.lora is not None
    assert config.model.lora.rank == 16
    # 100 rollouts of 64 / 16 = 4 steps; 5 % of 400 is the warm-up; the cosine becomes a line to 0 at 400
    assert (config.learner.warmup_steps, config.learner.decay_steps) == (20, 400)
    assert fate(found, f"{ACTOR}optim.lr_scheduler_type") == "absent"


def test_ppo_brings_its_critic():
    config = import_config("verl", DATA / "verl_overrides.txt").config
    assert (config.critic.lr, config.critic.value_clip, config.critic.warmup_rollouts) == (2e-5, 0.2, 10)
    advantage = config.objective.advantage
    assert (advantage.estimator, advantage.lam, advantage.whiten, advantage.ddof) == ("gae", 0.95, True, 1)
    adaptive = config.objective.kl_adaptive
    assert adaptive is not None
    assert (adaptive.target, adaptive.horizon, config.objective.kl_coef) == (0.2, 10_000, 0.01)


def test_without_gae_the_critic_is_no_part(tmp_path):
    assert fate(verl(tmp_path, "critic.optim.lr=1e-4"), "critic.optim.lr") == "same"


@pytest.mark.parametrize(
    ("typo", "nearest"),
    [
        ("actor_rollout_ref.rollout.tempature=0.7", "actor_rollout_ref.rollout.temperature"),
        ("actor_rollout_ref.actor.clip_ratio_hi=0.3", "actor_rollout_ref.actor.clip_ratio_high"),
        ("algorithm.adv_estimater=rloo", "algorithm.adv_estimator"),
        ("trainer.test_frequ=3", "trainer.test_freq"),
    ],
)
def test_a_typo_is_named_with_the_nearest_key(tmp_path, typo, nearest):
    found = verl(tmp_path, typo)
    key = typo.partition("=")[0]
    assert fate(found, key) == "absent"
    assert f"Did you mean {nearest}?" in text(found, key)


def test_several_files_are_not_joined(tmp_path):
    found = verl(tmp_path, "data.train_files=['a.parquet','b.parquet']")
    assert found.config.tasks.path == Path("a.parquet")
    assert fate(found, "data.train_files") == "absent"


def test_the_default_placeholders_of_verl_are_not_taken_for_paths(tmp_path):
    config = verl(tmp_path).config
    assert (config.tasks.path, config.model.path, config.name) == (None, "embedded", "run")


@pytest.mark.parametrize(
    "override",
    [
        f"{ACTOR}ppo_mini_batch_size=4096",
        f"{ROLLOUT}n=0",
        f"{ACTOR}loss_agg_mode=mean",
        f"{ACTOR}clip_ratio_c=high",
        f"{ACTOR}optim.betas=[0.9]",
        "algorithm.kl_ctrl.type=shrinking algorithm.use_kl_in_reward=True",
    ],
)
def test_what_verl_would_refuse_is_refused_with_file_and_key(tmp_path, override):
    with pytest.raises(ConfigError) as caught:
        verl(tmp_path, *override.split())
    assert str(tmp_path / "overrides.txt") in str(caught.value)
    assert override.partition("=")[0] in str(caught.value)


def test_what_is_refused_here_names_their_key(tmp_path):
    with pytest.raises(ConfigError, match=r"from .*actor_rollout_ref.actor.policy_loss.loss_mode"):
        verl(tmp_path, f"{ACTOR}policy_loss.loss_mode=geo_mean", "algorithm.adv_estimator=gae")


@pytest.mark.parametrize("name", ["verl_dapo.sh", "verl_nested.yaml", "verl_overrides.txt"])
def test_the_written_file_is_the_config(tmp_path, name):
    found = import_config("verl", DATA / name)
    path = tmp_path / "ours.toml"
    path.write_text(found.toml)
    assert load_config(path) == found.config
