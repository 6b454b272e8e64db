"""The countdown game: exact, own parser, nothing claimed is believed."""

import ast
import operator
import time
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oncurve.types import Status, Task
from oncurve.verify import CountdownSettings, CountdownVerifier, Item
from oncurve.verify.countdown import ExpressionError, read_expression


def judge(answer: str, numbers: Any = (4, 5, 2), target: Any = 11, settings: Any = None, **meta: Any):
    task = Task(
        id="t", prompt="p", gold="4+5+2", kind="countdown", verifier="countdown",
        meta={"numbers": numbers, "target": target, **meta},
    )  # fmt: skip
    verifier = CountdownVerifier(CountdownSettings(**(settings or {})))
    return verifier.judge([Item(task=task, text=f"<think>4+5=9</think><answer>{answer}</answer>")])[0]


@pytest.mark.parametrize("answer", ["4+5+2", " 2 + (4+5)\n", "((4)+(5))+(2)", "5+4+2"])
def test_right(answer: str):
    verdict = judge(answer)
    assert (verdict.status, verdict.reward) == (Status.CORRECT, 1.0)


@pytest.mark.parametrize(
    ("answer", "evidence"),
    [
        ("4+5-2", "= 7, target 11"),
        ("11", "uses [11], given [4, 5, 2]"),
        ("4+5", "uses [4, 5]"),
        ("4+5+2+0", "uses [4, 5, 2, 0]"),
        ("4+4+5-2", "uses [4, 4, 5, 2]"),
        ("45/2", "uses [45, 2]"),
        ("4+5+2=11", "not part of an expression"),
        ("11=4+5+2", "not part of an expression"),
        ("The answer is 4+5+2", "missing at position 0"),
        ("4+5+2.0", "not part of an expression"),
        ("4 5 2", "not part of an expression"),
        ("-4+5+2", "missing at position 0"),
        ("4+-5+2", "missing at position 2"),
        ("4**5+2", "missing at position 2"),
        ("4//5+2", "missing at position 2"),
        ("4^5+2", "not part of an expression"),
        ("(4+5+2", "never closed"),
        ("4+5+2)", "not part of an expression"),
        ("()", "missing at position 1"),
        ("2(4+5)", "not part of an expression"),
        ("4/(5-5)", "division by zero"),
        ("4+5+2 or 4+2+5", "not part of an expression"),
        ("4+5+2#", "not part of an expression"),
        ("__import__('os')", "missing at position 0"),
        ("４+5+2", "missing at position 0"),
        ("٤+5+2", "missing at position 0"),
    ],
)
def test_wrong(answer: str, evidence: str):
    verdict = judge(answer)
    assert (verdict.status, verdict.reward) == (Status.WRONG, 0.0)
    assert evidence in verdict.evidence


def test_the_tag_rules_hold_here_too():
    task = Task(id="t", prompt="p", gold="", kind="k", verifier="countdown", meta={"numbers": [4, 7], "target": 11})
    for text in ["4+7", "<think><answer>4+7</answer>", "<answer>4+7", "<answer>4+7</answer><answer>7+4</answer>"]:
        assert CountdownVerifier(CountdownSettings()).judge([Item(task=task, text=text)])[0].status is Status.WRONG


def test_fractions_on_the_way_are_exact():
    # 8 / (3 - 8/3) = 8 / (1/3) = 24: the classic that floating point misses.
    assert judge("8/(3-8/3)", [8, 3, 8, 3], 24).status is Status.CORRECT
    assert judge("8÷(3−8÷3)", [3, 3, 8, 8], 24).status is Status.CORRECT
    assert judge("7/2", [7, 2], 3).status is Status.WRONG


def test_the_target_may_be_zero_or_negative():
    assert judge("4-4", [4, 4], 0).status is Status.CORRECT
    assert judge("4/4", [4, 4], 0).status is Status.WRONG
    assert judge("2-5", [5, 2], -3).status is Status.CORRECT


def test_numbers_may_be_left_out_only_when_the_rule_says_so():
    lenient = {"use": "at_most_once"}
    assert judge("5*2+1", [5, 2, 1, 9], 11).status is Status.WRONG
    assert judge("5*2+1", [5, 2, 1, 9], 11, lenient).status is Status.CORRECT
    assert judge("5+5+1", [5, 2, 1, 9], 11, lenient).status is Status.WRONG
    assert judge("5+5+1", [5, 5, 1], 11, lenient).status is Status.CORRECT


def test_only_declared_operators_count():
    additive = {"operators": ("+", "-")}
    assert judge("4*5-9", [4, 5, 9], 11, additive).status is Status.WRONG
    assert judge("4*5-9", [4, 5, 9], 11).status is Status.CORRECT
    assert judge("4*5-9", [4, 5, 9], 11, operators=["+", "-"]).status is Status.WRONG  # of the task itself
    assert judge("4*5-9", [4, 5, 9], 11, additive, operators=["*", "-"]).status is Status.CORRECT


@pytest.mark.parametrize(
    "meta",
    [
        {"numbers": None}, {"numbers": []}, {"numbers": "452"}, {"numbers": [4, "5", 2]}, {"numbers": [True, 5, 2]},
        {"numbers": 4}, {"target": None}, {"target": "11"}, {"target": 11.0}, {"target": True}, {"operators": []},
        {"operators": ["%"]}, {"operators": 3},
    ],
)  # fmt: skip
def test_a_broken_puzzle_is_no_verdict(meta: dict[str, Any]):
    verdict = judge("4+5+2", **meta)
    assert (verdict.status, verdict.cause) == (Status.NO_VERDICT, "bad_gold")


@pytest.mark.parametrize(
    "answer",
    [
        "(" * 400 + "1" + ")" * 50,
        "1+" * 5000 + "1",
        "9" * 100_000,
        "9*" * 200 + "9",
        "1/" * 240 + "7",
        "\x00",
        "\ud800",
    ],
)
def test_hostile_expressions_get_a_fast_verdict(answer: str):
    started = time.process_time()
    assert judge(answer).status is Status.WRONG
    assert time.process_time() - started < 1.0


def test_the_bounds_are_where_they_are_said_to_be():
    assert read_expression("9" * 12).value == 10**12 - 1
    assert read_expression("(" * 30 + "1" + ")" * 30).value == 1
    assert read_expression("1" + " " * 499).value == 1
    for text in ("9" * 13, "(" * 31 + "1" + ")" * 31, "1" + " " * 500):
        with pytest.raises(ExpressionError):
            read_expression(text)


def test_one_operator_is_enough():
    assert judge("4+5+2", settings={"operators": ("+",)}).status is Status.CORRECT


@given(st.text("0123456789+-*/() x", max_size=40))
def test_any_text_is_computed_or_refused(text: str):
    with suppress(ExpressionError):
        assert isinstance(read_expression(text).value, Fraction)


# An independent second computation: Python's own grammar, with the values replaced by fractions.
PYTHON: dict[type, Callable[..., Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def compute(node: ast.expr) -> Fraction:
    if isinstance(node, ast.BinOp):
        return PYTHON[type(node.op)](compute(node.left), compute(node.right))
    assert isinstance(node, ast.Constant)
    return Fraction(node.value)


expressions = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner, st.booleans()).map(
        lambda t: f"({t[0]}{t[1]} {t[2]})" if t[3] else f"{t[0]} {t[1]}{t[2]}"
    ),
    max_leaves=8,
)


@given(expressions)
def test_the_parser_agrees_with_pythons_grammar(text: str):
    try:
        expected = compute(ast.parse(text, mode="eval").body)
    except ZeroDivisionError:
        with pytest.raises(ExpressionError, match="division by zero"):
            read_expression(text)
        return
    assume(len(text) <= 500)
    assert read_expression(text).value == expected
