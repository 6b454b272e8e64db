"""TRL's run: batches, schedule, model, data, rewards. What the config computes, not how it is spelled."""

import json
from pathlib import Path

import pytest
import yaml

from oncurve.config import load_config
from oncurve.config.migrate import Migration, import_config
from oncurve.types import ConfigError

DATA = Path(__file__).parent / "data"


def trl(tmp_path: Path, processes: int = 1, **keys: object) -> Migration:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"max_steps": 12, **keys}))
    return import_config("trl", path, processes=processes)


def fate(found: Migration, key: str) -> str:
    return next(entry.fate for entry in found.entries if entry.key == key)


def text(found: Migration, key: str) -> str:
    return next(entry.text for entry in found.entries if entry.key == key)


@pytest.mark.parametrize(
    ("keys", "processes", "prompts", "updates", "rollouts"),
    [
        # 8 completions a rollout, 8 a prompt
        ({}, 1, 1, 1, 12),
        # 4 * 4 = 16 completions a step, one step a rollout
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}, 1, 2, 1, 12),
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}, 3, 6, 1, 12),
        # 16 micro-batches of 4 a rollout, 4 of them a step
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "steps_per_generation": 16}, 1, 8, 4, 3),
        # the same, said as a size
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "generation_batch_size": 64}, 1, 8, 4, 3),
        # two generations from the same weights make one step
        ({"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "steps_per_generation": 2}, 1, 4, 1, 12),
    ],
)
def test_batches_become_prompts_and_updates(tmp_path, keys, processes, prompts, updates, rollouts):
    config = trl(tmp_path, processes, **keys).config
    assert config.rollout.num_prompts == prompts
    assert config.rollout.group_size == 8
    assert config.learner.updates_per_rollout == updates
    assert config.steps == rollouts


def test_groups_that_are_cut_apart_there_stay_whole_here(tmp_path):
    found = trl(tmp_path, per_device_train_batch_size=4, steps_per_generation=4, gradient_accumulation_steps=1)
    assert (found.config.rollout.num_prompts, found.config.learner.updates_per_rollout) == (2, 2)
    assert fate(found, "steps_per_generation") == "absent"
    assert "4 optimiser steps there" in text(found, "steps_per_generation")


@pytest.mark.parametrize(
    "keys",
    [
        {"num_generations": 3},
        {"generation_batch_size": 12},
        {"generation_batch_size": 16, "steps_per_generation": 2},
        {"num_generations": 1},
        {"num_generations": "many"},
        {"num_generations": True},
        {"loss_type": "dapoo"},
        {"temperature": "warm"},
        {"mask_truncated_completions": "perhaps"},
        {"reward_funcs": ["a.b", "a.c"], "reward_weights": [1.0]},
    ],
)
def test_what_trl_would_refuse_is_refused_with_file_and_key(tmp_path, keys):
    with pytest.raises(ConfigError) as caught:
        trl(tmp_path, **keys)
    assert str(tmp_path / "config.yaml") in str(caught.value)
    assert any(key in str(caught.value) for key in keys)


def test_a_misspelt_choice_names_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean dapo"):
        trl(tmp_path, loss_type="dapoo")


def test_the_linear_schedule_ends_with_the_run(tmp_path):
    # 12 steps, 3 of warm-up: (12 - 6) / (12 - 3) of the peak at step 6, as in transformers
    learner = trl(tmp_path, learning_rate=1e-4, warmup_steps=3).config.learner
    assert [learner.lr_at(step) for step in (6, 12)] == pytest.approx([1e-4 * 6 / 9, 0.0])


def test_a_warmup_below_one_is_a_share(tmp_path):
    assert trl(tmp_path, warmup_steps=0.25).config.learner.warmup_steps == 3
    assert trl(tmp_path, warmup_ratio=0.2).config.learner.warmup_steps == 3  # 2.4, rounded up


def test_constant_schedules_do_not_fall(tmp_path):
    constant = trl(tmp_path, lr_scheduler_type="constant", warmup_steps=3, learning_rate=1e-4).config.learner
    assert [constant.lr_at(step) for step in (0, 100)] == [1e-4, 1e-4]
    warm = trl(tmp_path, lr_scheduler_type="constant_with_warmup", warmup_steps=4, learning_rate=1e-4).config.learner
    assert [warm.lr_at(step) for step in (0, 100)] == [2.5e-5, 1e-4]


def test_a_curve_without_counterpart_is_named(tmp_path):
    assert fate(trl(tmp_path, lr_scheduler_type="cosine"), "lr_scheduler_type") == "absent"


def test_numbers_without_a_point_are_numbers(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("learning_rate: 2e-6\nmax_steps: 3\n")
    assert import_config("trl", path).config.learner.lr == 2e-6


@pytest.mark.parametrize(
    ("keys", "dtype", "compute"),
    [
        ({}, "float32", "bfloat16"),  # TRL: bf16 unless fp16
        ({"bf16": False}, "float32", "weights"),
        ({"fp16": True}, "float32", "weights"),
        ({"dtype": "bfloat16"}, "bfloat16", "weights"),
        ({"torch_dtype": "bfloat16"}, "bfloat16", "weights"),
    ],
)
def test_precision(tmp_path, keys, dtype, compute):
    config = trl(tmp_path, **keys).config
    assert (config.model.dtype, config.learner.compute_dtype) == (dtype, compute)


def test_lora(tmp_path):
    assert trl(tmp_path, lora_r=8).config.model.lora is None
    lora = trl(tmp_path, use_peft=True, lora_r=8, lora_target_modules="all-linear").config.model.lora
    assert lora is not None
    assert (lora.rank, lora.alpha, lora.dropout, lora.target_modules) == (8, 32.0, 0.05, "all-linear")


def test_epochs_of_a_file_that_is_here(tmp_path):
    rows = tmp_path / "problems.jsonl"
    rows.write_text('{"prompt": "1 + 1?", "answer": "2"}\n' * 40)
    # a tenth is held out: 36 rows, 2 prompts a rollout, 18 rollouts a pass
    config = trl(
        tmp_path, max_steps=-1, num_train_epochs=2, per_device_train_batch_size=16, dataset_name=str(rows)
    ).config
    assert config.steps == 36
    assert config.learner.decay_steps == 36
    assert config.tasks.path == rows


def test_epochs_of_data_elsewhere_are_not_guessed(tmp_path):
    found = trl(tmp_path, max_steps=-1, num_train_epochs=2, dataset_name="somebody/problems")
    assert fate(found, "num_train_epochs") == "absent"
    assert fate(found, "dataset_name") == "absent"
    assert "there is no tasks.path yet" in found.toml.lower()


def test_rewards_of_the_script(tmp_path):
    found = import_config("trl", DATA / "trl_script.yaml")
    reward = found.config.reward
    assert reward.primary_name == "accuracy"
    weights = {name: component.weight for name, component in reward.components.items()}
    assert weights == {"accuracy": 1.0, "think_format": 0.2, "brevity": 0.1}
    assert reward.components["brevity"].verifier == "my_lib/rewards.py:brevity"
    assert reward.length is None  # it begins at 1024 tokens, where every completion ends


def test_the_overlong_punishment_where_it_acts(tmp_path):
    found = trl(tmp_path, reward_funcs=["get_soft_overlong_punishment"], max_completion_length=2048)
    length = found.config.reward.length
    assert length is not None
    assert (length.shape, length.max_tokens, length.margin, length.weight) == ("overlong", 1280, 256, 1.0)
    assert found.config.reward.weights == {"correct": 0.0, "length": 1.0}


def test_entropy_and_filters(tmp_path):
    objective = trl(
        tmp_path, use_adaptive_entropy=True, entropy_target=0.3, entropy_coef_max=0.02, top_entropy_quantile=0.2,
        mask_truncated_completions=True, off_policy_mask_threshold=0.5,
    ).config.objective  # fmt: skip
    assert objective.entropy_adaptive is not None
    assert (objective.entropy_adaptive.target, objective.entropy_adaptive.step) == (0.3, 0.005)
    assert objective.entropy_adaptive.coef_max == 0.02
    assert (objective.token_filter.mode, objective.token_filter.frac) == ("high_entropy", 0.2)
    assert (objective.mask_truncated, objective.max_divergence) == (True, 0.5)


def test_saving_and_examining_are_counted_in_rollouts(tmp_path):
    # 64 completions a rollout, 4 steps each: every 100 and 40 steps are every 25 and 10 rollouts
    config = import_config("trl", DATA / "trl_script.yaml").config
    assert (config.checkpoint_every, config.evaluation.every, config.keep_checkpoints) == (25, 10, 2)
    assert config.steps == 150


def test_defaults_stand_in_the_file_and_in_the_report(tmp_path):
    found = trl(tmp_path)
    by_key = {entry["key"]: entry["settings"] for entry in found.as_dict()["defaults_applied"]}
    assert by_key["learning_rate"] == {"learner.lr": 1e-6}
    assert by_key["loss_type"]["objective.aggregation"] == "token-mean"
    assert "lr = 1e-06" in found.toml


def test_a_full_dump_has_no_unknown_key(tmp_path):
    found = import_config("trl", DATA / "trl_grpo.json")
    data = found.as_dict()
    assert not [entry for entry in data["unmapped"] if "unknown" in entry["note"]]
    assert {entry["key"] for entry in data["unmapped"]} == {
        "num_iterations", "lr_scheduler_type", "repetition_penalty", "min_p", "report_to",
    }  # fmt: skip


def test_the_written_file_is_the_config(tmp_path):
    found = import_config("trl", DATA / "trl_script.yaml")
    path = tmp_path / "ours.toml"
    path.write_text(found.toml)
    assert load_config(path) == found.config
    line = next(line for line in found.toml.splitlines() if line.startswith("path = "))
    assert line.startswith('path = "Qwen/Qwen2.5-1.5B-Instruct"  # no directory here')


def test_a_model_that_is_here_needs_no_remark(tmp_path):
    (tmp_path / "model").mkdir()
    assert f'path = "{tmp_path / "model"}"\n' in trl(tmp_path, model_name_or_path=str(tmp_path / "model")).toml


def test_json_and_yaml_say_the_same(tmp_path):
    keys = {"max_steps": 5, "beta": 0.1, "scale_rewards": False}
    (tmp_path / "a.json").write_text(json.dumps(keys))
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(keys))
    assert import_config("trl", tmp_path / "a.json").config == import_config("trl", tmp_path / "a.yaml").config
