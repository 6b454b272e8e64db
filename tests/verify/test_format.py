"""Tags and lengths."""

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from oncurve.types import Status, Task
from oncurve.verify import Item, LengthSettings, TagsSettings, build_verifier
from oncurve.verify.tags import find_fault, has_visible, scan_tags

TASK = Task(id="t", prompt="p", gold="", kind="k", verifier="tags")


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
        ("<think >a</think ><answer>4</answer>", "<think > is not <think>: blanks"),
        ("<think>a</\tthink><answer>4</answer>", "</\\tthink> is not </think>: blanks"),
        ("<think>a</think><ANSWER>4</answer>", "<ANSWER> is not <answer>: other case"),
        ('<think id="1">a</think><answer>4</answer>', '<think id="1"> is not <think>: attributes'),
        ("<think>a</think><answer />", "<answer /> is not <answer>: closes itself"),
        (GOOD + "<Answer>", "<Answer> is not <answer>: other case"),
    ],
)
def test_faults(text: str, fault: str):
    assert find_fault(text, TagsSettings()) == fault


def test_tags_in_a_code_fence_count():
    fenced = f"```\n{GOOD}\n```"
    assert find_fault(fenced, TagsSettings(only=False)) == ""
    assert find_fault(f"{GOOD}\n{fenced}", TagsSettings(only=False)) == "<think> stands 2 times"


def test_tags_in_a_code_fence_are_text_where_asked_for():
    quoted = "<think>a\n```\n<answer>\n```\n</think><answer>4</answer>"
    assert find_fault(quoted, TagsSettings()) == "<answer> inside <think>"
    assert find_fault(quoted, TagsSettings(ignore_fences=True)) == ""
    assert find_fault(f"```\n{GOOD}\n```\n", TagsSettings(ignore_fences=True)) == "no <think>"
    between = f"```\n<think>\n```\n{GOOD}\n```\n</think>\n```\n{GOOD}"
    settings = TagsSettings(ignore_fences=True, only=False, once=False, order=("think",))
    assert find_fault(between, settings) == ""


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("<THINK>a</Think><answer>4</answer>", "any_case"),
        ("<think a=\"1\">a</think><answer\nb='2' >4</answer>", "attributes"),
        ("<think >a</ think><answer>4</answer\n>", "blanks"),
    ],
)
def test_odd_tags_are_read_where_their_option_says_so(text: str, option: str):
    for name in ("any_case", "attributes", "blanks"):
        assert (find_fault(text, TagsSettings.model_validate({name: True})) == "") == (name == option)


def test_a_tag_that_closes_itself_is_never_read():
    everything = TagsSettings(any_case=True, attributes=True, blanks=True)
    assert "closes itself" in find_fault("<think>a</think><answer/>", everything)
    assert "closes itself" in find_fault('<think>a</think><answer id="1" />', everything)


@pytest.mark.parametrize(
    "text", ["< think>", "<thinking>", "<think", "<think <b>", "<think x>", "<think-2>", "&lt;think>", "＜think＞"]
)
def test_what_is_no_tag(text: str):
    assert scan_tags(text, ("think",)) == []


def test_the_places_of_tags():
    (tag,) = scan_tags("a</ think\n>b", ("think", "thin"))
    assert (tag.name, tag.is_closing, tag.start, tag.end, tag.oddities) == ("think", True, 1, 11, ("blanks",))


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


@pytest.mark.parametrize(
    ("text", "num_chars"),
    [
        ("  a b\n", 3),  # blanks at the ends are none
        ("e\u0301", 1),
        ("\u0301", 0),
        ("각", 1),
        ("\u1100\u1161\u11a8", 1),  # the same syllable in three parts
        ("a\u200b\u00ad\x00b", 2),
        ("👍🏽", 1),
        ("👩\u200d👧", 1),
        ("a\u200db", 2),
        ("🇳🇴🇸🇪", 2),
        ("🇳🇴🇸", 2),
        ("हि", 1),
    ],
)
def test_characters_are_counted_as_a_reader_sees_them(text: str, num_chars: int):
    assert length(text, unit="chars", min=num_chars, max=num_chars) is Status.CORRECT
    raw = len(text.strip())
    assert length(text, unit="chars", min=raw, max=raw, count_marks=True) is Status.CORRECT


@given(st.text(alphabet="abc é\n", max_size=12), st.text(" \n\t", max_size=4))
def test_blanks_around_a_text_change_no_length(text: str, blanks: str):
    for unit, exact in [("chars", len(text.strip())), ("words", len(text.split()))]:
        assert length(blanks + text + blanks, unit=unit, min=exact, max=exact) is Status.CORRECT


def test_words_hold_a_letter_or_a_digit():
    assert length("- a – 1 … é 好", unit="words", min=4, max=4) is Status.CORRECT
    assert length("- a – 1 … é 好", unit="words", min=7, max=7, count_punctuation=True) is Status.CORRECT


def test_tokens_of_a_text_without_ids_have_no_verdict():
    build = build_verifier("length", {"max": 3})
    (verdict,) = build.judge([Item(task=TASK, text="x")])
    assert (verdict.cause, verdict.reward) == ("no_tokens", None)
    (verdict,) = build.judge([Item(task=TASK, text="")])
    assert verdict.status is Status.CORRECT


def test_an_empty_range_is_refused():
    with pytest.raises(ValidationError, match="min 5 is above max 4"):
        LengthSettings(min=5, max=4)
    with pytest.raises(ValidationError, match="every length would be accepted"):
        LengthSettings()
    assert length("a b c d", unit="words", min=4) is Status.CORRECT
