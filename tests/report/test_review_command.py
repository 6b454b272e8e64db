"""``oncurve review``: from a run with a hole in its reward to a case that the next audit tries."""

import io
import json
from pathlib import Path

import pytest

from oncurve.cli.app import app
from oncurve.cli.review import Review, review_in_terminal
from oncurve.config import dump_config, load_config
from oncurve.report import RunFolder
from oncurve.tasks import load_tasks
from oncurve.types import Completion, FinishReason, Group, RunError, Sampling, Task
from oncurve.verify import Item, Scorer
from oncurve.verify.audit import AuditSettings, RewardTarget, audit
from oncurve.verify.regressions import read_cases

CLAIM = """
def claim(completions, target, **columns):
    return [float(f"={goal}" in text.replace(" ", "")) for text, goal in zip(completions, target)]
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two groups whose reward trusts the result that a completion claims."""
    (tmp_path / "claim.py").write_text(CLAIM)
    words = [
        *("--reward.components.correct.verifier", json.dumps(f"{tmp_path / 'claim.py'}:claim")),
        *("--reward.components.format.weight", "0", "--tasks.num_held_out", "4", "--tasks.num_train", "4"),
    ]
    config = load_config(None, words)
    folder = RunFolder.create(tmp_path / "run", config_toml=dump_config(config), environment={}, formula="")
    groups = []
    with Scorer(config.reward) as scorer:
        for task in load_tasks(config.tasks, seed=config.seed).train[:2]:
            texts = [
                f"<think>1+1={task.meta['target']}</think><answer>1+1</answer>",
                f"<think>1 = {task.meta['target']}</think><answer>{task.gold}</answer>",
                "<think>guess</think><answer>1</answer>",
            ]
            verdicts = scorer.score([Item(task=task, text=text) for text in texts])
            assert [verdict.reward for verdict in verdicts] == [1.0, 1.0, 0.0]
            completions = tuple(_completion(task, index, text) for index, text in enumerate(texts))
            groups.append(Group(task=task, completions=completions, verdicts=tuple(verdicts)))
    folder.append_rollouts(0, groups, [[0.0] * 3] * 2)
    return tmp_path / "run"


def _completion(task: Task, index: int, text: str) -> Completion:
    return Completion(
        task_id=task.id,
        index=index,
        prompt_ids=(1,),
        token_ids=(2, 3),
        old_logprobs=(-1.0, -1.0),
        policy_version=0,
        finish_reason=FinishReason.STOP,
        sampling=Sampling(),
        text=text,
    )


def command(*words: str) -> None:
    with pytest.raises(SystemExit) as end:
        app([*words])
    assert end.value.code in (0, None)


def test_the_tasks_own_verifier_is_the_second_opinion_and_a_marked_exploit_is_audited(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    exploits = tmp_path / "found"
    command("review", str(run), "--list", "--json", "--exploits", str(exploits))
    queue = json.loads(capsys.readouterr().out)["queue"]
    assert sorted(entry["id"] for entry in queue) == ["s0-g0-i0", "s0-g1-i0"]
    assert queue[0]["reasons"][0]["name"] == "second_opinion"
    assert "uses [1, 1]" in queue[0]["reasons"][0]["text"]

    command(
        "review", str(run), "--mark", "s0-g0-i0", "exploit", "--why", "claims the target", "--exploits", str(exploits)
    )
    capsys.readouterr()
    (case,) = read_cases(exploits)
    assert (case.mark, case.why, case.verifier) == ("exploit", "claims the target", "countdown")
    assert {"numbers", "target"} <= set(case.meta)
    assert case.origin == "run, step 0, group 0, completion 0"

    config = load_config(run / "config.toml")
    with RewardTarget(config.reward, name="claim", task=case.task) as target:
        found = audit(target, [case.task], AuditSettings(families=("regression",)), read_cases(exploits))
    assert [one.completion for one in found.false_accepts] == [case.completion]

    command("review", str(run), "--list", "--json", "--exploits", str(exploits))
    assert [entry["id"] for entry in json.loads(capsys.readouterr().out)["queue"]] == ["s0-g1-i0"]
    with pytest.raises(RunError, match=r"the queue of .* has no s0-g0-i0"):
        Review(run, exploits=exploits).find("s0-g0-i0")


def test_one_by_one_every_decision_is_kept_at_once(run: Path, tmp_path: Path):
    keys = iter(["?", "f", "s"])
    review = Review(run, exploits=tmp_path / "found")
    assert review_in_terminal(review, lambda: next(keys)) == {"exploit": 0, "fine": 1, "skip": 1}
    (case,) = read_cases(tmp_path / "found")
    assert case.mark == "fine"
    left = Review(run, exploits=tmp_path / "found")
    assert len(left.suspects) == 1
    assert review_in_terminal(left, lambda: "q") == {"exploit": 0, "fine": 0, "skip": 0}
    assert len(read_cases(tmp_path / "found")) == 1


def test_keys_come_from_standard_input_where_there_is_no_terminal(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.stdin", io.StringIO("e\n"))  # then the input ends
    command("review", str(run), "--exploits", str(tmp_path / "found"), "--json")
    out = capsys.readouterr()
    assert json.loads(out.out)["queue"]  # --json never asks
    command("review", str(run), "--exploits", str(tmp_path / "found"))
    assert "exploit: 1" in capsys.readouterr().out
    assert len(read_cases(tmp_path / "found")) == 1


def test_a_second_verifier_can_be_named(run: Path, tmp_path: Path):
    second = tmp_path / "second.py"
    second.write_text("def never(completions, **columns):\n    return [0.0] * len(completions)\n")
    review = Review(run, second=f"{second}:never", exploits=tmp_path / "found")
    assert len(review.suspects) == 4  # every well paid one
