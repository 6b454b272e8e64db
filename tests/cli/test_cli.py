"""The door, as a user meets it: real processes, exit codes, one clear error, JSON on stdout and nothing else there."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.train.conftest import SMALL

ROOT = Path(__file__).parents[2]


def oncurve(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "oncurve", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=240)


def error_of(*words: object, cwd: Path = ROOT) -> str:
    done = oncurve(*words, cwd=cwd)
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def test_help_loads_neither_torch_nor_a_model() -> None:
    code = (
        "import sys; from oncurve.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('torch', 'transformers', 'plotly', 'pyarrow', 'scipy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout


@pytest.mark.parametrize("command", ["train", "resume", "eval", "sft", "explain", "check", "verify", "report"])
def test_every_command_has_help(command: str) -> None:
    done = oncurve(command, "--help")
    assert done.returncode == 0
    assert command in done.stdout


def test_an_unknown_command_names_the_nearest() -> None:
    done = oncurve("trian")
    assert done.returncode != 0
    assert 'Did you mean "train"' in done.stdout + done.stderr


def test_an_unknown_flag_names_the_nearest() -> None:
    assert "unknown setting learner.lrr. Did you mean learner.lr?" in error_of("train", "--learner.lrr", "3")


def test_train_prints_one_json_object_and_leaves_a_report(tmp_path: Path) -> None:
    done = oncurve("train", *SMALL, "--run_dir", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["steps"] == 4
    assert result["run_dir"] == str(tmp_path / "run")
    assert result["seconds"] > 0
    for examined in (result["eval_before"], result["eval_after"]):
        assert {"greedy", "pass_at_1", "pass_at_k", "k", "interval"} <= examined.keys()
    assert result["tokens_per_correct"] == result["eval_after"]["tokens_per_correct"]
    assert Path(result["report"]).is_file()
    assert "minimise" in done.stderr  # the formula comes before the first number
    assert done.stderr.index("minimise") < done.stderr.index("held out after 0 steps")


def test_ctrl_c_leaves_a_checkpoint_that_resume_continues(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    words = [
        *SMALL,
        "--steps",
        "500",
        "--evaluation.every",
        "0",
        "--checkpoint_every",
        "500",
        "--run_dir",
        str(run_dir),
    ]
    child = subprocess.Popen(
        [sys.executable, "-m", "oncurve", "train", *words], stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    while not (run_dir / "metrics.jsonl").exists():
        assert child.poll() is None, child.stderr and child.stderr.read()
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=120)
    assert child.returncode == 130, stderr
    assert f"oncurve resume {run_dir}" in stderr
    (checkpoint,) = (run_dir / "checkpoints").iterdir()
    assert int(checkpoint.name.removeprefix("step_")) < 500


def test_ctrl_c_while_nothing_is_trained_promises_no_run() -> None:
    code = "from oncurve.cli import app, entry\ndef stop(): raise KeyboardInterrupt\nentry.app = stop\nentry.main()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


def test_the_second_ctrl_c_names_the_run_that_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "twice.py"  # the second one comes within the step, whatever the machine's speed
    script.write_text(
        "import os, signal, sys\n"
        "from oncurve.cli import main\n"
        "from oncurve.cli.view import RunView\n"
        "def twice(view, event): [os.kill(os.getpid(), signal.SIGINT) for _ in range(2)]\n"
        "RunView.show = twice\n"
        "main()\n"
    )
    words = ["train", *SMALL, "--run_dir", tmp_path / "run"]
    done = subprocess.run([sys.executable, script, *map(str, words)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == f"stopped at once; continue with: oncurve resume {tmp_path / 'run'}"
    assert oncurve("resume", tmp_path / "run").returncode == 0


def test_explain_trains_nothing_and_says_everything(tmp_path: Path) -> None:
    done = oncurve("explain", *SMALL, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["completions_per_step"] == 3 * 4
    assert found["most_tokens_per_step"] == 3 * 4 * 40
    assert found["optimiser_steps"] == 4
    assert found["formula"].startswith("minimise")
    assert 0 < found["memory_bytes"]["peak"] < found["memory_bytes"]["available"]
    assert found["seconds_total"] > 0
    assert found["cores"]["tensor_threads"] >= 1
    assert found["cores"]["judged_while_sampling"] == "completion"
    assert list(tmp_path.iterdir()) == []


def test_check_shows_prompts_golds_and_rejected_golds(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} + 1?", "answer": f"We add. #### {n + 1}", "mood": "calm"} for n in range(30)]
    rows.append({"question": "What is it?", "answer": "#### nan", "mood": "calm"})
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = tmp_path / "run.toml"
    config.write_text(f"[tasks]\npath = '{path}'\n")
    done = oncurve("check", config, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1  # a rejected gold is a fault of the data
    assert len(found["samples"]) == 3
    assert found["samples"][0]["gold"].isdigit()
    assert any("mood" in note["text"] for note in found["notes"])
    assert len(found["rejected_golds"]) == 1
    # The embedded model has a token for each small letter, and none for W.
    assert found["unreadable"] == {"tasks": 31, "of": 31, "characters": "W"}


def test_check_warns_of_characters_that_the_embedded_model_cannot_read(tmp_path: Path) -> None:
    for questions, is_warned in (("what is {n}+{n}?", False), ("Was ist {n}+{n}?", True)):
        path = tmp_path / "tasks.jsonl"
        rows = [{"question": questions.format(n=n), "answer": str(2 * n)} for n in range(30)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        done = oncurve("check", "--tasks.path", path)
        assert done.returncode == 0, done.stderr
        assert ("the embedded model, the default, has no token: 'W'" in done.stdout) is is_warned
        assert ("--model.path DIR" in done.stdout) is is_warned


def test_verify_judges_a_file_without_torch(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    rows = [
        {"completion": "so <answer>0.5</answer>", "gold": "1/2"},
        {"completion": "so <answer>0.25</answer>", "gold": "1/2"},
        {"completion": "<answer>1</answer>", "gold": ""},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = oncurve("verify", path)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["status"] for line in done.stdout.splitlines()] == ["correct", "wrong", "no_verdict"]


def test_verify_judges_each_line_by_its_own_gold_and_splits_at_line_feeds_only(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    rows = [
        {"id": "2", "completion": "<answer>3</answer>", "gold": "3"},
        {"completion": "<answer>3</answer>", "gold": "4"},  # its id is its line number, 3: one is blank
        {"completion": "one\u2028two <answer>5</answer>", "gold": "5"},
    ]
    path.write_text("\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8-sig")
    found = [json.loads(line) for line in oncurve("verify", path).stdout.splitlines()]
    assert [(one["id"], one["status"]) for one in found] == [("2", "correct"), ("3", "wrong"), ("5", "correct")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: not JSON"),
        ("[1]", "line 1: a line holds one JSON object, got list"),
        ('{"gold": "1"}', "line 1: completion must be a string, got None"),
        ('{"completion": "1", "gold": "1", "goal": 1}', "line 1: unknown key 'goal'"),
        ('{"completion": "1", "gold": "1", "meta": [1]}', "line 1: meta must be an object, got [1]"),
        ('{"completion": "1", "gold": "1", "verifier": null}', "line 1: verifier must be a string"),
        ('{"completion": "1", "gold": "1", "verifier": "lenght"}', "Did you mean length?"),
        ("", "holds no completion"),
    ],
)
def test_verify_names_file_line_and_key(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "completions.jsonl"
    path.write_text(line + "\n")
    stderr = error_of("verify", path)
    assert str(path) in stderr
    assert message in stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_one_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot" in error_of("train", *SMALL, "--run_dir", tmp_path / "run")


def test_a_file_in_the_way_of_the_run_folder_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in error_of("train", *SMALL, "--run_dir", tmp_path / "file" / "run")


def test_too_little_memory_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    many = ("--rollout.num_prompts", "2000000", "--rollout.max_rows", "2000000000")
    many += ("--rollout.max_cache_tokens", "1000000000000")
    stderr = error_of("train", *SMALL, "--run_dir", tmp_path / "run", *many)
    assert "GiB of memory" in stderr
    assert "rollout.max_cache_tokens or rollout.max_rows (kv_cache)" in stderr
    assert not (tmp_path / "run").exists()
