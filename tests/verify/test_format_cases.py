"""Rows of known cases of every format, and text that is written to break a reader."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.types import Status, Task, Verdict
from oncurve.verify import Item, RewardSettings, Scorer, build_verifier
from oncurve.verify.formats.cases import TYPES, judge_cases

DATA = Path(__file__).parent / "data" / "format_cases.jsonl"
CASES = [json.loads(line) for line in DATA.read_text().splitlines()]
BRANCHING = {
    "$ref": "#/$defs/n",
    "$defs": {
        "n": {
            "anyOf": [
                {"properties": {"l": {"$ref": "#/$defs/n"}, "k": {"const": kind}}, "required": ["k"]} for kind in (1, 2)
            ]
        }
    },
}
TOOLS = [{"name": "add", "parameters": {"properties": {"a": {"type": "number"}}}}]


def judge(verifier: str, text: str, meta: dict[str, Any] | None = None, **options: Any) -> Verdict:
    task = Task(id="t", prompt="p", gold="", kind="k", verifier=verifier, meta=meta or {})
    return build_verifier(verifier, options).judge([Item(task=task, text=text)])[0]


@pytest.mark.parametrize("kind", TYPES)
def test_every_case_is_judged_as_its_label_says(kind: str):
    rows = [row for row in CASES if row["spec"]["type"] == kind]
    assert len(rows) > 20
    found = {row["id"]: (row["status"], row["reward"]) for row in judge_cases(rows)}
    labels = {row["id"]: ("correct", 1.0) if row["expect"] else ("wrong", 0.0) for row in rows}
    assert {name: found[name] for name in labels if found[name] != labels[name]} == {}


def test_a_row_out_has_the_fields_that_are_promised():
    (row,) = judge_cases(
        [{"spec": {"type": "length", "unit": "tokens", "max": 2}, "completion": "a", "token_ids": [7]}]
    )
    seconds = row.pop("seconds")
    assert 0 <= seconds < 60
    assert row == {
        "id": "row-1",
        "status": "correct",
        "reward": 1.0,
        "evidence": "1 tokens, accepted 0 to 2",
        "cause": None,
    }


@pytest.mark.parametrize(
    ("spec", "evidence"),
    [
        (None, "type is one of"),
        ({"type": "yaml"}, "type is one of"),
        ({"type": "tags", "ordre": ["a"]}, "Did you mean order?"),
        ({"type": "json", "schema": {"type": "nothing"}}, "not a JSON Schema"),
        ({"type": "length", "min": 3, "max": 2}, "no length would be accepted"),
    ],
)
def test_a_spec_that_cannot_be_used_gives_no_verdict(spec: Any, evidence: str):
    (row,) = judge_cases([{"spec": spec, "completion": "x"}])
    assert (row["status"], row["reward"], row["cause"]) == ("no_verdict", None, "bad_spec")
    assert evidence in row["evidence"]


def test_a_row_without_completion_is_an_error():
    with pytest.raises(ValueError, match="case a needs spec and completion"):
        list(judge_cases([{"id": "a", "spec": {"type": "tags"}}]))


HOSTILE = [
    ("json", "[" * 500_000, {}),
    ("json", '"' + "\\" * 500_000, {}),
    ("json", "1" * 500_000, {}),
    ("json", "[" + "1," * 200_000 + "1]", {"json_schema": {"items": {"type": "integer"}}}),
    ("json", "[" + "1," * 400_000 + "1]", {"json_schema": {"items": {}}}),
    ("json", "[" + ",".join(f'{{"a":{n}}}' for n in range(40_000)) + "]", {"json_schema": {"uniqueItems": True}}),
    ("json", '{"l":' * 31 + "{}" + "}" * 31, {"json_schema": BRANCHING}),
    ("json", '{"l":' * 31 + '"' + "x" * 400_000 + '"' + "}" * 31, {"json_schema": BRANCHING}),
    ("json", '"' + "a" * 5000 + 'b"', {"json_schema": {"pattern": "^(a+)+$"}}),
    ("json", '{"' + "a" * 5000 + 'b":1}', {"json_schema": {"patternProperties": {"^(a+)+$": {}}}}),
    ("json", "1" + "0" * 900, {"json_schema": {"multipleOf": 0.1}}),
    ("json", "1", {"json_schema": {"$ref": "#"}}),
    ("json", "```\n" * 100_000, {"where": "fence"}),
    ("json", "<answer " * 50_000, {"where": "tag"}),
    ("tags", "</" + " " * 200_000 + "<think x " * 50_000, {}),
    ("tags", "```\n<think>\n```\n" * 20_000, {"ignore_fences": True}),
    ("xml", "<a " + " ".join(f'a{n}="1"' for n in range(60_000)) + "/>", {}),
    ("xml", "".join(f'<a xmlns:a{n}="u{n}">' for n in range(190)) + "<b/>" * 20_000, {"max_depth": 200}),
    ("xml", "<a>" + "<p:b/>" * 60_000 + "</a>", {}),
    ("xml", "<" * 500_000, {}),
    ("tool_call", "<tool_call>" + " " * 400_000, {"tools": TOOLS}),
    ("tool_call", "x</tool_call>" * 40_000, {"tools": TOOLS}),
    ("tool_call", '[{"function":1},' * 30_000, {"tools": TOOLS, "style": "openai"}),
    ("length", "🇩" * 200_000, {"unit": "chars", "max": 5}),
    ("length", "e" + "\u0301" * 300_000, {"unit": "chars", "max": 5}),
]


@pytest.mark.parametrize(("verifier", "text", "options"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_has_a_verdict_in_bounded_time(verifier: str, text: str, options: dict[str, Any]):
    started = time.process_time()
    verdict = judge(verifier, text, **options)
    assert time.process_time() - started < 4.0
    assert verdict.cause in (None, "limit", "timeout")
    assert len(verdict.evidence) <= 300


@pytest.mark.parametrize("verifier", ["json", "tags", "tool_call", "xml"])
@given(text=st.text(st.characters(), max_size=60) | st.text('{}[]":,<>/=`~\\ \nab0.e-', max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_text_has_a_verdict(verifier: str, text: str):
    options = {"tools": TOOLS} if verifier == "tool_call" else {}
    assert judge(verifier, text, **options).status in (Status.CORRECT, Status.WRONG)


def test_a_format_is_a_component_of_a_reward():
    # 1 for the answer and 0.5 for the form: right without the form 1, the form alone 0.5.
    reward = RewardSettings.model_validate(
        {
            "components": {
                "correct": {"verifier": "answer", "options": {"carrier": "json"}},
                "form": {"verifier": "json", "weight": 0.5, "options": {"json_schema": {"required": ["answer"]}}},
            }
        }
    )
    task = Task(id="t", prompt="p", gold="4", kind="k", verifier="answer")
    texts = ('{"answer": 4}', '{"answer": 5}', 'So: {"answer": 4}')
    with Scorer(reward) as scorer:
        verdicts = scorer.score([Item(task=task, text=text) for text in texts])
    assert [verdict.reward for verdict in verdicts] == [1.5, 0.5, 1.0]
