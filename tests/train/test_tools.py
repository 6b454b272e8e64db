"""Runs on tool tasks: they learn from worked episodes, train, are recorded, and are resumed to the bit."""

import json
import signal
import subprocess
import sys
from html import escape
from pathlib import Path

import pytest

from oncurve.config import load_config
from oncurve.model import fresh_embedded_policy, save_policy
from oncurve.report import read_metrics, read_rollouts, render_report
from oncurve.train import Session, train
from oncurve.train.pairs import pairs_of_run
from oncurve.train.supervised import warm_start
from oncurve.types import DataError, Status, weave
from tests.train.test_resume import assert_equal, everything, finish
from tests.verify.test_environments import gone, left

TOML = """
name = "tools"
steps = 4
checkpoint_every = 2
threads = 1
tasks = { source = "files", options = { jobs = ["move"], num_files = 2, max_number = 9 }, num_held_out = 8 }
rollout = { num_prompts = 3, group_size = 4, sampling = { max_tokens = 16 }, tools = { max_turns = 3 } }
evaluation = { every = 3, num_tasks = 8, num_samples = 2, k = 2 }
reward.components.correct.verifier = "task"
sft = { steps = 100, batch_size = 32 }
"""
KILLED = """
import os, signal, sys
from pathlib import Path
from oncurve.config import load_config
from oncurve.train import Session, train
from oncurve.rollout import ToolEngine
calls, look = 0, ToolEngine._look
def dying(self, plays):
    global calls
    calls += 1
    look(self, plays)
    if calls == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
ToolEngine._look = dying
with Session.create(load_config(Path(sys.argv[2]), sys.argv[3:])) as session:
    list(train(session))
"""


def words(model: Path, run: Path) -> list[str]:
    return ["--model.path", json.dumps(str(model)), "--run_dir", json.dumps(str(run))]


@pytest.fixture(scope="module")
def toml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "tools.toml"
    path.write_text(TOML)
    return path


@pytest.fixture(scope="module")
def started(toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model after a few worked episodes: it calls tools, and not always the right ones."""
    policy = fresh_embedded_policy(0)
    losses = [loss for _, loss in warm_start(load_config(toml), policy)]
    assert losses[-1] < losses[0] / 3
    folder = tmp_path_factory.mktemp("started") / "model"
    save_policy(policy, folder)
    return folder


@pytest.fixture(scope="module")
def whole(toml: Path, started: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody interrupts."""
    before, run = left(), tmp_path_factory.mktemp("whole") / "run"
    with Session.create(load_config(toml, words(started, run))) as session:
        list(train(session))
    assert gone(before)
    return run


def test_a_run_records_calls_answers_and_states(whole: Path) -> None:
    rows = list(read_metrics(whole))
    rollouts = list(read_rollouts(whole))
    assert len(rows) == 4
    assert all(row["gap/mean_abs"] < 1e-4 for row in rows)  # the learner reads what the sampler read
    assert sum(row["tools/calls"] for row in rows) > 10
    assert {one.status for one in rollouts} <= {Status.CORRECT, Status.WRONG}
    answered = [one for one in rollouts if one.inserted]
    assert len(answered) > 5
    for one in answered:
        assert len(one.old_logprobs) == len(one.token_ids)
        assert weave(one.token_ids, one.inserted).is_sampled.count(True) == len(one.token_ids)
        assert one.inserted[0].text in one.transcript
        assert one.inserted[0].text not in one.text
    for step, row in enumerate(rows):
        here = [one for one in rollouts if one.step == step]
        assert row["tokens/inserted"] == sum(len(part.token_ids) for one in here for part in one.inserted)
        assert row["tokens/completion"] == sum(len(one.token_ids) for one in here)


def test_the_page_shows_what_the_tools_answered(whole: Path) -> None:
    shown = next(one for one in read_rollouts(whole) if one.inserted)
    text = render_report(whole).read_text(encoding="utf-8")
    assert escape(shown.transcript.split("\n")[0]) in text


@pytest.mark.parametrize("count", [2, 17])
def test_killed_while_tools_are_at_work_it_leaves_nothing_and_goes_on_to_the_same_end(
    count: int, whole: Path, toml: Path, started: Path, tmp_path: Path
) -> None:
    before, run = left(), tmp_path / "run"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(count), str(toml), *words(started, run)], capture_output=True, text=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert gone(before)
    assert_equal(finish(run), everything(whole))


def test_episodes_make_no_preference_pairs(whole: Path, started: Path) -> None:
    with pytest.raises(DataError, match="holds answers of an environment"):
        pairs_of_run(whole, fresh_embedded_policy(0), set(), seed=0, max_per_task=4)


def test_worked_episodes_are_learned_as_a_run(toml: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    save_policy(fresh_embedded_policy(0), model)
    more = ["--method", "sft", "--sft.batch_size", "8", *words(model, tmp_path / "run")]
    with Session.create(load_config(toml, more)) as session:
        list(train(session))
    losses = [row["loss/supervised"] for row in read_metrics(tmp_path / "run")]
    assert losses[-1] < losses[0]


def test_a_task_whose_solution_fails_is_refused_before_the_run(tmp_path: Path, started: Path) -> None:
    rows = [
        {
            "prompt": f"move {name} to z\n",
            "gold": json.dumps([{"name": "move", "arguments": {"source": name, "target": "y"}}]),
            "environment": {"name": "files", "start": {name: "1"}, "goal": {"z": "1"}},
        }
        for name in "abcdefgh"
    ]
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = TOML.replace(
        'source = "files", options = { jobs = ["move"], num_files = 2, max_number = 9 }, num_held_out = 8',
        f'path = "{file}", verifier = "environment", num_held_out = 2, gold_format = "verbatim"',
    )
    path = tmp_path / "own.toml"
    path.write_text(table)
    with pytest.raises(DataError, match="its solution does not reach it"):
        Session.create(load_config(path, words(started, tmp_path / "run")))
    file.write_text("".join(json.dumps(row).replace('\\"y\\"', '\\"z\\"') + "\n" for row in rows))
    with Session.create(load_config(path, [*words(started, tmp_path / "run"), "--steps", "1"])) as session:
        list(train(session))
    assert all(one.status is not Status.NO_VERDICT for one in read_rollouts(tmp_path / "run"))
