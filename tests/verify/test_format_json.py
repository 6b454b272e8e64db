"""Strict JSON, where it stands, and JSON Schema."""

import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from oncurve.types import Status, Task, Verdict
from oncurve.verify import Item, JsonSettings, build_verifier
from oncurve.verify.formats.faults import BadFormatError, CannotCheckError
from oncurve.verify.formats.fences import scan_fences
from oncurve.verify.formats.patterns import search
from oncurve.verify.formats.schema import Schema
from oncurve.verify.formats.strict_json import MAX_DIGITS, load_json, value_end

NEWEST, DRAFT_7 = "https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"
KEYS = st.text(string.ascii_letters, max_size=4)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    # no lone surrogates: they are no text
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def judge(text: str, meta: dict[str, Any] | None = None, **options: Any) -> Verdict:
    task = Task(id="t", prompt="p", gold="", kind="k", verifier="json", meta=meta or {})
    return build_verifier("json", options).judge([Item(task=task, text=text)])[0]


def load(text: str) -> Any:
    return load_json(text, max_chars=1000, max_depth=8)


@given(PLAIN, st.text(" \t\r\n", max_size=3), st.sampled_from([None, 2]))
def test_what_is_written_is_read_and_blanks_around_it_change_nothing(value: Any, blanks: str, indent: int | None):
    text = json.dumps(value, indent=indent)
    assert load_json(blanks + text + blanks, max_chars=10_000, max_depth=32) == value
    assert judge(blanks + text + blanks).status is Status.CORRECT
    assert judge(f"Here:\n```json\n{text}\n```\n", where="fence").status is Status.CORRECT
    assert judge(text + "x").status is Status.WRONG


@given(PLAIN)
def test_a_value_fits_the_schema_that_is_that_value(value: Any):
    assert Schema({"const": value}).fault(value) == ""
    assert Schema({"not": {"const": value}}).fault(value) != ""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "not JSON: Expecting value at character 0"),
        ('{"a": 1} {', "not JSON: Extra data at character 9"),
        ("NaN", "NaN is not JSON"),
        ("[1e400]", "the number 1e400 is out of range"),
        ('{"a": 1, "b": 2, "b": 3}', "the key 'b' stands twice in an object"),
        ('["\\udc00"]', "a string holds half of a surrogate pair"),
        ("[[[[[[[[[1]]]]]]]]]", "deeper than 8 levels at character 8"),
        ("[1", "the JSON value never ends"),
        ("x" * 1001, "1001 characters, at most 1000 are read as JSON"),
    ],
)
def test_faults(text: str, fault: str):
    with pytest.raises(BadFormatError) as caught:
        load(text)
    assert str(caught.value).startswith(fault)


def test_the_bounds_themselves_are_accepted():
    assert load("[[[[[[[[1]]]]]]]]") == [[[[[[[[1]]]]]]]]
    assert load("9" * MAX_DIGITS) == 10**MAX_DIGITS - 1
    with pytest.raises(BadFormatError, match="an integer of 1001 digits"):
        load_json("9" * 1001, max_chars=2000, max_depth=1)
    assert load('["\\ud83d\\ude00"]') == ["😀"]  # both halves


def test_the_end_of_a_value_is_found_past_strings_and_escapes():
    text = '<{"a": "}\\"]", "b": [1]}> {}'
    assert text[1 : value_end(text, 1, max_depth=2)] == '{"a": "}\\"]", "b": [1]}'


# --- places -----------------------------------------------------------------------------------------------------


def test_fences_are_found_as_commonmark_reads_them():
    text = "a\n```json x\n1\n```\n~~~\n```\n2\n~~~~\n   ````\n```\n"
    found = [(fence.label, text[fence.start : fence.end], fence.is_closed) for fence in scan_fences(text)]
    assert found == [("json", "1\n", True), ("", "```\n2\n", True), ("", "```\n", False)]
    assert text[scan_fences(text)[0].outer_start :].startswith("```json")
    assert text[scan_fences(text)[0].outer_end :].startswith("~~~")


@pytest.mark.parametrize("text", ["``\n1\n``", "    ```\n1", "```a`b\n1", "x ```\n1\n", ""])
def test_what_is_no_fence(text: str):
    assert scan_fences(text) == []


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("1", "no code fence"),
        ("```\n1\n```\n```\n1\n```", "2 code fences, expected one"),
        ("```\n1", "the code fence is never closed"),
        ("```yaml\n1\n```", "the code fence is labelled yaml, expected json"),
    ],
)
def test_faults_of_the_fence(text: str, evidence: str):
    assert judge(text, where="fence").evidence == evidence


def test_the_tag_is_an_option():
    assert judge("<out>1</out>", where="tag", tag="out").status is Status.CORRECT
    assert judge("<out>1</out>", where="tag").evidence == "no <answer>"


# --- schemas ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        ({"type": "integer"}, 4.0, 4.5),
        ({"enum": [1]}, 1.0, True),
        ({"uniqueItems": True}, [1, True, "1", [1], [True], {"a": 1}, {"a": True}], [{"a": [1]}, {"a": [1.0]}]),
        ({"uniqueItems": False}, [1, 1], None),
        ({"multipleOf": 0.01}, 19.99, 19.999),
        ({"multipleOf": 3}, 10**400 - 1, 10**400),
        ({"pattern": r"^\d{2}$"}, "12", "12\n"),
        ({"pattern": r"^[\w$]+$"}, "a$1", "é"),
        ({"pattern": r"\W"}, "é", "e"),
        ({"patternProperties": {"^n": {"type": "number"}}}, {"n": 1, "m": "x"}, {"n": "x"}),
        ({"patternProperties": {"^n": {}}, "additionalProperties": False}, {"n1": 1}, {"m": 1}),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "null"}}, {"a": 1, "b": None}, {"b": 1}),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "null"}}}, None, 1),
        ({"$schema": DRAFT_7, "items": [{"type": "null"}]}, [None, 1], [1]),
        ({"$schema": NEWEST, "$id": "https://x.y/z", "items": {"$ref": "#"}, "minItems": 1}, [[1]], [[]]),
        ({"pattern": "^(?<one>a)\\1$"}, "aa", "ab"),
        (True, 1, None),
    ],
)
def test_what_fits(schema: Any, fits: Any, does_not: Any):
    assert Schema(schema).fault(fits) == ""
    if does_not is not None:
        assert Schema(schema).fault(does_not) != ""


def test_a_fault_names_the_place():
    schema = Schema({"properties": {"a": {"items": {"type": "string"}}}})
    assert schema.fault({"a": ["x", 1]}) == "$.a[1]: 1 is not of type 'string'"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "text"}, r"not a JSON Schema: \$.type"),
        ({"$ref": "https://example.org/schema.json"}, "leads out of the schema"),
        ({"$ref": "file:///etc/hostname"}, "leads out of the schema"),
        ({"items": {"$ref": "#/$defs/missing"}}, "leads nowhere"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "is not known"),
        ({"items": {"$id": "https://example.org/x"}}, "inside a schema"),
        ({"pattern": "("}, "is no regular expression"),
        ({"patternProperties": {"[": {}}}, "is no regular expression|not a JSON Schema"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "use additionalProperties"),
    ],
)
def test_senseless_schemas_are_refused_before_anything_is_judged(schema: Any, message: str):
    with pytest.raises(ValidationError, match=message):
        JsonSettings(json_schema=schema)


def test_data_inside_a_schema_is_no_schema():
    schema = Schema({"enum": [{"$ref": "x", "pattern": "("}], "properties": {"pattern": {}, "$ref": {}}})
    assert schema.fault({"$ref": "x", "pattern": "("}) == ""


def test_a_task_may_name_its_own_schema_as_data_or_as_text():
    for own in ({"type": "null"}, '{"type": "null"}', {"type": ["null"]}):
        assert judge("null", {"json_schema": own}, json_schema={"type": "string"}).status is Status.CORRECT
        assert judge('"x"', {"json_schema": own}, json_schema={"type": "string"}).status is Status.WRONG
    for broken in ({"type": "x"}, "{", 3, {"a": {1, 2}}):
        assert judge("1", {"json_schema": broken}).cause == "bad_schema"


def test_work_beyond_the_limit_gives_no_verdict():
    verdict = judge("[" + "1," * 60_000 + "1]", json_schema={"items": {"type": "integer"}})
    assert (verdict.cause, verdict.reward) == ("limit", None)
    assert judge("[" + "1," * 450_000 + "1]", json_schema={"items": {}}).cause == "limit"  # an eighth of a step an item
    with pytest.raises(CannotCheckError, match="takes too long"):
        search("^(a+)+$", "a" * 3000 + "b", 0.05)
