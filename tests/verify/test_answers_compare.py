"""Comparison: each option does something, and the hard rules hold."""

import time
from typing import Any

import pytest

from oncurve.verify.answers import Comparer, ComparisonSettings, parse


def equal(answer: str, gold: str, **settings: Any) -> bool:
    ours, theirs = parse(answer), parse(gold)
    assert ours is not None
    assert theirs is not None
    return Comparer(ComparisonSettings(**settings)).is_equal(ours, theirs)


@pytest.mark.parametrize(
    ("option", "value", "answer", "gold", "default"),
    [
        ("absolute_tolerance", 0.02, "3.15", "3.14", False),
        ("absolute_tolerance", 0.02, r"\pi", "3.15", False),
        ("relative_tolerance", 0.01, "101", "100", False),
        ("unit", "cm", "5 m", "5", True),
        ("unit", "m", "500 cm", "5", False),
        ("unit_required", True, "5", "5 cm", True),
        ("unit_conversion", False, "50 mm", "5 cm", True),
        ("bare_number_as_percent", False, "60", "60%", True),
        ("degree_vs_radian", False, r"\frac{\pi}{3}", r"60^\circ", True),
        ("list_order", "same", "2,1", "1,2", True),
        ("repeated_members", False, r"\{1,2,2\}", r"\{1,2\}", True),
        ("or_gold_any", True, "9", "5 or 9", False),
        ("bare_pair", False, "1,-2", "(1,-2)", True),
        ("vector_as_tuple", False, "(1,2)", r"\begin{pmatrix}1\\2\end{pmatrix}", True),
        ("nested_list_matrix", False, "[[1,2],[3,4]]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", True),
        ("log_base", "e", r"\ln 2", r"\log 2", False),
        ("many_digits", 4, "1.4142", r"\sqrt2", False),
        ("rounded_gold_places", 4, r"\frac23", "0.667", True),
        ("j_as_imaginary", False, "3+4j", "3+4i", True),
        ("compound_left_side", False, "x^2=4", "4", True),
        ("variable_names_matter", False, "m=8", "n=8", False),
        ("ratio_unreduced", False, "6:8", "3:4", True),
        ("ratio_as_fraction", False, r"\frac34", "3:4", True),
        ("base_omitted", False, "312", "312_4", True),
        ("constant_of_integration", False, "x^2", "x^2+C", True),
        ("residues", False, r"10\pmod 7", r"3\pmod 7", True),
        ("clock_24h", False, "15:45", "3:45 PM", True),
        ("no_solution_words", False, r"\text{no solution}", r"\emptyset", True),
        ("longer_sentence", False, r"\text{No, it is not}", "No", True),
        ("decimal_comma", False, "1,22", "1.22", True),
    ],
)
def test_every_choice_is_an_option(option: str, value: Any, answer: str, gold: str, default: bool):
    assert equal(answer, gold) is default
    assert equal(answer, gold, **{option: value}) is not default


def test_exotic_digits_are_an_option_of_reading():
    strict = parse("٣٧", exotic_digits=False)
    assert strict is not None
    assert strict.node[0] == "text"


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (r"\frac{1}{2^{91}}", r"\frac{1}{2^{90}}"),  # rounding to 0 would accept these
        (r"e^{-1001}", r"e^{-1000}"),
        (r"e^{-1000}", "0"),
        (r"2^{-901}x", r"2^{-900}x"),
        (r"\sqrt{2}+10^{-90}", r"\sqrt2"),
        (r"\sqrt{10^{80}+1}", "10^{40}"),
        (r"e^{\pi\sqrt{163}}", "262537412640768744"),  # differs in the 31st digit
        (r"\tan(10^{100}x)", "7"),  # nothing but rounding error in double precision
        ("20001", "20000"),
        ("7.2505", "7.25"),
        ("1.4", r"\sqrt2"),
        (r"\frac{22}{7}", r"\pi"),
    ],
)
def test_close_is_not_equal(answer: str, gold: str):
    assert not equal(answer, gold)
    assert not equal(gold, answer)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        (r"\sqrt[3]{2+\sqrt5}+\sqrt[3]{2-\sqrt5}", "1"),
        (r"\cos\frac{2\pi}{7}+\cos\frac{4\pi}{7}+\cos\frac{6\pi}{7}", r"-\frac12"),
        (r"\arctan\frac12+\arctan\frac13", r"\frac\pi4"),
        (r"\frac{1}{e^{1000}}", r"e^{-1000}"),
        (r"(r+q+p)^{150}", r"(p+q+r)^{150}"),
        (r"\int_0^\infty e^{-x^2}dx", r"\frac{\sqrt\pi}{2}"),
        (r"\lim_{x\to0}\frac{1-\cos x}{x^2}", r"\frac12"),
        (r"\sum_{n=1}^\infty\frac{1}{n^2}", r"\frac{\pi^2}{6}"),
    ],
)
def test_identities(answer: str, gold: str):
    assert equal(answer, gold)
    assert equal(gold, answer)


def test_a_chain_that_contradicts_itself_equals_nothing():
    for gold in ("1", "2", "3"):
        assert not equal("1 = 2 = 3", gold)
        assert not equal("x = 1 + 1 = 3", gold)
    assert equal("x = 1 + 2 = 3", "3")
    assert equal(r"x = \frac13 \approx 0.33", r"\frac13")
    assert not equal(r"x = \frac13 \approx 7", r"\frac13")


def test_distinct_members_are_counted_without_comparing_every_pair_twice():
    members = ",".join(str(n) for n in range(300))
    started = time.process_time()
    assert equal(f"\\{{{members}\\}}", f"\\{{{','.join(reversed(members.split(',')))}\\}}")
    assert not equal(f"\\{{{members}\\}}", f"\\{{{members},300\\}}")  # more members than are compared
    assert time.process_time() - started < 1.0
