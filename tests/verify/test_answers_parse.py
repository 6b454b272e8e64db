"""Reading: what the grammar makes of an answer, and what it leaves as text."""

from fractions import Fraction

import pytest

from oncurve.verify.answers import parse
from oncurve.verify.answers.exact import UndefinedError, rational, rough
from oncurve.verify.answers.nodes import Node, number, replace, symbols, walk


def node(source: str) -> Node:
    answer = parse(source)
    assert answer is not None
    return answer.node


def value(source: str) -> Fraction | None:
    return rational(node(source))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("007", 7),
        ("+4", 4),
        ("−4", -4),
        ("–4", -4),
        ("４２", 42),
        ("٣٧", 37),
        ("1,234,567.50", Fraction(2469135, 2)),
        ("1 234 567", 1234567),
        (r"65\,000", 65000),
        (r"18{,}600", 18600),
        (".5", Fraction(1, 2)),
        ("8.", 8),
        ("6.2e4", 62000),
        ("2E-3", Fraction(1, 500)),
        (r"$\frac{-1}{3}$", Fraction(-1, 3)),
        (r"\dfrac{3}{4}", Fraction(3, 4)),
        (r"\frac37", Fraction(3, 7)),
        (r"{1\over 3}", Fraction(1, 3)),
        (r"\frac{1}{\frac{1}{2}}", 2),
        ("-6/4", Fraction(-3, 2)),
        ("1¾", Fraction(7, 4)),
        ("2 2/3", Fraction(8, 3)),
        ("-1 1/4", Fraction(-5, 4)),
        (r"-2\frac{2}{3}", Fraction(-8, 3)),
        (r"0.1\overline{6}", Fraction(1, 6)),
        (r"\left(42\right)", 42),
        (r"\textbf{42}", 42),
        (r"\color{blue}{42}", 42),
        (r"**$42$**.", 42),
        ("2^{10}", 1024),
        ("2^10", 1024),
        ("2**10", 1024),
        ("10^-2", Fraction(1, 100)),
        ("7×10²", 700),
        ("-2^2", -4),
        ("(-2)^2", 4),
        ("2+3*4-1", 13),
        ("12/2/3", 2),
        ("3(4)", 12),
        ("5!", 120),
        (r"\binom{5}{2}", 10),
        (r"{4 \choose 2}", 6),
        (r"\sqrt{9}", 3),
        (r"\sqrt[3]{-8}", -2),
        ("8^{2/3}", 4),
        (r"|{-3}|", 3),
        (r"\lfloor 2.7 \rfloor", 2),
        (r"\max(2,7)", 7),
        (r"2.5\text{ million}", 2_500_000),
        ("45%", Fraction(9, 20)),
        (r"45\text{ percent}", Fraction(9, 20)),
        ("twenty-one", 21),
        ("one hundred and five", 105),
        ("3rd", 3),
    ],
)
def test_numbers(source: str, expected: Fraction | int):
    assert value(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "1,23", "4 10/3", "2 3/3", "10–20", "1 or 2", "x", "5x", "x=5", "--5", "5-", "2^3^2", "9**9**9", "(4", "4)",
        "{4", "(-1)!", "1.2.3", r"\frac{1}", r"\frac1", "1e", r"\binom{2}{5}", "O", "ll", "⑤", "四十二", "NaN", "0x10",
        "1_000", "1000000000!", "10^{100000}", "1e999999", r"2^{2^{2^{2^{2^{2}}}}}", "9" * 4097, r"\sqrt2",
        "print(5)", "eighty nine ten",
    ],
)  # fmt: skip
def test_not_numbers(source: str):
    answer = parse(source)
    assert answer is not None
    assert rational(answer.node) is None


@pytest.mark.parametrize("source", ["1/0", r"\frac{0}{0}", "0^0", "0^{-1}", "1+1/(2-2)"])
def test_no_value(source: str):
    with pytest.raises(UndefinedError):
        value(source)


def test_sums_need_no_rounding():
    assert value("0.1+0.2") == value("0.3")
    assert value("99999999999999999") != value("100000000000000000")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("xy", ("mul", ("sym", "x"), ("sym", "y"))),
        (r"2\sqrt{3}", ("mul", number(2), ("root", number(3), number(2)))),
        (r"4\sqrt(2)", ("mul", number(4), ("root", number(2), number(2)))),
        (r"\sin 2x\cos y", ("mul", ("fn", "sin", ("mul", number(2), ("sym", "x"))), ("fn", "cos", ("sym", "y")))),
        (r"\sin^2 x", ("pow", ("fn", "sin", ("sym", "x")), number(2))),
        (r"\sin^{-1} x", ("fn", "arcsin", ("sym", "x"))),
        (r"\log_2 8", ("fn", "log", number(8), number(2))),
        ("n(n+1)", ("mul", ("sym", "n"), ("add", ("sym", "n"), number(1)))),
        ("f(x)", ("call", "f", ("sym", "x"))),
        ("a_{n-1}", ("sym", "a_n-1")),
        ("25^{\\circ}", ("deg", number(25))),
        ("(2,500)", ("tuple", number(2), number(500))),
        ("(1;2]", ("interval", number(1), number(2), False, True)),
        (r"\{3,4\}", ("set", number(3), number(4))),
        ("1<x<2", ("rel", "< <", number(1), ("sym", "x"), number(2))),
        ("3:4", ("ratio", number(3), number(4))),
        (r"3{:}45\text{ p.m.}", ("clock", 225, 0, "pm")),
        ("1F3_{16}", ("based", "1F3", 16)),
        (r"9\text{ cm}^2", ("unit", number(9), 1, 10000, "length:2")),
        (r"\$1,250", ("unit", number(1250), 1, 1, "dollar:1")),
        (r"24\text{ green apples}", ("unit", number(24), 1, 1, "green apple:1")),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", ("matrix", ("row", number(1)), ("row", number(2)))),
        (r"x\equiv 3\pmod 7", ("rel", "\\equiv", ("sym", "x"), ("mod", number(3), number(7)))),
        (r"\sum_{i=1}^{3} i", ("sum", ("sym", "i"), "i", number(1), number(3))),
        (r"\int_0^1 x\,dx", ("int", ("sym", "x"), "x", number(0), number(1))),
        ("1, 2, \\ldots", ("list", number(1), number(2), ("dots",))),
        ("5!=120", ("rel", "=", ("fact", number(5)), number(120))),
    ],
)
def test_trees(source: str, expected: Node):
    assert node(source) == expected


@pytest.mark.parametrize("source", [r"\text{see the solution}", "yes", "7 is wrong", "[open('x'),5][1]"])
def test_text(source: str):
    assert node(source)[0] == "text"


@pytest.mark.parametrize(
    ("left", "right"),
    [("(2, 4)", "(2,4)"), (r"\left( x+1 \right)", "(x + 1)"), ("{{x}}", "x"), ("（1，2）", "(1,2)")],
)
def test_text_has_one_spelling(left: str, right: str):
    ours, theirs = parse(left), parse(right)
    assert ours is not None
    assert theirs is not None
    assert ours.text == theirs.text


@pytest.mark.parametrize("source", ["", "  ", "$$", r"\text{}", r"\boxed{}", "{}", "​"])
def test_nothing_visible_is_no_answer(source: str):
    assert parse(source) is None


def test_variables_are_free_unless_an_index_binds_them():
    assert symbols(node(r"\sum_{k=1}^{n} k x")) == {"n", "x"}
    assert symbols(node("f(x)+1")) == {"f", "x"}


def test_replacing_a_part_leaves_the_rest():
    tree = node("x^2+x")
    assert rational(replace(tree, ("sym", "x"), number(3))) == 12
    assert len(walk(tree)) == 5  # add, pow, x, 2, x


def test_rough_values_come_with_the_largest_size_on_the_way():
    found = rough(node(r"\sqrt{2}+1000000-1000000"))
    assert found is not None
    assert abs(found[0] - 2**0.5) < 1e-6
    assert found[1] >= 1e6
    assert rough(node("x")) is None
    assert rough(node(r"e^{1000}")) is None
