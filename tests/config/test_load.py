"""Settings from TOML and from the command line; every mistake is one sentence that says what to type."""

import shlex
from pathlib import Path

import pytest

from oncurve.cli.icl_run import lab_settings
from oncurve.config import dump_config, known_settings, load_comparison, load_config
from oncurve.config.migrate import import_config
from oncurve.learner import LearnerSettings
from oncurve.types import ConfigError


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_embedded_default_is_valid_and_complete() -> None:
    config = load_config(None)
    assert config.model.path == "embedded"
    assert config.tasks.source == "countdown"


def test_a_dumped_config_loads_as_the_same_config(tmp_path: Path) -> None:
    config = load_config(None, ["--learner.lr", "0.00123", "--seed=7", "--objective.kl_coef", "0.02"])
    assert load_config(write(tmp_path, dump_config(config))) == config


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "seed = 3\nsteps = 11\n")
    config = load_config(path, ["--seed", "4"])
    assert (config.seed, config.steps) == (4, 11)


@pytest.mark.parametrize(
    ("words", "read", "expected"),
    [
        (["--learner.lr", "1e-4"], lambda config: config.learner.lr, 1e-4),
        (["--objective.mask-truncated", "true"], lambda config: config.objective.mask_truncated, True),
        (["--model.path=some/dir"], lambda config: config.model.path, "some/dir"),
        (["--name", '"007"'], lambda config: config.name, "007"),
    ],
)
def test_override_values_are_toml_or_plain_text(words, read, expected) -> None:
    assert read(load_config(None, words)) == expected


def test_an_unknown_key_names_file_key_and_nearest_known_one(tmp_path: Path) -> None:
    path = write(tmp_path, "[objective]\nclip_hi = 0.3\n")
    with pytest.raises(
        ConfigError, match=r"run\.toml: unknown setting objective\.clip_hi\. Did you mean objective\.clip_high\?"
    ):
        load_config(path)


def test_an_unknown_flag_names_the_nearest_known_one() -> None:
    with pytest.raises(
        ConfigError, match=r"the command line: unknown setting learner\.lrr\. Did you mean learner\.lr\?"
    ):
        load_config(None, ["--learner.lrr", "1"])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--learner.learning_rate", "learner.lr"),
        ("--lr", "learner.lr"),
        ("--num_generations", "rollout.group_size"),
        ("--model.lora.r", "model.lora.rank"),
        ("--temperature", "rollout.sampling.temperature"),
    ],
)
def test_names_of_other_trainers_and_names_without_their_table_are_understood(typed: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"Did you mean {meant}\?"):
        load_config(None, [typed, "4"])


def test_every_mistake_is_named_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "stepz = 3\n[learner]\nlr = -1\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert "unknown setting stepz. Did you mean steps?" in str(caught.value)
    assert "learner.lr" in str(caught.value)
    assert "-1" in str(caught.value)


def test_a_group_of_one_is_refused_with_the_reason() -> None:
    with pytest.raises(
        ConfigError, match=r"rollout\.group_size must be at least 2, got 1.*grades a completion against the others"
    ):
        load_config(None, ["--rollout.group_size", "1"])


@pytest.mark.parametrize(
    ("words", "is_refused"),
    [
        (["--tasks.answer_format", "box"], True),
        (["--tasks.answer_format", "tag"], False),
        (["--tasks.answer_format", "box", "--reward.components.correct.options.answer.carrier", "box"], False),
    ],
)
def test_an_answer_is_read_where_it_is_asked_for(tmp_path: Path, words: list[str], is_refused: bool) -> None:
    path = write(tmp_path, "[tasks]\nsource = 'largest'\n")
    if not is_refused:
        load_config(path, words)
        return
    with pytest.raises(ConfigError, match=r'carrier = "box" in reward\.components\.correct\.options\.answer'):
        load_config(path, words)


def test_more_minibatches_than_groups_are_refused() -> None:
    with pytest.raises(ConfigError, match="a group is never split"):
        load_config(None, ["--rollout.num_prompts", "2", "--learner.updates_per_rollout", "3"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed"], "--seed needs a value"),
        (["--seed", "--steps", "3"], "--seed needs a value"),
        (["seed", "3"], "expected a setting"),
        (["--name.inner", "3"], "name is a single value"),
    ],
)
def test_malformed_overrides_are_refused(words, message) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, words)


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    write(tmp_path, "seed = 1\n")
    with pytest.raises(ConfigError, match=r"there is no config file .*runn\.toml\. Did you mean run\.toml\?"):
        load_config(tmp_path / "runn.toml")


def test_broken_toml_names_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run\.toml is not valid TOML.*line 1"):
        load_config(write(tmp_path, "seed = = 1\n"))


def test_known_settings_are_dotted_names() -> None:
    names = known_settings()
    assert "rollout.sampling.temperature" in names
    assert "model.lora.rank" in names


def test_a_preset_on_the_command_line_takes_the_place_of_the_objective_in_the_file() -> None:
    config = load_config(None, ["--objective.preset", "dr_grpo"])
    assert load_config(None).objective.aggregation == "token-mean"
    assert config.objective.aggregation == "constant"
    assert config.objective.advantage.estimator == "group_mean"
    assert config.objective.zero_variance == "keep"
    changed = load_config(None, ["--objective.preset", "dr_grpo", "--objective.clip-high", "0.3"])
    assert changed.objective == config.objective.model_copy(update={"clip_high": 0.3})
    assert load_config(None, ["--objective.preset", "ppo"]).objective.advantage.estimator == "gae"


def test_a_warm_up_that_leaves_the_policy_no_step_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"warmup_rollouts = 5 leaves none of steps = 5 to the policy"):
        load_config(None, ["--objective.preset", "ppo", "--steps", "5"])
    assert load_config(None, ["--objective.preset", "ppo", "--steps", "6"]).critic.warmup_rollouts == 5


@pytest.mark.parametrize("words", [["--dpo.beta", "0.5"], ["--sft.examples", "rows.jsonl"]])
def test_data_of_another_method_are_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError, match=r'does nothing with method = "online"'):
        load_config(None, words)


def test_an_error_about_a_table_says_that_the_command_line_had_a_part_in_it() -> None:
    with pytest.raises(ConfigError, match="the embedded default, with the command line: objective: there is no preset"):
        load_config(None, ["--objective.preset", "gpso"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--objective.loss", "gpso"], r"\(got 'gpso'\)\. Did you mean gspo\?"),
        (["--objective.advantage.estimator", "grup_mean"], r"Did you mean group_mean\?"),
        (["--method", "grpo"], r"What is optimised is chosen by: --objective\.preset grpo"),
        (["--method", "zzz"], r"\(got 'zzz'\)$"),
        (["--steps"], r"^--steps needs a value, as in --steps VALUE or --steps=VALUE\.$"),
        (["--stps"], r"--stps needs a value, .*Did you mean steps\?"),
    ],
)
def test_a_wrong_word_is_answered_with_the_one_that_was_meant(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, words)


def test_a_file_of_problems_on_the_command_line_replaces_the_embedded_default(tmp_path: Path) -> None:
    config = load_config(None, ["--tasks.path", "problems.jsonl", "--model.path", "dir"])
    assert (config.tasks.source, config.model.path) == ("file", "dir")
    assert config.learner.lr == LearnerSettings().lr  # not the one tuned for the embedded model


def test_the_file_of_another_trainer_is_sent_to_the_import(tmp_path: Path) -> None:
    path = tmp_path / "trl.yaml"
    path.write_text("learning_rate: 1e-6\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"oncurve import trl .*trl\.yaml"):
        load_config(path)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("rewards.py", b"def f(x): pass", r"rewards\.py is not valid TOML.*oncurve audit .*rewards\.py:FUNCTION"),
        ("tasks.jsonl", b'{"prompt": "x"}', r"tasks\.jsonl is not valid TOML.*--tasks\.path .*tasks\.jsonl"),
        ("run.toml", b"name = '\xff'", r"run\.toml is no config file: byte 0xff at 8 is no text in UTF-8"),
    ],
)
def test_a_file_of_another_kind_is_told_with_what_it_is_for(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigError, match=message):
        load_config(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "seed = 1\n[functions]\ndimension = 3\n",
            r"of `oncurve icl train` \(\[functions\]\), and not of `oncurve train`",
        ),
        ("tokens = 9\n[arms.one]\nseed = 1\n", r"of `oncurve compare` \(\[arms\]\), and not of `oncurve train`"),
    ],
)
def test_settings_of_another_command_are_one_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(write(tmp_path, text))
    assert "unknown setting" not in str(caught.value)


def test_settings_of_a_run_are_sent_from_the_other_commands_to_train(tmp_path: Path) -> None:
    path = write(tmp_path, "name = 'mine'\n[reward.components.correct]\nverifier = 'task'\n")
    with pytest.raises(ConfigError, match=r"of `oncurve train` \(\[reward\]\), and not of `oncurve compare`\.$"):
        load_comparison(path)
    with pytest.raises(ConfigError, match=r"of `oncurve train` \(\[reward\]\), and not of `oncurve icl train`\.$"):
        lab_settings(path, "ci", [])


def test_a_mistyped_table_beside_a_right_one_is_still_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown setting functions"):
        load_config(write(tmp_path, "[learner]\nlr = 1e-4\n[functions]\ndimension = 3\n"))


def test_the_mark_that_windows_editors_put_first_is_no_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"\xef\xbb\xbfsteps = 7\n")
    assert load_config(path).steps == 7
    path = tmp_path / "trl.yaml"
    path.write_bytes(b"\xef\xbb\xbfmax_steps: 7\n")
    assert "steps = 7" in import_config("trl", path).toml


def test_a_folder_is_no_config_but_may_hold_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is a folder, and a config is one TOML file\.$"):
        load_config(tmp_path)
    (tmp_path / "one.toml").write_text("")
    with pytest.raises(ConfigError, match=r"It holds .*one\.toml: name one of them"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("</answer>", """--rollout.sampling.stop '["</answer>"]'"""),
        ("[</answer>, </think>]", """--rollout.sampling.stop '["</answer>", "</think>"]'"""),
    ],
)
def test_a_word_in_the_place_of_a_list_is_told_how_to_write_it(word: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(None, ["--rollout.sampling.stop", word])
    assert str(refused.value) == (
        f"the command line: rollout.sampling.stop: a list is needed, got {word!r}. Write: {remedy}"
    )
    _, value = shlex.split(remedy)  # what a shell makes of the remedy is what was meant
    stop = load_config(None, ["--rollout.sampling.stop", value]).rollout.sampling.stop
    assert stop == tuple(word.strip("[]").split(", "))


def test_a_mistyped_setting_of_a_named_table_is_told_by_that_name() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown setting reward\.components\.mine\.wieght\. .*reward\.components\.mine\.weight\?$"
    ):
        load_config(None, ["--reward.components.mine.wieght", "1"])


def test_where_no_setting_is_near_those_of_the_table_are_named() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting tasks\.columns\.foo\. tasks\.columns has: prompt, gold, "):
        load_config(None, ["--tasks.columns.foo", "1"])


def test_a_text_in_the_place_of_a_list_in_a_file_is_told_how_to_write_it(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[rollout.sampling]\nstop = "</answer>"\n')
    with pytest.raises(ConfigError, match=r'a list is needed, got \'</answer>\'. Write: stop = \["</answer>"\]$'):
        load_config(tmp_path / "run.toml")
