"""Files, scripts, and the account of keys: each ends in exactly one way."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncurve.config.migrate import import_config
from oncurve.config.migrate.catalogue import load_catalogue
from oncurve.config.migrate.reading import parse_value, read_overrides_or_values, read_values
from oncurve.config.migrate.shell import ShellError, parse_overrides
from oncurve.types import ConfigError

DATA = Path(__file__).parent / "data"
FILES = [
    ("trl", "trl_script.yaml"),
    ("trl", "trl_grpo.json"),
    ("verl", "verl_dapo.sh"),
    ("verl", "verl_nested.yaml"),
    ("verl", "verl_overrides.txt"),
]


@pytest.mark.parametrize(("trainer", "name"), FILES)
def test_each_key_of_the_file_ends_in_exactly_one_way(trainer, name):
    read = read_values if trainer == "trl" else read_overrides_or_values
    data = import_config(trainer, DATA / name).as_dict()
    found = [entry["key"] for part in ("mapped", "same", "unmapped") for entry in data[part]]
    assert sorted(found) == sorted(read(DATA / name))


@pytest.mark.parametrize(("trainer", "name"), FILES)
def test_every_ending_has_its_reason(trainer, name):
    data = import_config(trainer, DATA / name).as_dict()
    assert all(entry["settings"] for entry in data["mapped"])
    assert all(entry["note"] for entry in [*data["same"], *data["unmapped"]])
    assert all(entry["settings"] or entry["note"] for entry in data["defaults_applied"])


@pytest.mark.parametrize(("trainer", "name"), FILES)
def test_the_report_shows_every_key(trainer, name):
    found = import_config(trainer, DATA / name)
    report = found.report()
    assert found.formula in report
    assert all(entry.key in report for entry in found.entries if entry.is_given)


@given(st.sampled_from(["trl", "verl"]), st.randoms())
def test_any_choice_of_known_keys_at_their_defaults_is_accounted_for(tmp_path_factory, trainer, random):
    defaults = load_catalogue(trainer).defaults
    chosen = {key: defaults[key] for key in random.sample(sorted(defaults), 12)}
    path = tmp_path_factory.mktemp("import") / "config.yaml"
    path.write_text("".join(f"{key}: {_yaml(value)}\n" for key, value in chosen.items()))
    data = import_config(trainer, path).as_dict()
    found = [entry["key"] for part in ("mapped", "same", "unmapped") for entry in data[part]]
    assert sorted(found) == sorted(chosen)
    assert not [entry for entry in data["unmapped"] if "unknown" in entry["note"]]


def _yaml(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)


@pytest.mark.parametrize("trainer", ["trl", "verl"])
def test_a_remark_speaks_of_keys_that_decide_nothing(trainer):
    catalogue = load_catalogue(trainer)
    named = [key for remark in catalogue.remarks for key in remark.keys]
    assert len(named) == len(set(named))
    assert not set(named) & set(catalogue.defaults)


def test_a_script_with_variables_defaults_and_arithmetic():
    text = """
    #!/bin/bash
    set -x
    LENGTH=$((1024 * 4))          # tokens
    ROOT=${ROOT:-"${BASE:-/data}/verl"}
    export N=8
    python3 -m verl.trainer.main_ppo \\
        data.train_files="['$ROOT/a.parquet','$ROOT/b.parquet']" \\
        data.max_response_length=$(( LENGTH + ${N} )) \\
        +trainer.extra=${N} ++trainer.more=1 engine=fsdp \\
        --config-name='other.yaml' "$@"
    """
    assert parse_overrides(text) == {
        "data.train_files": "['/data/verl/a.parquet','/data/verl/b.parquet']",
        "data.max_response_length": "4104",
        "trainer.extra": "8",
        "trainer.more": "1",
        "engine": "fsdp",
        "--config-name": "other.yaml",
    }  # fmt: skip


def test_a_list_keeps_what_has_no_dot():
    assert parse_overrides("a.b=1\nn=8\n# c.d=2\n") == {"a.b": "1", "n": "8"}


def test_an_array_of_a_script_is_read():
    assert parse_overrides("DATA=(\n  a.b=1\n  a.c=2\n)\npython3 main.py ${DATA[@]}\n") == {"a.b": "1", "a.c": "2"}


def test_the_last_value_wins_as_in_hydra():
    assert parse_overrides("a.b=1\na.b=2") == {"a.b": "2"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run.py a.b=$WHERE", "WHERE"),
        ("run.py a.b=$(nproc)", "write its value"),
        ("run.py a.b=$((2 ** 3))", "whole numbers"),
        ("run.py a.b='x", "quotation"),
    ],
)
def test_what_only_running_would_tell_is_asked_for(line, said):
    with pytest.raises(ShellError, match=said):
        parse_overrides(line)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-6", 1e-6), ("3", 3), ("0.5", 0.5), ("True", True), ("null", None), ("[a,b]", ["a", "b"]), ("a b", "a b"),
     ("2E+3", 2000.0), ("-1", -1), ("v1", "v1")],
)  # fmt: skip
def test_values_of_overrides(text, value):
    found = parse_value(text)
    assert (found, type(found)) == (value, type(value))


def test_references_are_followed(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: {b: 3, c: '${a.b}', d: '${.c}', e: '${oc.select:x.y,7}', f: '${x.y}'}\n")
    assert read_overrides_or_values(path) == {"a.b": 3, "a.c": 3, "a.d": 3, "a.e": 7, "a.f": "${x.y}"}


def test_a_reference_to_itself_ends(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: {b: '${a.c}', c: '${a.b}'}\n")
    with pytest.raises(ConfigError, match="refers to itself"):
        read_overrides_or_values(path)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "beta: 0.1\nbeta: 0.2\n", "'beta' stands there twice"),
        ("a.yaml", "beta: [1\n", "not valid YAML"),
        ("a.json", "{", "not valid JSON"),
        ("a.yaml", "- beta\n", "holds no settings"),
        ("a.yaml", "", "holds no settings"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, text, said):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        import_config("trl", path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="there is no file"):
        import_config("verl", tmp_path / "nowhere.sh")


_CHOICES = {
    "algorithm.adv_estimator": ["gae", "grpo", "rloo", "remax", "opo", "grpo_passk", "gpg", "gdpo", "mine"],
    "actor_rollout_ref.actor.policy_loss.loss_mode": ["vanilla", "clip_cov", "kl_cov", "gspo", "geo_mean", "cispo"],
    "actor_rollout_ref.actor.loss_agg_mode": ["token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum"],
    "actor_rollout_ref.actor.use_kl_loss": [True, False],
    "algorithm.use_kl_in_reward": [True, False],
    "algorithm.filter_groups.enable": [True, False],
    "algorithm.rollout_correction.rollout_is": ["token", "sequence"],
    "algorithm.rollout_correction.bypass_mode": [True, False],
}


@given(st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in _CHOICES.items()}))
def test_any_combination_loads_or_is_refused_with_their_keys(tmp_path_factory, chosen):
    path = tmp_path_factory.mktemp("import") / "config.yaml"
    path.write_text("x: 1\n" + "".join(f"{key}: {_yaml(value)}\n" for key, value in chosen.items()))
    losses, estimator = _CHOICES["actor_rollout_ref.actor.policy_loss.loss_mode"], "algorithm.adv_estimator"
    loss = chosen.get("actor_rollout_ref.actor.policy_loss.loss_mode", losses[0])
    is_mean = chosen.get("actor_rollout_ref.actor.loss_agg_mode") == "seq-mean-token-mean"
    if chosen.get(estimator, "gae") == "gae" and (loss == "geo_mean" or (loss == "gspo" and not is_mean)):
        with pytest.raises(ConfigError, match=estimator):  # one advantage a token meets a loss of whole completions
            import_config("verl", path)
        return
    data = import_config("verl", path).as_dict()
    found = [entry["key"] for part in ("mapped", "same", "unmapped") for entry in data[part]]
    assert sorted(found) == sorted(["x", *chosen])
