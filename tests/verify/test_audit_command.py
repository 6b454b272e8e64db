"""``oncurve audit``: targets, rows, exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from oncurve.cli.app import app

SUBSTRING = "def reward(completions, answer, **c):\n    return [float(g in t) for g, t in zip(answer, completions)]\n"


@pytest.fixture
def rewards(tmp_path: Path) -> Path:
    path = tmp_path / "rewards.py"
    path.write_text(SUBSTRING)
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        app(["audit", *words])
    return int(end.value.code or 0), capsys.readouterr().out


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code, out = run(capsys, *words, "--json")
    return code, json.loads(out)


def test_a_hole_ends_with_exit_code_1_and_the_exact_strings(rewards: Path, capsys: pytest.CaptureFixture[str]):
    code, out = run(capsys, f"{rewards}:reward", "--families", "metamorphic")
    assert code == 1
    assert "metamorphic: only mentioned" in out
    assert "'Some say 42. I have not worked it out.'" in out
    assert "not passed" in out


def test_limits_decide_about_the_exit_code(rewards: Path, capsys: pytest.CaptureFixture[str]):
    code, found = run_json(capsys, f"{rewards}:reward", "--families", "metamorphic", "--num-tasks", "3")
    accepted = len(found["false_accepts"])
    words = (f"{rewards}:reward", "--families", "metamorphic", "--num-tasks", "3", "--max-false-accepts")
    assert (code, run_json(capsys, *words, str(accepted))[0]) == (1, 0)
    assert run_json(capsys, *words, str(accepted - 1))[0] == 1


def test_the_rows_of_a_file_are_attacked(rewards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = [
        {"question": f"How much is {n} + {n}?", "answer": f"{n} + {n} = {2 * n}\n#### {2 * n}"} for n in range(1, 40)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    _, found = run_json(
        capsys, f"{rewards}:reward", "--tasks", str(file), "--families", "metamorphic", "--num-tasks", "5"
    )
    assert all(one["prompt"].startswith("How much is") for one in found["false_accepts"])
    assert found["num_right"] == 10  # the gold, and the gold with blanks around, of five rows


def test_a_config_is_audited_with_its_weights_and_tasks(capsys: pytest.CaptureFixture[str]):
    words = ("--tasks.num_held_out", "4", "--families", "policy", "--num-tasks", "2")
    code, found = run_json(capsys, *words)
    assert (code, found["full"], found["false_accepts"]) == (0, 1.1, [])
    code, found = run_json(capsys, *words, "--reward.components.format.weight", "2")
    assert (code, found["full"]) == (1, 3.0)
    assert found["recipes"][0]["share"] == pytest.approx(2 / 3)


def test_an_exploit_of_the_project_is_tried_again(rewards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "found").mkdir()
    case = {"mark": "exploit", "prompt": "6*7?", "gold": "42", "completion": "never 42"}
    (tmp_path / "found" / "any.jsonl").write_text(json.dumps(case) + "\n")
    code, found = run_json(
        capsys, f"{rewards}:reward", "--families", "regression", "--exploits", str(tmp_path / "found")
    )
    assert code == 1
    assert [one["completion"] for one in found["false_accepts"]] == ["never 42"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x.py:f"], "there is no file"),
        (["--families", "corps"], "Did you mean corpus?"),
        (["--paid-at", "2"], "paid_at"),
    ],
)
def test_mistakes_are_answered(words: list[str], message: str):
    with pytest.raises(Exception, match=message):
        app(["audit", *words])


def test_settings_belong_to_a_config(rewards: Path):
    with pytest.raises(Exception, match="settings belong to a config file"):
        app(["audit", f"{rewards}:reward", "--seed", "3"])
