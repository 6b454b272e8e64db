"""A run killed with SIGKILL anywhere, then resumed, equals the uninterrupted run to the bit (timings aside)."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from oncurve.config import load_config
from oncurve.learner import latest_checkpoint, load_state
from oncurve.report import read_evaluations, read_events, read_metrics, read_rollouts
from oncurve.tasks import load_tasks, worked_example
from oncurve.train import Session, train
from oncurve.types import ConfigError, RunError
from tests.train.conftest import SMALL

SCRIPT = Path(__file__).with_name("killed_run.py")
TIMED = ("seconds/", "tokens_per_second/", "memory/")


def everything(run_dir: Path) -> dict[str, Any]:
    """All that a run leaves behind, without what a clock measured."""
    checkpoint = latest_checkpoint(run_dir / "checkpoints")
    assert checkpoint is not None
    return {
        "metrics": [
            {name: value for name, value in row.items() if not name.startswith(TIMED)} for row in read_metrics(run_dir)
        ],
        "rollouts": [asdict(rollout) for rollout in read_rollouts(run_dir)],
        "evaluations": list(read_evaluations(run_dir)),
        "events": list(read_events(run_dir)),
        "weights": (checkpoint / "model.safetensors").read_bytes(),
        "state": load_state(checkpoint),
    }


def assert_equal(resumed: Any, whole: Any, where: str = "") -> None:
    if isinstance(whole, torch.Tensor):
        assert torch.equal(resumed, whole), where
    elif isinstance(whole, dict):
        assert resumed.keys() == whole.keys(), where
        for key in whole:
            assert_equal(resumed[key], whole[key], f"{where}/{key}")
    elif isinstance(whole, list | tuple):
        assert len(resumed) == len(whole), where
        for index, (left, right) in enumerate(zip(resumed, whole, strict=True)):
            assert_equal(left, right, f"{where}/{index}")
    else:
        assert resumed == whole, where


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, Any]:
    """The run that nobody interrupts."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    with Session.create(load_config(None, [*SMALL, "--run_dir", str(run_dir)])) as session:
        list(train(session))
    return everything(run_dir)


def finish(run_dir: Path) -> dict[str, Any]:
    with Session.resume(run_dir) as session:
        list(train(session))
    return everything(run_dir)


@pytest.mark.parametrize(
    ("call", "count"),
    [
        ("oncurve.train.session:Session.evaluate", 1),  # nothing but the folder is there
        ("oncurve.train.online_session:OnlineSession.update", 2),  # between rollout and update, before any checkpoint
        ("oncurve.report.folder:RunFolder.append_metrics", 3),  # rollouts are written, metrics are not
        ("oncurve.report.folder:RunFolder.seal", 1),
        ("oncurve.learner.checkpoint:_sync_tree", 1),  # the first checkpoint is written but has no name
        ("oncurve.learner.checkpoint:_sync_tree", 2),  # the same with an older one beside it
        ("oncurve.learner.checkpoint:_remove_old", 2),  # named, not tidied up
        ("oncurve.train.session:Session.evaluate", 3),  # all steps done, last examination missing
    ],
)
def test_killed_at_a_chosen_call(call: str, count: int, whole, tmp_path) -> None:
    words = [*SMALL, "--run_dir", str(tmp_path / "run")]
    killed = subprocess.run([sys.executable, str(SCRIPT), call, str(count), *words], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert_equal(finish(tmp_path / "run"), whole)


@pytest.mark.parametrize("instant", range(3))
def test_killed_at_a_random_instant(instant: int, whole, tmp_path) -> None:
    run_dir = tmp_path / "run"
    words = [*SMALL, "--run_dir", str(run_dir)]
    child = subprocess.Popen([sys.executable, str(SCRIPT), "oncurve.train.online:train_online", "999", *words])
    while not (run_dir / "config.toml").exists():
        assert child.poll() is None, "the run ended before it began"
        time.sleep(0.005)
    time.sleep(Random(f"instant {instant}").uniform(0.0, 1.5))
    child.kill()
    child.wait()
    assert_equal(finish(run_dir), whole)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    """Worked examples preferred to their beginnings."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    tasks = load_tasks(load_config(None, SMALL).tasks, seed=0).train[:10]
    rows = [{"prompt": t.prompt, "chosen": worked_example(t), "rejected": worked_example(t)[:9]} for t in tasks]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("method", ["dpo", "sft"])
def test_an_offline_run_is_killed_and_resumed(method: str, pairs: Path, tmp_path) -> None:
    on_pairs = ("--dpo.pairs", str(pairs), "--dpo.batch_size", "4")
    given = on_pairs if method == "dpo" else ("--sft.batch_size", "4")
    words = [*SMALL, "--method", method, *given, "--run_dir"]
    with Session.create(load_config(None, [*words, str(tmp_path / "whole")])) as session:
        list(train(session))
    call = ("oncurve.train.offline_session:OfflineSession.record", "4")  # after the third step, past a checkpoint
    command = [sys.executable, str(SCRIPT), *call, *words, str(tmp_path / "run")]
    killed = subprocess.run(command, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert_equal(finish(tmp_path / "run"), everything(tmp_path / "whole"))


def test_resuming_a_finished_run_changes_nothing(whole, tmp_path) -> None:
    run_dir = tmp_path / "run"
    with Session.create(load_config(None, [*SMALL, "--run_dir", str(run_dir)])) as session:
        list(train(session))
    assert_equal(finish(run_dir), whole)


def test_a_run_that_is_still_being_written_is_not_resumed(tmp_path) -> None:
    run_dir = tmp_path / "run"
    with Session.create(load_config(None, [*SMALL, "--run_dir", str(run_dir)])) as session:
        with pytest.raises(RunError, match="another process is writing"):
            Session.resume(run_dir)
        assert session.step == 0


def test_a_run_is_resumed_from_any_folder(tmp_path, monkeypatch) -> None:
    (tmp_path / "reward.py").write_text(
        "def f(prompts, completions, **c):\n    return [float(len(t) % 2) for t in completions]"
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    words = [*SMALL, "--run_dir", "run", "--reward.components.correct.verifier", '"reward.py:f"']
    with Session.create(load_config(None, words)):
        pass
    monkeypatch.chdir(tmp_path / "elsewhere")
    with Session.resume(tmp_path / "run") as session:
        list(train(session))
    assert len(list(read_metrics(tmp_path / "run"))) == 4


def test_missing_records_are_noticed(tmp_path) -> None:
    run_dir = tmp_path / "run"
    with Session.create(load_config(None, [*SMALL, "--run_dir", str(run_dir)])) as session:
        list(train(session))
    (run_dir / "metrics.jsonl").write_text("")
    with pytest.raises(RunError, match=r"checkpoint of .* is at step 4, but metrics\.jsonl holds 0 steps"):
        Session.resume(run_dir)


def test_a_folder_that_is_no_run_is_refused(tmp_path) -> None:
    with pytest.raises(RunError, match=r"config\.toml"):
        Session.resume(tmp_path)


def test_a_damaged_config_is_named(tmp_path) -> None:
    run_dir = tmp_path / "run"
    with Session.create(load_config(None, [*SMALL, "--run_dir", str(run_dir)])):
        pass
    (run_dir / "config.toml").write_text("steps = 'many'\n")
    with pytest.raises(ConfigError, match=r"config\.toml: steps"):
        Session.resume(run_dir)
