"""Rows for the code verifier: the reference solution as it stands, or none."""

import json
from pathlib import Path
from typing import Any

import pytest

from oncurve.tasks import TaskSettings, load_tasks
from oncurve.types import DataError, Task

TESTS = [{"args": [2], "expected": 4}]
BODY = "    # #### not an answer\n    return n * n\n"


def tasks(path: Path, rows: list[dict[str, Any]], **settings: Any) -> dict[str, Task]:
    file = path / "programs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    found = load_tasks(TaskSettings(path=file, num_held_out=2, **settings), seed=0)
    return {str(task.prompt): task for task in (*found.train, *found.held_out)}


def rows(**changes: Any) -> list[dict[str, Any]]:
    common = {"mode": "function", "entry_point": "f", "tests": TESTS}
    return [{"prompt": f"square {number}", **common, **changes} for number in range(4)]


def test_a_reference_keeps_its_indentation_and_its_comments(tmp_path: Path) -> None:
    task = tasks(tmp_path, rows(solution=BODY, language="python"), verifier="code")["square 1"]
    assert (task.gold, task.verifier) == (BODY, "code")
    assert task.meta["tests"] == TESTS
    assert task.meta["language"] == "python"  # the programming language is the verifier's
    assert task.language == "en"


@pytest.mark.parametrize("changes", [{}, {"solution": None}, {"solution": ""}])
def test_tests_alone_make_a_task(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert tasks(tmp_path, rows(**changes), verifier="code")["square 1"].gold == ""


def test_for_every_other_verifier_a_gold_is_needed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no known pair of prompt and answer columns"):
        tasks(tmp_path, rows())
    with pytest.raises(DataError, match="The gold answer is empty"):
        tasks(tmp_path, rows(solution=""))
    with pytest.raises(DataError, match="A reference solution is a text, or missing"):
        tasks(tmp_path, rows(solution=3), verifier="code")


def test_two_solutions_of_one_problem_are_no_conflict(tmp_path: Path) -> None:
    twice = [*rows(solution=BODY), *rows(solution="    return n ** 2\n")]
    assert tasks(tmp_path, twice, verifier="code")["square 1"].gold == BODY
    with pytest.raises(DataError, match="state different golds"):
        tasks(tmp_path, twice)
