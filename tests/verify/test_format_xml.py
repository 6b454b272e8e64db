"""XML: what is asked for, and what is kept off."""

from typing import Any
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from oncurve.types import Status, Task, Verdict
from oncurve.verify import Item, XmlSettings, build_verifier
from oncurve.verify.tags import has_visible

LETTERS = st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF, exclude_characters="\x7f"), max_size=12)


def judge(text: str, **options: Any) -> Verdict:
    task = Task(id="t", prompt="p", gold="", kind="k", verifier="xml")
    return build_verifier("xml", options).judge([Item(task=task, text=text)])[0]


@given(LETTERS.filter(has_visible), st.text(" \n\t", max_size=3))
def test_what_is_written_is_accepted_and_blanks_around_elements_change_nothing(content: str, blanks: str):
    inner = f"<x>{escape(content)}</x>"
    text = f"{blanks}<r>{blanks}{inner}{blanks}</r>{blanks}"
    assert judge(text, root="r", children=["x"]).status is Status.CORRECT
    assert judge(text, root="r", children=["x", "x"]).status is Status.WRONG
    assert judge(f"```xml\n{text}\n```", where="fence", root="r").status is Status.CORRECT


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        ("<s/>", "the root is s, expected r"),
        ("<r/>", "the root holds nothing, expected x, y"),
        ("<r><y>1</y></r>", "the root holds y, expected x, y"),
        ("<r><x>1</x>so<y>1</y></r>", "text between the children of r"),
        ("<r><x>1</x><y> </y></r>", "<y> is empty"),
        ("<r><x>&e;</x></r>", "not XML: Entity 'e' not defined"),
        ("<r><p:x/></r>", "not XML: Namespace prefix p on x is not defined"),
        ("<!DOCTYPE r><r/>", "a document type is not accepted"),
        ("<r>\ud800</r>", "the text holds half of a surrogate pair"),
        ("", "not XML: Document is empty"),
    ],
)
def test_faults(text: str, evidence: str):
    verdict = judge(text, root="r", children=["x", "y"])
    assert verdict.status is Status.WRONG
    assert verdict.evidence.startswith(evidence)


def test_bounds():
    assert judge("<a><b>1</b></a>", max_depth=2).status is Status.CORRECT
    assert judge("<a><b>1</b></a>", max_depth=1).evidence == "elements deeper than 1 levels"
    assert judge("<a>1</a>", max_chars=8).status is Status.CORRECT
    assert judge("<a>1</a>", max_chars=7).evidence == "8 characters, at most 7 are read as XML"


def test_empty_elements_are_an_option():
    assert judge("<r><x/></r>", root="r", children=["x"]).status is Status.WRONG
    assert judge("<r><x/></r>", root="r", children=["x"], non_empty=False).status is Status.CORRECT
    assert judge("<r/>").evidence == "<r> is empty"
    assert judge("<r/>", non_empty=False).status is Status.CORRECT


def test_what_shows_deep_inside_a_child_counts_for_that_child():
    assert judge("<r><x><b><i>1</i></b></x></r>", root="r", children=["x"]).status is Status.CORRECT
    assert judge("<r><x><b/></x><y>1</y></r>", root="r", children=["x", "y"]).evidence == "<x> is empty"


def test_a_declared_encoding_cannot_hide_markup():
    # In UTF-7, +ADw- is "<". The text is characters already, so the declaration means nothing.
    text = '<?xml version="1.0" encoding="UTF-7"?><r><x>+ADw-y+AD4-</x></r>'
    assert judge(text, root="r", children=["x"]).status is Status.CORRECT


def test_a_file_that_is_named_is_not_read():
    text = '<r xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="file:///etc/hostname" parse="text"/></r>'
    assert judge(text).evidence == "<r> is empty"


def test_children_without_root_are_refused():
    with pytest.raises(ValidationError, match="name it with root"):
        XmlSettings(children=("x",))
