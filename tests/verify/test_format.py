"""Tags and lengths."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from oncurve.types import Status, Task
from oncurve.verify import Item, LengthSettings, TagsSettings, build_verifier
from oncurve.verify.tags import find_fault, has_visible

CASES = [json.loads(line) for line in (Path(__file__).parent / "data" / "format.jsonl").read_text().splitlines()]
TASK = Task(id="t", prompt="p", gold="", kind="k", verifier="tags")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['verifier']}:{case['why']}"[:60])
def test_cases(case: dict[str, Any]):
    (verdict,) = build_verifier(case["verifier"], case["options"]).judge([Item(task=TASK, text=case["text"])])
    assert (verdict.status is Status.CORRECT) == case["correct"], verdict.evidence
    assert verdict.reward == float(case["correct"])


GOOD = "<think>a</think><answer>4</answer>"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no <think>"),
        ("<think>a</think>", "no <answer>"),
        ("</think><answer>4</answer>", "</think> closes nothing"),
        ("<think>a</answer>", "</answer> inside <think>"),
        ("<think>a<think>b</think></think>", "<think> inside <think>"),
        ("<think>a<answer>4</answer></think>", "<answer> inside <think>"),
        (GOOD + "<answer>", "<answer> is never closed"),
        (GOOD + "<answer>4</answer>", "<answer> stands 2 times"),
        ("<answer>4</answer><think>a</think>", "order is answer, think"),
        ("<think>\u200b \u3164\u2800</think><answer>4</answer>", "<think> is empty"),
        (f"```\n{GOOD}\n```", "text outside the tags: ```"),
        ("<think>a</think>\u200b<answer>4</answer>", "text outside the tags: \\u200b"),
        ("<think >a</think ><answer>4</answer>", "no <think>"),
    ],
)
def test_faults(text: str, fault: str):
    assert find_fault(text, TagsSettings()) == fault


def test_tags_in_a_code_fence_count():
    fenced = f"```\n{GOOD}\n```"
    assert find_fault(fenced, TagsSettings(only=False)) == ""
    assert find_fault(f"{GOOD}\n{fenced}", TagsSettings(only=False)) == "<think> stands 2 times"


def test_each_option_does_something():
    twice = "<think>a</think><think>b</think><answer>4</answer>"
    assert find_fault(twice, TagsSettings()) != ""
    assert find_fault(twice, TagsSettings(once=False)) == ""
    assert find_fault("<think>a</think><answer>4</answer><think>b</think>", TagsSettings(once=False)) != ""
    empty = "<think></think><answer>4</answer>"
    assert find_fault(empty, TagsSettings(non_empty=False)) == ""
    assert find_fault("so " + GOOD, TagsSettings(only=False)) == ""
    after = TagsSettings(order=("think",), only=False, text_after=True)
    assert find_fault("<think>a</think>4", after) == ""
    assert find_fault("4<think>a</think>\u200b", after) == "nothing follows </think>"


@pytest.mark.parametrize("order", [(), ("a", "a"), ("",), ("<a>",), ("a b",)])
def test_senseless_tags_are_refused(order: tuple[str, ...]):
    with pytest.raises(ValidationError):
        TagsSettings(order=order)


@given(st.text(max_size=20).filter(lambda t: "<" not in t and has_visible(t)), st.text(" \n\t", max_size=5))
def test_any_visible_content_passes_and_blanks_do_not_matter(content: str, blanks: str):
    text = f"{blanks}<think>{content}</think>{blanks}<answer>{content}</answer>{blanks}"
    assert find_fault(text, TagsSettings()) == ""


@given(st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "x", " "]), max_size=7))
def test_only_the_one_form_passes(pieces: list[str]):
    text = "".join(pieces)
    shape = re.sub("x+", "x", text.replace(" ", ""))
    is_good = shape == "<think>x</think><answer>x</answer>"
    assert (find_fault(text, TagsSettings()) == "") == is_good


@pytest.mark.parametrize("text", ["<" * 500_000, "<think>" * 100_000, "<think>a</think>" * 50_000, "\u200b" * 500_000])
def test_hostile_text_is_scanned_in_linear_time(text: str):
    started = time.process_time()
    for settings in (TagsSettings(), TagsSettings(once=False, only=False, order=("think",))):
        find_fault(text + "<think>" + text, settings)
    assert time.process_time() - started < 3.0


def length(text: str, **options: Any) -> Status:
    item = Item(task=TASK, text=text, token_ids=(1, 2, 3))
    return build_verifier("length", options).judge([item])[0].status


def test_lengths_are_counted_in_three_units():
    # "né so" is 5 code points and 2 words; the item has 3 tokens whatever its text.
    for unit, exact in [("chars", 5), ("words", 2), ("tokens", 3)]:
        assert length("né so", unit=unit, min=exact, max=exact) is Status.CORRECT
        assert length("né so", unit=unit, min=exact + 1, max=9) is Status.WRONG
        assert length("né so", unit=unit, max=exact - 1) is Status.WRONG


def test_an_empty_range_is_refused():
    with pytest.raises(ValidationError, match="min 5 is above max 4"):
        LengthSettings(min=5, max=4)
