"""Tool tasks: the goal is what the job says, worked out here a second time from the question."""

import json
import re

import pytest
from pydantic import ValidationError

from oncurve.model.embedded import CHARACTERS
from oncurve.tasks import TaskSettings, guessed_example, load_tasks, prompt_text
from oncurve.types import Task
from oncurve.verify.environments.known import KNOWN

JOBS = {"files": ["move", "copy", "add"], "database": ["set", "delete", "raise", "largest"]}


def tasks(source: str, **more: object) -> list[Task]:
    settings = TaskSettings(source=source, options={"jobs": JOBS[source]}, num_held_out=20, **more)
    return list(load_tasks(settings, seed=3).train[:80])


def test_files_end_as_the_prompt_says():
    for task in tasks("files"):
        start, goal = (dict(task.meta["environment"][part]) for part in ("start", "goal"))
        move = re.fullmatch(r"move (\w) to (\w)\n", str(task.prompt))
        copy = re.fullmatch(r"copy (\w) to (\w)\n", str(task.prompt))
        add = re.fullmatch(r"add (\w) and (\w) to (\w)\n", str(task.prompt))
        if move:
            start[move[2]] = start.pop(move[1])
        elif copy:
            start[copy[2]] = start[copy[1]]
        elif add:
            start[add[3]] = str(int(start[add[1]]) + int(start[add[2]]))
        assert start == goal
        assert goal != task.meta["environment"]["start"]
        assert len(task.meta["environment"]["start"]) == 3
        assert task.kind == f"files_{'move' if move else 'copy' if copy else 'add'}"


def test_tables_end_as_the_prompt_says():
    for task in tasks("database"):
        said = str(task.prompt)
        rows = dict(task.meta["environment"]["start"]["t"]["rows"])
        before = dict(rows)
        numbers = [int(number) for number in re.findall(r"\d+", said)]
        if said.startswith("set"):
            rows[numbers[0]] = numbers[1]
        elif said.startswith("raise"):
            rows = {row: x + numbers[0] for row, x in rows.items()}
        else:
            del rows[numbers[0] if numbers else max(rows, key=rows.__getitem__)]
        goal = task.meta["environment"]["goal"]["t"]["rows"]
        assert goal == sorted(([row, x] for row, x in rows.items()), key=repr)
        assert rows != before


@pytest.mark.parametrize("source", JOBS)
def test_the_prompt_names_every_tool_and_its_arguments(source):
    for task in tasks(source, prompt_style="chat")[:4]:
        said = prompt_text(task.prompt)
        for tool in KNOWN[source].tools:
            assert f"{tool['name']}({', '.join(tool['parameters']['properties'])})" in said
        assert "<tool_call>" in said
        assert "<answer>" not in said
        assert task.meta["environment"]["syntax"] == "hermes"


@pytest.mark.parametrize("source", JOBS)
def test_the_small_vocabulary_can_say_everything(source):
    for task in tasks(source):
        assert set(str(task.prompt)) <= set(CHARACTERS)
        assert task.meta["environment"]["syntax"] == "short"
        said = "".join(str(value) for call in json.loads(task.gold) for value in call["arguments"].values())
        assert set(said) <= set(CHARACTERS)


def test_equal_jobs_on_other_files_are_other_problems():
    found = tasks("files")
    assert len({task.id for task in found}) == len({(str(t.prompt), repr(t.meta["environment"])) for t in found})


@pytest.mark.parametrize("source", JOBS)
def test_guesses_change_something_and_are_right_by_luck_only(source):
    found = tasks(source)
    guesses = [guessed_example(task, seed=0) for task in found]
    assert guesses == [guessed_example(task, seed=0) for task in found]
    assert all(call["name"] in {"move", "write", "sql"} for guess in guesses for call in json.loads(guess))
    assert sum(guess == task.gold for guess, task in zip(guesses, found, strict=True)) < len(found) / 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"source": "files", "options": {"jobs": ["copies"]}}, "jobs"),
        ({"source": "files", "answer_format": "box", "prompt_style": "chat"}, "remove answer_format"),
        ({"source": "database", "options": {"num_rows": 20}}, "num_rows"),
    ],
)
def test_what_makes_no_sense_is_refused(words, message):
    with pytest.raises(ValidationError, match=message):
        TaskSettings(**words)
