"""``oncurve check`` on code tasks: references run, missing ones listed, weak tests shown; a wrong one fails."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from oncurve.cli.app import app
from oncurve.cli.inspect import check_tasks

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")
TIMES = "def f(n):\n    return n * 3\n"


def words(path: Path, *solutions: str | None, **changes: Any) -> list[str]:
    tests = [{"args": [2], "expected": 6}, {"args": [5], "expected": 15}]
    common = {"mode": "function", "entry_point": "f", "tests": tests, **changes}
    rows = [{"prompt": f"three times, {n}", "solution": text, **common} for n, text in enumerate(solutions)]
    file = path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return ["--tasks.path", json.dumps(str(file)), "--tasks.num_held_out", "2", "--tasks.verifier", "code"]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "check.toml"
    path.write_text('name = "check"\n[reward.components.correct]\nverifier = "task"\n')
    return path


def test_missing_references_are_listed_and_fail_nothing(config: Path, tmp_path: Path):
    found = check_tasks(config, words(tmp_path, TIMES, None, TIMES, "", TIMES))
    code = found.data["code"]
    assert (found.data["rejected_golds"], code["num_code"], len(code["without"])) == ([], 5, 2)
    assert "5 code tasks, 3 reference solutions run" in found.text
    assert "2 have no reference solution, so nobody knows that they can be solved: rows-" in found.text
    assert "0 of 9 mutants of reference solutions pass the tests" in found.text


def test_a_reference_that_fails_is_rejected_and_the_command_says_so(config: Path, tmp_path: Path):
    given = words(tmp_path, TIMES, TIMES, TIMES, "def f(n):\n    return n\n")
    (rejected,) = check_tasks(config, given).data["rejected_golds"]
    assert rejected["reason"].startswith("wrong answer: case 1 of 2: got 2, expected 6")
    with pytest.raises(SystemExit) as left:
        app(["check", str(config), *given, "--json"], result_action="return_value")
    assert left.value.code == 1


def test_tests_that_let_mutants_pass_are_shown_and_fail_nothing(config: Path, tmp_path: Path):
    found = check_tasks(config, words(tmp_path, *[TIMES] * 4, tests=[{"args": [0], "expected": 0}]))
    assert found.data["rejected_golds"] == []
    assert "4 of 12 mutants of reference solutions pass the tests" in found.text
    assert ": 1 of 3 (line 2: 3 to 4): weak tests?" in found.text


def test_other_tasks_have_no_such_part():
    found = check_tasks(None, ["--tasks.num_held_out", "4"])
    assert found.data["code"] is None
    assert "code tasks" not in found.text
