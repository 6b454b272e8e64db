"""An exploit that was found once is tried in every later audit."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncurve.types import DataError, Message, StorageError
from oncurve.verify import RewardSettings
from oncurve.verify.audit import AuditSettings, FunctionTarget, RewardTarget, audit, default_tasks
from oncurve.verify.regressions import RegressionCase, case_id, read_cases, regression_attacks, write_case

COLLECTED = read_cases(Path(__file__).parents[1] / "exploits" / "rewards")


def case(**changes: object) -> RegressionCase:
    values = {
        "mark": "exploit",
        "prompt": "6*7?",
        "gold": "42",
        "kind": "sum",
        "verifier": "answer",
        "completion": "<answer>41</answer> 42",
    }
    return RegressionCase(**values | changes)  # type: ignore[arg-type]


def test_a_case_is_written_and_read_back_and_the_later_mark_counts(tmp_path: Path):
    chat = (Message(role="system", content="s"), Message(role="user", content="2,3:5="))
    first = case(why="stuffed", origin="run, step 3")
    second = case(prompt=chat, kind="count/down", meta={"numbers": [2, 3]}, is_truncated=True, completion="\ud800")
    assert write_case(first, tmp_path).name == "sum.jsonl"
    assert write_case(second, tmp_path).name == "count_down.jsonl"
    assert sorted(read_cases(tmp_path), key=lambda one: one.kind) == [second, first]
    write_case(case(mark="fine"), tmp_path)
    assert {one.kind: one.mark for one in read_cases(tmp_path)} == {"sum": "fine", "count/down": "exploit"}
    assert read_cases(tmp_path / "nowhere") == []


@given(st.text(max_size=9), st.text(max_size=9), st.text(max_size=9))
def test_the_id_tells_parts_apart(prompt: str, gold: str, text: str):
    assert case_id(prompt, gold, text) == case_id(prompt, gold, text)
    assert case_id(prompt, gold + "x", text) != case_id(prompt, gold, "x" + text)


@pytest.mark.parametrize(
    "line", ["no json", "[]", '{"mark": "exploit"', '{"gold": "4"}', '{"mark": "maybe"}', '{"mark": "fine", "gold": 4}']
)
def test_a_line_that_is_no_case_is_named(tmp_path: Path, line: str):
    (tmp_path / "cases.jsonl").write_text('{"mark": "fine", "gold": "1", "completion": "1"}\n' + line + "\n")
    with pytest.raises(DataError, match=r"cases\.jsonl, line 2"):
        read_cases(tmp_path)


def test_a_folder_that_refuses_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write .*--exploits"):
        write_case(case(), tmp_path / "file" / "folder")


def test_the_next_audit_tries_it(tmp_path: Path):
    rewards = tmp_path / "rewards.py"
    rewards.write_text(
        "def last(completions, answer, **c):\n    return [float(t.endswith(a)) for t, a in zip(completions, answer)]\n"
    )
    cases = [case(), case(mark="fine", completion="so it is 42"), case(mark="fine", completion="42.")]
    with FunctionTarget(f"{rewards}:last") as target:
        found = audit(target, default_tasks(), AuditSettings(families=("regression",)), cases)
    assert [one.completion for one in found.false_accepts] == ["<answer>41</answer> 42"]
    assert [one.completion for one in found.false_refusals] == ["42."]
    assert found.counts == {"regression": 3}


@pytest.mark.parametrize("found", COLLECTED, ids=lambda one: one.id)
def test_no_exploit_that_was_ever_found_is_paid_by_the_verifier_of_its_task(found: RegressionCase):
    (attack,) = regression_attacks([found])
    with RewardTarget(RewardSettings(), name="collected", task=found.task) as target:
        (answer,) = target.ask([attack.item])
    assert answer.reward is not None
    assert (answer.reward >= 1) == attack.is_right
