"""A run on programs from end to end: every program sandboxed and counted, resumed to the same bits, nothing left."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from oncurve.config import load_config
from oncurve.report import read_evaluations, read_metrics, read_rollouts
from oncurve.train import Session, train
from tests.model.directories import save_llama
from tests.processes import wait_until

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")
TIMED = ("seconds/", "tokens_per_second/", "memory/")
CODE = """
name = "code"
steps = 2
threads = 1
checkpoint_every = 1
[model]
path = {model}
[tasks]
source = "mini_code"
options = {{ max_difficulty = 1, num_cases = 3 }}
prompt_style = "text"
num_train = 4
num_held_out = 2
[rollout]
num_prompts = 2
group_size = 3
sampling = {{ max_tokens = 12 }}
[reward.components.correct]
verifier = "task"
options = {{ code = {{ timeout_s = 5, sandbox = {{ num_workers = 1 }} }} }}
[evaluation]
every = 0
num_tasks = 2
num_samples = 1
k = 1
adversarial = {cases}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    model = save_llama(folder / "model", max_position_embeddings=512)
    meta = {"mode": "function", "entry_point": "f", "tests": [{"args": [1], "expected": 2}], "carrier": "text"}
    case = {"gold": "def f(n):\n    return n + 1\n", "verifier": "code", "meta": meta}
    rows = [
        {"mark": "exploit", "completion": "import os\nos._exit(0)\n", **case},
        {"mark": "fine", "completion": "def f(n):\n    return 1 + n\n", **case},
    ]
    (folder / "cases.jsonl").write_text("\n".join(map(json.dumps, rows)))
    text = CODE.format(model=json.dumps(str(model)), cases=json.dumps(str(folder / "cases.jsonl")))
    (folder / "code.toml").write_text(text)
    return folder / "code.toml"


@pytest.fixture(scope="module")
def whole(config: Path) -> Path:
    """The run that nobody interrupts."""
    run_dir = config.parent / "whole"
    with Session.create(load_config(config, ["--run_dir", json.dumps(str(run_dir))])) as session:
        assert session.config.reward.components["correct"].options["code"]["sandbox"] == {"num_workers": 1}
        list(train(session))
    return run_dir


def metrics(run_dir: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith(TIMED)} for row in read_metrics(run_dir)]


def test_every_distinct_program_was_run_in_the_sandbox(whole: Path):
    rows = metrics(whole)
    texts = [{(one.task_id, one.text) for one in read_rollouts(whole) if one.step == step} for step in (0, 1)]
    for row, distinct in zip(rows, texts, strict=True):
        # A text continues its prompt up to what does not belong to it, so two texts may be one program.
        assert 1 <= row["code/sandboxed"] == row["code/distinct"] <= len(distinct)
        causes = {name: n for name, n in row.items() if name.startswith("code/")}
        assert sum(causes.values()) == row["code/sandboxed"] + row["code/distinct"] + 6
        assert row["code/syntax_error"] > 0  # the model is random
        assert row["reward/no_verdict_frac"] == 0


def test_what_the_reward_pays_of_hostile_programs_is_a_metric_of_the_step_that_follows(whole: Path):
    before, after = read_evaluations(whole)
    first, second = metrics(whole)
    assert (
        first["adversarial/paid_frac"] == before["adversarial"]["paid_frac"] == after["adversarial"]["paid_frac"] == 0
    )
    assert first["adversarial/refused_frac"] == 0
    assert (before["adversarial"]["num_hostile"], before["adversarial"]["num_right"]) == (1, 1)
    assert "adversarial/paid_frac" not in second


def test_a_killed_run_leaves_no_process_and_is_resumed_to_the_same_metrics(config: Path, whole: Path):
    run_dir = config.parent / "killed"
    words = [str(config), "--run_dir", json.dumps(str(run_dir))]
    script = Path(__file__).with_name("killed_run.py")
    command = [sys.executable, str(script), "oncurve.train.session:Session.checkpoint", "2", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        family: set[psutil.Process] = set()
        while child.poll() is None:
            family |= set(psutil.Process(child.pid).children(recursive=True))
            time.sleep(0.02)
    assert child.returncode == -signal.SIGKILL
    assert len(family) >= 2  # a sandbox was there
    assert wait_until(lambda: not any(one.is_running() for one in family))
    with Session.resume(run_dir) as session:
        assert session.step == 1
        list(train(session))
    assert metrics(run_dir) == metrics(whole)
