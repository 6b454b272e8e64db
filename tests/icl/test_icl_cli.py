"""The commands of the laboratory: presets, files and words, JSON, errors."""

import json
import math
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from oncurve.cli.app import app
from oncurve.cli.entry import main
from oncurve.cli.icl_run import lab_settings
from oncurve.icl.network import Regressor
from oncurve.icl.presets import PRESETS, preset_settings
from oncurve.icl.run import read_settings
from oncurve.types import ConfigError, RunError
from tests.processes import wait_until

TINY = ["--functions.dimension", "2", "--network.width", "32", "--network.layers", "2", "--batch_size", "16"]
SHORT = [*TINY, "--steps", "6", "--eval_prompts", "40", "--checkpoint_every", "4", "--log_every", "2"]


def call(capsys, *words: object) -> dict:
    """Run a command in this process; the one JSON object that it prints."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        app([*map(str, words), "--json"])
    assert not ended.value.code
    (line,) = capsys.readouterr().out.splitlines()
    return json.loads(line)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_valid_and_round_trips(preset):
    settings = preset_settings(preset)
    assert settings == lab_settings(None, preset, [])
    assert type(settings).model_validate(settings.model_dump(mode="json")) == settings
    assert settings.name == f"icl-{preset}"


def test_the_presets_are_what_their_documentation_says():
    ci, full, paper = (preset_settings(preset) for preset in ("ci", "full", "paper"))
    assert (ci.functions.dimension, ci.points, ci.network.width, ci.network.layers, ci.batch_size) == (5, 11, 64, 4, 64)
    assert (full.functions.dimension, full.points, full.network.width, full.network.layers) == (8, 17, 128, 6)
    assert (paper.network.width, paper.network.layers, paper.network.heads) == (256, 12, 8)
    assert (paper.functions.dimension, paper.points, paper.steps, paper.optimizer.lr) == (20, 41, 500_000, 1e-4)
    assert paper.network.layout == "alternating"
    assert [paper.stage(step) for step in (0, 2000, 30_000)] == [(5, 11), (6, 13), (20, 41)]


def test_the_network_of_the_paper_has_about_nine_and_a_half_million_weights():
    paper = preset_settings("paper")
    network = Regressor(paper.network, paper.functions.dimension, paper.points)
    assert sum(weight.numel() for weight in network.parameters()) == pytest.approx(9.5e6, rel=0.01)


def test_words_win_over_a_file_and_a_file_over_the_preset(tmp_path):
    path = tmp_path / "lab.toml"
    path.write_text("steps = 7\n[network]\nwidth = 32\n[functions]\nnoise_std = 0.5\n")
    settings = lab_settings(path, "full", ["--network.width", "48", "--seed=3"])
    assert (settings.steps, settings.network.width, settings.seed) == (7, 48, 3)
    assert (settings.functions.noise_std, settings.functions.dimension, settings.network.layers) == (0.5, 8, 6)
    assert PRESETS["full"]["network"]["width"] == 128


def test_train_resume_and_eval_print_one_json_object_each(tmp_path, capsys):
    run = tmp_path / "run"
    trained = call(capsys, "icl", "train", *SHORT, "--run_dir", run)
    assert trained["run_dir"] == str(run)
    assert trained["is_finished"]
    assert trained["steps"] == 6
    for name in ("e_2d", "ratio_mean", "ratio_below_d", "averaging_ratio", "seconds", "cpu_seconds"):
        assert math.isfinite(trained[name])
        assert trained[name] > 0
    assert read_settings(run).steps == 6
    environment = json.loads((run / "environment.json").read_text())
    assert environment["threads"] == 1
    assert environment["starting_weights"] == "drawn from seed 0"
    resumed = call(capsys, "icl", "resume", run)
    assert resumed["e_2d"] == trained["e_2d"] == call(capsys, "resume", run)["e_2d"]
    examined = call(capsys, "icl", "eval", run)
    assert examined["ratio_mean"] == trained["ratio_mean"]
    assert examined == call(capsys, "eval", run)
    with pytest.raises(ValueError, match=r"a run of the laboratory: oncurve icl eval .* --prompts N"):
        app(["eval", str(run), "--seed", "1"])
    with pytest.raises(ConfigError, match=r"config\.toml holds settings of `oncurve icl train`"):
        app(["review", str(run)])
    assert call(capsys, "icl", "eval", run, "--prompts", 20)["num_prompts"] == 20
    for few in (1, 0, -3):
        with pytest.raises(
            ConfigError, match=f"an examination of {few} held-out prompts has no interval: take 2 at least"
        ):
            app(["icl", "eval", str(run), f"--prompts={few}"])
    assert call(capsys, "icl", "eval", run, "--prompts", 2)["num_prompts"] == 2


def test_people_see_steps_and_the_loss_in_words(tmp_path, capsys):
    with pytest.raises(SystemExit):
        app(["icl", "train", *SHORT, "--run_dir", str(tmp_path / "run")])
    seen = capsys.readouterr()
    shown = dict(line.split(": ", 1) for line in seen.out.splitlines())
    figures = re.findall(r"\d+\.\d+", " ".join(shown[name] for name in ("e_2d", "ratio_mean", "ratio_mean_interval")))
    assert len(figures) == 4
    assert all(len(figure) <= 7 for figure in figures)
    assert shown["next"] == f"oncurve icl report {tmp_path / 'run'}"
    assert "loss = mean over 16 prompts and n = 0..4 of (prediction_n - y_n)^2 / 2" in seen.err
    assert "step 6/6  loss " in seen.err


def test_runs_without_a_folder_are_numbered(tmp_path, capsys):
    first, second = (call(capsys, "icl", "train", *SHORT, "--output", tmp_path)["run_dir"] for _ in range(2))
    assert [Path(first).name, Path(second).name] == ["icl-ci-001", "icl-ci-002"]


def test_a_trained_run_is_probed_shifted_and_reported(tmp_path, capsys):
    run = tmp_path / "run"
    call(capsys, "icl", "train", *SHORT, "--run_dir", run)
    probed = call(capsys, "icl", "probe", run, "--fit_prompts", 64, "--held_out_prompts", 32)
    assert len(probed["layer_errors"]) == 3
    assert probed["settings"]["fit_prompts"] == 64
    assert json.loads((run / "probe.json").read_text())["layer_errors"] == probed["layer_errors"]
    shifted = call(capsys, "icl", "shift", run, "--num_prompts", 16, "--resamples", 50)
    assert {row["name"] for row in shifted["rows"]} >= {"weights × 2", "inputs × 2"}
    assert all({"text", "verdict", "condition", "source"} <= set(found) for found in shifted["findings"])
    page = Path(call(capsys, "icl", "report", run)["report"])
    assert page == run / "report.html"
    assert "weights × 2" in page.read_text(encoding="utf-8")


def test_a_sweep_is_made_of_a_file(tmp_path, capsys):
    path = tmp_path / "sweep.toml"
    path.write_text(
        "seeds = [0]\nsteps = 2\nbatch_size = 4\neval_prompts = 16\nbaseline_prompts = 4\nnum_counts = 2\n"
        "[[classes]]\nnum_points = 4\nfunctions = {kind = 'sparse', dimension = 2, sparsity = 1}\n"
        "[[networks]]\nwidth = 16\nlayers = 1\nheads = 2\n"
    )
    found = call(capsys, "icl", "sweep", path, "--seeds", "[0, 1]", "--to", tmp_path / "sweep")
    assert [cell["seed"] for cell in found["cells"]] == [0, 1]
    assert found["written"] == str(tmp_path / "sweep" / "sweep.json")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--network.widht", "8"], r"unknown setting network\.widht\. Did you mean network\.width\?"),
        (["train", "--dimension", "8"], r"unknown setting dimension\. Did you mean functions\.dimension\?"),
        (["train", "--network.width", "30"], "width 30 does not split into 4 heads"),
        (["train", "--preset", "paper"], "device is cuda, but torch sees no such device"),
        (["train", "nowhere.toml"], r"there is no config file nowhere\.toml"),
        (["probe", "nowhere", "--fit_promts", "8"], r"unknown setting fit_promts\. Did you mean fit_prompts\?"),
        (["sweep", "--step", "8"], r"unknown setting step\. Did you mean steps\?"),
        (["train", "--optimizer.lr"], r"^--optimizer\.lr needs a value, as in --optimizer\.lr VALUE or .*=VALUE\.$"),
        (["train", "--optimizer.rl"], r"needs a value, .* Did you mean optimizer\.lr\?"),
        (["train", "--learning_rate", "1"], r"unknown setting learning_rate\. Did you mean optimizer\.lr\?"),
        (["sweep", "--learning_rate", "1"], r"unknown setting learning_rate\. Did you mean lr\?"),
        (["train", "--seed", "1", "b.toml"], r"expected a setting such as --optimizer\.lr 1e-3, got 'b\.toml'"),
        (["sweep", "--steps", "1", "x"], r"expected a setting such as --steps 2000, got 'x'"),
        (["probe", "nowhere", "x"], r"expected a setting such as --seed 3, got 'x'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_named(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        app(["icl", *words])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_run_of_the_laboratory_is_named(tmp_path):
    for command in ("resume", "eval", "probe", "shift", "report"):
        with pytest.raises(RunError, match=r"is not a run folder: .* a folder that `oncurve icl train` made"):
            app(["icl", command, str(tmp_path)])


def test_help_names_settings_that_the_laboratory_has(capsys):
    for words in (["--help"], ["train", "--help"]):
        with pytest.raises(SystemExit):
            app(["icl", *words])
        shown = " ".join(capsys.readouterr().out.split())
        assert "learner.lr" not in shown
        assert "oncurve icl train --optimizer.lr 1e-3 --seed 3" in shown
    assert lab_settings(None, "ci", ["--optimizer.lr", "1e-3", "--seed", "3"]).optimizer.lr == 1e-3


@pytest.mark.parametrize(("package", "extra"), [("sklearn", "train,icl"), ("torch", "train")])
def test_a_missing_package_names_the_extra_that_brings_it(package, extra, monkeypatch, capsys):
    def missing() -> None:
        raise ModuleNotFoundError(name=package)

    monkeypatch.setattr("oncurve.cli.entry.app", missing)
    with pytest.raises(SystemExit, match="1"):
        main()
    assert f"({package}): pip install 'oncurve[{extra}]'" in capsys.readouterr().err


def interrupted(capsys, is_under_way: Callable[[], bool], *words: object) -> tuple[int, dict, str]:
    """Run a command in this process and send Ctrl-C once it is under way; exit code, JSON object and what it said."""

    def interrupt() -> None:
        if wait_until(is_under_way, 120.0):
            os.kill(os.getpid(), signal.SIGINT)

    capsys.readouterr()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(SystemExit) as ended:
        app([*map(str, words), "--json"])
    thread.join()
    found = capsys.readouterr()
    return int(ended.value.code or 0), json.loads(found.out), found.err


def test_a_stopped_training_says_how_it_goes_on_and_exits_with_130(capsys, tmp_path):
    run = tmp_path / "run"
    words = [*SHORT[: SHORT.index("--steps")], "--steps", 100_000, "--log_every", 1, "--run_dir", run]
    code, found, said = interrupted(capsys, (run / "metrics.jsonl").exists, "icl", "train", *words)
    assert (code, found["is_finished"]) == (130, False)
    assert f"oncurve icl resume {run}" in said
    assert (run / "checkpoints").is_dir()


def test_a_stopped_sweep_says_how_it_goes_on_and_exits_with_130(capsys, tmp_path):
    words = ["--to", tmp_path, "--steps", 100_000, "--seeds", "[0]", "--eval_prompts", 2, "--baseline_prompts", 2]
    is_under_way = lambda: any(tmp_path.glob("*/metrics.jsonl"))  # noqa: E731
    code, found, said = interrupted(capsys, is_under_way, "icl", "sweep", *words)
    assert (code, found["is_finished"], found["cells"]) == (130, False, [])
    assert "the same command goes on where it was" in said
