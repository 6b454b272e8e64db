"""Which outputs are the expected ones: exact types and values, by stated rules only."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncurve.sandbox import plain_tree
from oncurve.verify.code.compare import same_text, same_value
from oncurve.verify.code.settings import CodeComparison

EXACT = CodeComparison()
NAN = float("nan")


def same(expected: Any, got: Any, **rules: Any) -> bool:
    return same_value(plain_tree(expected), plain_tree(got), CodeComparison.model_validate(rules))


@pytest.mark.parametrize(
    ("expected", "got", "is_same"),
    [
        (1, 1, True),
        (1, True, False),
        (True, 1, False),
        (0, False, False),
        (1, 1.0, False),
        (1.0, 1, False),
        (1, "1", False),
        ("1", 1, False),
        (None, None, True),
        (None, 0, False),
        (None, "", False),
        ("", None, False),
        (False, None, False),
        (0.0, -0.0, True),
        (0.1 + 0.2, 0.3, False),
        (1.5, True, False),
        (2**100, 2**100, True),
        (2**100, 2**100 + 1, False),
        (2**53 + 1, float(2**53), False),
        (float("inf"), float("inf"), True),
        (float("inf"), float("-inf"), False),
        (1.5, NAN, False),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        ([1, 2], [1], False),
        ([1], [1, 2], False),
        ([1, 2], (1, 2), True),
        ([[1], (2,)], ((1,), [2]), True),
        ([True], [1], False),
        ([], None, False),
        ([], {}, False),
        ([], "", False),
        ({}, [], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1}, {"a": True}, False),
        ({"1": 1}, {1: 1}, True),
        ({"-10": 1, "0": 2}, {0: 2, -10: 1}, True),
        ({1: 1}, {"1": 1}, False),
        ({"01": 1}, {1: 1}, False),
        ({"1": 1}, {True: 1}, False),
        ({"1": 1}, {1.0: 1}, False),
        ({"1": 1, 1: 2}, {1: 2, "1": 1}, True),
        ({"1": 1, "2": 2}, {1: 1, "1": 2}, False),
        ({1: "a"}, {True: "a"}, False),
        ({"a": [1, 2]}, {"a": (1, 2)}, True),
        ({1, 2}, {2, 1}, True),
        ({1, 2}, {1, 3}, False),
        ({1, 2}, [1, 2], False),
        ([1, 2], {1, 2}, False),
        ({1}, frozenset({1}), False),
        (b"a", b"a", True),
        (b"a", "a", False),
        (1 + 2j, 1 + 2j, True),
        (range(3), range(3), True),
        ([0, 1, 2], range(3), False),
    ],
)
def test_equality_of_values(expected: Any, got: Any, is_same: bool):
    assert same(expected, got) is is_same


@pytest.mark.parametrize(
    ("rule", "expected", "got", "without", "with_it"),
    [
        ({"int_equals_float": True}, 2, 2.0, False, True),
        ({"int_equals_float": True}, 2.0, 2, False, True),
        ({"int_equals_float": True}, 1.0, True, False, False),
        ({"int_equals_float": True}, True, 1.0, False, False),
        ({"tuple_equals_list": False}, [1], (1,), True, False),
        ({"json_keys": False}, {"1": 1}, {1: 1}, True, False),
        ({"tuple_equals_list": False}, (1,), (1,), True, True),
        ({"nan_equals_nan": True}, NAN, NAN, False, True),
        ({"nan_equals_nan": True}, [NAN], [float("inf")], False, False),
        ({"float_tolerance": 1e-6}, 0.3, 0.1 + 0.2, False, True),
        ({"float_tolerance": 1e-6}, 1e12, 1e12 + 1e5, False, True),  # 1e5 <= 1e-6 * 1e12
        ({"float_tolerance": 1e-6}, 1e12, 1e12 + 1e7, False, False),
        ({"float_tolerance": 1e-6}, 0.0, 2e-6, False, False),  # 2e-6 > 1e-6 * max(1, 0)
        ({"float_tolerance": 0.1}, 10, 11, False, False),  # whole numbers are exact
        ({"float_tolerance": 0.1}, 1.0, NAN, False, False),
        ({"float_tolerance": 0.1}, 1.0, float("inf"), False, False),
    ],
)
def test_each_rule_does_what_it_says(rule: dict[str, Any], expected: Any, got: Any, without: bool, with_it: bool):
    assert same(expected, got) is without
    assert same(expected, got, **rule) is with_it


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -2.0]) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)


def strict(a: Any, b: Any) -> bool:
    """The same rule, written a second time on values."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(strict, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(strict(a[key], b[key]) for key in a)
    return a == b


@given(PLAIN, PLAIN)
def test_it_agrees_with_a_second_statement_of_the_rule(a: Any, b: Any):
    assert same(a, b) is strict(a, b)
    assert same(a, a)
    assert same(a, b) is same(b, a)


@given(
    st.recursive(
        st.integers() | st.text(max_size=3) | st.none(),
        lambda t: st.lists(t) | st.dictionaries(st.sampled_from("tdsznhfix?"), t),
    )
)
def test_no_tree_raises_and_none_that_the_encoder_does_not_write_equals_a_value(tree: Any):
    for expected in (5, "x", 1.5, None):
        assert same_value(plain_tree(expected), tree, EXACT) is (tree == expected and type(tree) is type(expected))
    same_value(plain_tree({"a": [1]}), tree, EXACT)
    same_value(plain_tree({1, 2}), tree, EXACT)


def test_numbers_with_one_hash_do_not_slow_a_comparison():
    keys = [(2**61 - 1) * number for number in range(1, 30_000)]  # all of them hash to 0
    tree = {"d": [[plain_tree(key), 1] for key in keys]}
    started = time.monotonic()
    assert same_value(tree, tree, EXACT)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("expected", "got", "is_same"),
    [
        ("6\n", "6", True),
        ("6", "6\n\n\n", True),
        ("6\n", "6  \t\n", True),
        ("1\n2\n", "1\r\n2\r\n", True),
        ("6\n", "\n6\n", False),
        ("6\n", " 6\n", False),
        ("1 2\n", "1  2\n", False),
        ("1\n2\n", "1 2\n", False),
        ("1\n2\n", "2\n1\n", False),
        ("1\n\n2\n", "1\n2\n", False),
        ("6\n", "5\r6\n", False),
        ("6\n", "6\x1b[1D\n", False),
        ("6\n", "6.0\n", False),
        ("Yes\n", "yes\n", False),
        ("", "", True),
        ("", "\n", True),
        ("", "0\n", False),
        ("a\u00a0\n", "a\n", False),
    ],
)
def test_equality_of_text(expected: str, got: str, is_same: bool):
    assert same_text(expected, got, EXACT) is is_same


@pytest.mark.parametrize(
    ("expected", "got", "is_same"),
    [
        ("0.333333\n", "0.3333333333\n", True),
        ("0.333333\n", "0.34\n", False),
        ("1000000\n", "1000000.4\n", False),  # a whole number is exact
        ("1000000\n", "1000001\n", False),
        ("1.0 2.0\n", "1 2\n", True),
        ("1.0 2.0\n", "1.0\n2.0\n", False),
        ("1.0\n", "1.0 1.0\n", False),
        ("x 1.5\n", "y 1.5\n", False),
        ("1.5\n", "nan\n", False),
        ("1e3\n", "1000\n", True),
        ("e\n", "1\n", False),
    ],
)
def test_a_tolerance_is_for_decimal_fractions(expected: str, got: str, is_same: bool):
    assert same_text(expected, got, CodeComparison(float_tolerance=1e-4)) is is_same


@given(st.text("a1 .\t\n\r", max_size=12))
def test_blanks_at_line_ends_never_matter(text: str):
    spaced = text.replace("\n", " \t\r\n") + "  \n\n"
    assert same_text(text, spaced, EXACT)
