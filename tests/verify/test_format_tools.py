"""Tool calls in both syntaxes, against the tools' schemas."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from oncurve.types import Status, Task, Verdict
from oncurve.verify import Item, ToolCallSettings, build_verifier

ADD = {
    "name": "add",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "note": {"type": "string"}},
        "required": ["a"],
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
TOOLS = [ADD, NOW]
NUMBERS = st.integers(-1000, 1000) | st.floats(allow_nan=False, allow_infinity=False)


def judge(text: str, meta: dict[str, Any] | None = None, /, **options: Any) -> Verdict:
    task = Task(id="t", prompt="p", gold="", kind="k", verifier="tool_call", meta=meta or {})
    return build_verifier("tool_call", {"tools": TOOLS, **options}).judge([Item(task=task, text=text)])[0]


def hermes(arguments: Any, name: Any = "add") -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def openai(arguments: Any, name: Any = "add", **others: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **others}


CALL = hermes({"a": 1})
WROTE_RESPONSE = "the completion holds <tool_response>: the tool answers, not the model"


@given(NUMBERS, st.text(st.characters(codec="utf-8"), max_size=20), st.text(" \n\t", max_size=3))
def test_a_call_that_is_written_is_accepted_in_both_syntaxes(number: float, note: str, blanks: str):
    arguments = {"a": number, "note": note}
    assert judge(blanks + hermes(arguments) + blanks).status is Status.CORRECT
    message = {"role": "assistant", "content": None, "tool_calls": [openai(json.dumps(arguments), id="1")]}
    assert judge(blanks + json.dumps(message) + blanks, style="openai").status is Status.CORRECT


@given(st.text(alphabet='<>/tool_ca{}":\\ ', max_size=30))
def test_the_closing_tag_inside_a_string_is_text(note: str):
    assert judge(hermes({"a": 1, "note": "</tool_call>" + note})).status is Status.CORRECT


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        (hermes({"a": 1}, "sub"), "no tool 'sub'; there are add, now"),
        (hermes({"a": 1}, None), "no tool None; there are add, now"),
        (hermes({}), "arguments of add: $: 'a' is a required property"),
        (hermes({"a": 1, "b": 2}), "arguments of add: $: 'b' is not expected"),
        (hermes({"a": True}), "arguments of add: $.a: True is not of type 'number'"),
        (hermes('{"a": 1}'), "the arguments of add are no object"),
        (hermes({"a": 1}, "now"), "arguments of now: $: 'a' is not expected"),
        ("no call", "0 calls, expected 1 or more"),
        (CALL + CALL, "more than 1 calls"),
        (CALL[:-1], "no </tool_call> behind the JSON: </tool_call"),
        ("<tool_call>x</tool_call>", "no JSON object behind <tool_call>: x</tool_call>"),
        ('<tool_call>{"a": 1}</tool_call>', "a call holds name and arguments, got a"),
        (CALL + " Done.", "text after a call: Done."),
        ("</tool_call>" + CALL, "</tool_call> closes nothing"),
        (CALL + "</tool_call>", "</tool_call> closes nothing"),
        ("<think>so " + CALL, "the call stands inside <think>"),
        (CALL + "<tool_response>2</tool_response>", WROTE_RESPONSE),
    ],
)
def test_faults_of_hermes(text: str, evidence: str):
    verdict = judge(text)
    assert (verdict.status, verdict.evidence) == (Status.WRONG, evidence)


@pytest.mark.parametrize(
    ("value", "evidence"),
    [
        ([openai({"a": 1})], "arguments is not a string that holds JSON"),
        ([openai("{'a': 1}")], "not JSON: "),
        ([openai('{"a": "1"}')], "arguments of add: $.a: '1' is not of type 'number'"),
        ([openai('{"a": 1}', type="x")], "a call of type 'x', expected function"),
        ([openai('{"a": 1}', id=1)], "the id 1 is no string of its own"),
        ([openai('{"a": 1}', x=1)], 'a call is {"id"'),
        ([openai('{"a": 1}', id="1"), openai('{"a": 1}', id="1")], "the id '1' is no string of its own"),
        ([{"function": {"name": "now"}}], "the function of a call holds name and arguments"),
        ({"role": "user", "tool_calls": []}, "not a message in which the assistant calls tools"),
        ({"refusal": "no"}, "not a message in which the assistant calls tools"),
        ({"content": 1}, "the content of a message is text or null"),
        ({"tool_calls": {}}, "tool_calls is no list"),
        ({"tool_calls": None}, "0 calls, expected 1 or more"),
        ({"call": 1}, "neither an assistant message nor its tool_calls nor one call"),
    ],
)
def test_faults_of_openai(value: Any, evidence: str):
    verdict = judge(json.dumps(value), style="openai", max_calls=2)
    assert verdict.status is Status.WRONG
    assert verdict.evidence.startswith(evidence)


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("so " + CALL, {"before", "around"}),
        (CALL + " so", {"around"}),
        (CALL + " so " + CALL, {"around"}),
        (CALL + "\n" + CALL, {"none", "before", "around"}),
    ],
)
def test_where_text_may_stand(text: str, accepted: set[str]):
    rules = ("none", "before", "around")
    assert {rule for rule in rules if judge(text, text=rule, max_calls=2).status is Status.CORRECT} == accepted


def test_content_beside_the_calls_of_a_message_is_text():
    message = json.dumps({"content": "I add.", "tool_calls": [openai('{"a": 1}')]})
    assert judge(message, style="openai").status is Status.CORRECT
    assert judge(message, style="openai", text="none").evidence == "text beside the calls: I add."


def test_the_number_of_calls_is_a_range():
    for num_calls, accepted in [(0, False), (1, True), (2, True), (3, False)]:
        assert (judge(CALL * num_calls, min_calls=1, max_calls=2).status is Status.CORRECT) == accepted
    assert judge("Nothing to do.", min_calls=0, text="none").status is Status.CORRECT


def test_extra_arguments_are_an_option_and_a_schema_that_allows_them_is_followed():
    extra = hermes({"a": 1, "b": 2})
    assert judge(extra, extra_arguments=True).status is Status.CORRECT
    open_tool = {**ADD, "parameters": {**ADD["parameters"], "additionalProperties": True}}
    assert judge(extra, tools=[open_tool]).status is Status.CORRECT


def test_a_task_may_bring_its_own_tools():
    own = [{"name": "sub", "parameters": {}}]
    for tools in (own, json.dumps(own)):
        assert judge(hermes({}, "sub"), {"tools": tools}).status is Status.CORRECT
        assert judge(CALL, {"tools": tools}).status is Status.WRONG
    for broken in ([], "{", [{"parameters": {}}], [{"name": "x", "parameters": {"type": "array"}}], 3):
        assert judge(CALL, {"tools": broken}).cause == "bad_tools"


def test_size_and_depth_are_bounded():
    assert judge(CALL, max_chars=len(CALL)).status is Status.CORRECT
    assert judge(CALL, max_chars=len(CALL) - 1).evidence == f"{len(CALL)} characters, at most {len(CALL) - 1} are read"
    assert judge(CALL, max_depth=2).status is Status.CORRECT
    assert judge(CALL, max_depth=1).evidence.startswith("deeper than 1 levels")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_calls": 2, "max_calls": 1}, "nothing is accepted"),
        ({"tools": [{"name": "x"}, {"name": "x"}]}, "two tools are named x"),
        ({"tools": [{}]}, "tool 0 has no name"),
        ({"tools": [{"name": "x", "parameters": {"properties": {"a": {"type": "y"}}}}]}, "parameters of the tool x"),
        ({"tools": [{"name": "x", "parameters": {"type": "string"}}]}, "are an object, got type 'string'"),
    ],
)
def test_senseless_settings_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(ValidationError, match=message):
        ToolCallSettings(**options)
