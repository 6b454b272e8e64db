"""Extraction, parsing and comparison of answers."""

import json
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncurve.types import Status, Task
from oncurve.verify import AnswerSettings, AnswerVerifier, Item
from oncurve.verify.answers import ComparisonSettings, Number, Text, extract, is_equal, parse, render

CASES = [json.loads(line) for line in (Path(__file__).parent / "data" / "answers.jsonl").read_text().splitlines()]


def judge(text: str, gold: str, **settings: Any):
    task = Task(id="t", prompt="p", gold=gold, kind="k", verifier="answer")
    return AnswerVerifier(AnswerSettings(**settings)).judge([Item(task=task, text=text)])[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}:{case['why']}"[:60])
def test_cases(case: dict[str, Any]):
    verdict = judge(case["text"], case["gold"], carrier=case["carrier"])
    assert (verdict.status is Status.CORRECT) == case["correct"], verdict.evidence


# --- extraction -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("carrier", "text", "offers"),
    [
        ("tag", "<think>2+2</think> <answer> 4 </answer>", ("4",)),
        ("tag", "2+2</think><answer>4</answer>", ("4",)),  # the opening tag stood in the prompt
        ("tag", "<answer>4</answer> or <answer>5</answer>", ("4", "5")),
        ("tag", "<answer>4</answer>. That was wrong. Now <answer>5</answer>", ("4", "5")),
        ("box", r"\boxed{\frac{1}{2}}", (r"\frac{1}{2}",)),
        ("box", r"\boxed {4}", ("4",)),
        ("box", r"\boxed 4.", ("4",)),
        ("box", r"\fbox{4}", ("4",)),
        ("box", r"\\boxed{4}", ("4",)),
        ("box", r"a \\\boxed{4}", ("4",)),
        ("box", r"\boxed{\{1\}}", (r"\{1\}",)),
        ("box", r"\boxed{\boxed{4}}", (r"\boxed{4}",)),
        ("box", r"{ } } \boxed{4} {", ("4",)),
        ("box", r"\boxed{3}. So the sum is \boxed{7}", ("7",)),
        ("box", "\\boxed{3}\n\n\\boxed{7}", ("3", "7")),
        ("box", r"either \boxed{3} or perhaps it is \boxed{7}", ("3", "7")),
        ("box", r"\boxed{1}. Then it follows that \boxed{3} or \boxed{7}", ("3", "7")),
        ("hash", "2+2=4\n#### 4", ("4",)),
        ("hash", "#### Step 1\nadd the two numbers\n#### 4\n", ("4",)),
        ("hash", "#### 3\n#### 4", ("3", "4")),
        ("last_line", "so\n42\n\n", ("42",)),
        ("last_line", "the answer is 3\nThe final answer is: 42", ("42",)),
        ("last_line", "ANSWER = 42", ("42",)),
    ],
)
def test_offers(carrier: Any, text: str, offers: tuple[str, ...]):
    assert extract(text, carrier).offers == offers


@pytest.mark.parametrize(
    ("carrier", "text", "problem"),
    [
        ("tag", "4", "no <answer>"),
        ("tag", "<answer>4", "never closed"),
        ("tag", "<answer>4</answer><answer>", "never closed"),
        ("tag", "4</answer>", "without"),
        ("tag", "</answer><answer>4</answer>", "pair up"),
        ("tag", "<answer>4<answer>4</answer></answer>", "pair up"),
        ("tag", "<answer>4</answer></answer>", "without"),
        ("tag", "<answer> </answer>", "empty"),
        ("tag", "<answer>4</answer><answer></answer>", "empty"),
        ("tag", "<ANSWER>4</ANSWER>", "no <answer>"),
        ("tag", "<think><answer>4</answer></think>", "no <answer>"),
        ("tag", "<think><answer>4</answer>", "<think> is never closed"),
        ("tag", "<think>a</think><think><answer>4</answer>", "<think> is never closed"),
        ("box", "4", "no \\boxed"),
        ("box", r"\boxedfoo{4}", "no \\boxed"),
        ("box", r"\boxed{4", "never closed"),
        ("box", r"\boxed{\boxed{4}", "never closed"),
        ("box", r"\boxed{4} \boxed{", "never closed"),
        ("box", r"\boxed{4}. The answer again is \boxed{}", "empty"),
        ("box", r"\boxed", "empty"),
        ("box", r"\boxed 42", "empty"),  # LaTeX would box only the 4
        ("hash", "4", "no ####"),
        ("hash", "####", "empty"),
        ("last_line", " \n\n", "empty"),
        ("last_line", "", "empty"),
    ],
)
def test_problems(carrier: Any, text: str, problem: str):
    extraction = extract(text, carrier)
    assert extraction.offers == ()
    assert problem in extraction.problem


def test_the_names_of_the_tags_are_settings():
    text = "<plan><result>1</result></plan><result>2</result><answer>3</answer>"
    assert extract(text, "tag", tag="result", thinking_tag="plan").offers == ("2",)


# --- parsing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("007", 7),
        ("+4", 4),
        ("−4", -4),
        ("–4", -4),
        ("４２", 42),
        ("1,234,567.50", Fraction(2469135, 2)),
        (r"65\,000", 65000),
        (r"18{,}600", 18600),
        (".5", Fraction(1, 2)),
        ("8.", 8),
        ("6.2e4", 62000),
        ("2E-3", Fraction(1, 500)),
        (r"$\frac{-1}{3}$", Fraction(-1, 3)),
        (r"\dfrac{3}{4}", Fraction(3, 4)),
        (r"\frac37", Fraction(3, 7)),
        (r"\frac{1}{\frac{1}{2}}", 2),
        ("-6/4", Fraction(-3, 2)),
        ("1¾", Fraction(7, 4)),
        ("2 2/3", Fraction(8, 3)),
        (r"-2\frac{2}{3}", Fraction(-8, 3)),
        (r"\left(42\right)", 42),
        (r"\textbf{42}", 42),
        (r"\color{blue}{42}", 42),
        (r"**$42$**.", 42),
        (r"\$1,250", 1250),
        (r"-\$5", -5),
        ("2^{10}", 1024),
        ("2^10", 1024),
        ("10^-2", Fraction(1, 100)),
        ("7×10²", 700),
        ("-2^2", -4),
        ("(-2)^2", 4),
        ("2+3*4-1", 13),
        ("12/2/3", 2),
        ("5!", 120),
        (r"\binom{5}{2}", 10),
    ],
)
def test_numbers(source: str, value: Fraction | int):
    assert parse(source) == Number(Fraction(value))


@pytest.mark.parametrize("source", ["45%", r"45\%", r"45 \%", "45 percent", r"45\text{ percent}", "45％"])
def test_percent(source: str):
    assert parse(source) == Number(Fraction(45, 100), is_percent=True)


@pytest.mark.parametrize(
    "source",
    [
        "3,5", "1,23", "1,2345", "(2,500)", r"\left(3,100\right)", r"\{2,500\}", "1 234", "4 10/3", "2 0/3", "2 3/3",
        "10–20", "1 or 2", "x", "5x", "x=5", "2(3)", "--5", "5-", "1/0", r"\frac{0}{0}", "0^0", "0^{-1}", "2^{1/2}",
        "2^3^2", "9**9**9", "(4", "4)", "{4", "(-1)!", "1.2.3", "0.333...", "50+10%", r"\frac{1}", r"\frac1", "1e",
        "5%%", r"\binom{2}{5}", "O", "٣٧", "NaN", "inf", "0x10", "1_000", "", "1000000000!", "10^{100000}", "1e999999",
        r"2^{2^{2^{2^{2^{2}}}}}", "((" * 40 + "1" + "))" * 40, "9" * 4097,
    ],
)  # fmt: skip
def test_not_numbers(source: str):
    assert not isinstance(parse(source), Number)


def test_sums_need_no_rounding():
    assert parse("0.1+0.2") == parse("0.3")
    assert parse("99999999999999999") != parse("100000000000000000")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("(2, 4)", "(2,4)"),
        (r"\text{a regular hexagon}", "a  regular hexagon"),
        (r"\left( x+1 \right)", "(x + 1)"),
        ("{{x}}", "x"),
        ("（1，2）", "(1,2)"),
    ],
)
def test_text_has_one_spelling(left: str, right: str):
    assert isinstance(parse(left), Text)
    assert parse(left) == parse(right)


@pytest.mark.parametrize(("left", "right"), [("a part", "apart"), ("1 2", "12"), ("x^{1}2", "x^{12}"), ("AB", "ab")])
def test_different_texts_stay_different(left: str, right: str):
    assert parse(left) != parse(right)


@pytest.mark.parametrize("source", ["", "  ", "$$", r"\text{}", r"\boxed{}", "{}", "​"])
def test_nothing_visible_is_no_value(source: str):
    assert parse(source) is None


# --- comparison -------------------------------------------------------------------------------------------------


def test_percent_policy():
    lenient, strict = ComparisonSettings(), ComparisonSettings(bare_number_as_percent=False)
    sixty, sixty_percent, fraction = Number(Fraction(60)), Number(Fraction(3, 5), True), Number(Fraction(3, 5))
    assert is_equal(fraction, sixty_percent, strict)
    assert is_equal(sixty, sixty_percent, lenient)
    assert not is_equal(sixty, sixty_percent, strict)
    assert not is_equal(sixty, fraction, lenient)


numbers = st.builds(Number, st.fractions(max_denominator=10**6), st.booleans())
values = st.one_of(numbers, st.sampled_from(["x", "1 or 2", "(1,2)"]).map(Text))


@given(values, values, st.builds(ComparisonSettings, bare_number_as_percent=st.booleans()))
def test_comparison_is_symmetric(left: Number | Text, right: Number | Text, settings: ComparisonSettings):
    assert is_equal(left, right, settings) == is_equal(right, left, settings)
    assert is_equal(left, left, settings)


@given(numbers)
def test_what_is_rendered_reads_back(value: Number):
    assert parse(render(value)) == value


@given(st.integers(min_value=-(10**60), max_value=10**60))
def test_every_spelling_of_an_integer_is_that_integer(value: int):
    for text in (f"{value}", f"{value:,}", f"${value}$", f"{value}.0", f"\\boxed{{{value}}}", f"{value}."):
        assert parse(text) == Number(Fraction(value))
    assert parse(f"{value + 1}") != Number(Fraction(value))


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**9))
def test_every_spelling_of_a_fraction_is_that_fraction(top: int, bottom: int):
    for text in (f"{top}/{bottom}", f"\\frac{{{top}}}{{{bottom}}}", f"\\frac{{{2 * top}}}{{{2 * bottom}}}"):
        assert parse(text) == Number(Fraction(top, bottom))


# --- the verifier -----------------------------------------------------------------------------------------------

blanks = st.text(" \t\n\r\u00a0\u3000", max_size=4)


@given(blanks, blanks, blanks, blanks, st.sampled_from(["42", r"\frac{84}{2}", "41", "x+1", "6 * 7", "1 or 42"]))
def test_whitespace_never_changes_a_verdict(a: str, b: str, c: str, d: str, answer: str):
    plain = judge(f"<think>s</think><answer>{answer}</answer>", "42")
    spread = judge(f"{a}<think>s</think>{b}<answer>{c}{answer}{d}</answer>{a}", "42")
    assert spread.status is plain.status


@given(blanks, blanks)
def test_blanks_inside_an_expression_do_not_matter(a: str, b: str):
    assert judge(f"<answer>\\frac{a}{{{b}3{a}}}{b}{{{a}4{b}}}{a}+{b}2</answer>", "2.75").status is Status.CORRECT


def test_the_same_value_twice_is_one_answer_and_two_values_are_a_hedge():
    assert judge(r"\boxed{0.5}, that is \boxed{\frac12}", "1/2", carrier="box").status is Status.CORRECT
    for gold in ("4", "5"):
        verdict = judge(r"\boxed{4} or \boxed{5}", gold, carrier="box")
        assert (verdict.status, verdict.reward) == (Status.WRONG, 0.0)
        assert "different answers offered: 4 and 5" in verdict.evidence
    assert judge("<answer>4</answer><answer>5</answer>", "5").status is Status.WRONG


@pytest.mark.parametrize("gold", ["", "  ", r"\boxed{}", r"\text{}", "nan", "####", "$$"])
def test_an_unusable_gold_pays_nobody_and_blames_nobody(gold: str):
    for text in ("<answer></answer>", f"<answer>{gold}</answer>", "<answer>5</answer>", ""):
        verdict = judge(text, gold)
        assert (verdict.status, verdict.reward, verdict.cause) == (Status.NO_VERDICT, None, "bad_gold")


def test_a_gold_may_be_a_worked_solution():
    assert judge("<answer>72</answer>", "48/2=24\n48+24=72\n#### 72").status is Status.CORRECT


def test_the_evidence_names_both_sides_in_one_line():
    verdict = judge("<answer>0.25</answer>", "1/2")
    assert verdict.evidence == "0.25 is not the gold 1/2"
    hostile = judge("<answer>a\n\x1b[31m\ud800" + "z" * 9999 + "</answer>", "1/2")
    assert hostile.evidence.isprintable()
    assert len(hostile.evidence) < 400


HOSTILE = {
    "nested braces": "\\boxed{" + "{" * 20_000 + "42" + "}" * 20_001,
    "nested fractions": "\\boxed{" + "\\frac{1}{" * 400 + "1" + "}" * 401,
    "nested parentheses": "\\boxed{" + "\\left(" * 300 + "8" + "\\right)" * 300 + "}",
    "many terms": "\\boxed{" + "1+" * 50_000 + "1}",
    "open boxes": "\\boxed{" * 50_000,
    "nested boxes": "\\boxed{" * 30_000 + "12" + "}" * 30_000,
    "many boxes": "\\boxed{1} " * 30_000,
    "bare boxes": "\\boxed " * 50_000,
    "styles": "\\boxed{" + "\\mathbf" * 500 + "1}",
    "backslashes": "\\" * 200_000 + "\\boxed{1}",
    "blanks": " " * 300_000 + "\\boxed{1}",
    "digits": "\\boxed{" + "9" * 100_000 + "}",
    "most digits": "\\boxed{" + "9" * 4_096 + "}",
    "commas": "\\boxed{" + "1," * 2_000 + "1}",
    "thousands": "\\boxed{" + "1" + ",000" * 1_000 + "0}",
    "exponent": "\\boxed{1e999999999}",
    "big exponent": "\\boxed{1e4096}",
    "tower": "\\boxed{9^{9^{9^{9}}}}",
    "costly powers": "\\boxed{" + "+".join(["3^{8000}/7^{4000}"] * 200) + "}",
    "factorials": "\\boxed{" + "*".join(["1500!/1499!"] * 300) + "}",
    "binomials": "\\boxed{" + "+".join(["\\binom{1500}{750}"] * 200) + "}",
    "repeated factorial": "\\boxed{3" + "!" * 3_000 + "}",
    "surrogates and NUL": "\\boxed{\ud800\x00\udfff}",
    "code": "\\boxed{__import__('os').abort()}",
    "dollars": "$" * 300_000 + "42",
    "hashes": "#" * 300_000,
    "hash lines": "####\n" * 50_000,
    "tags": "<answer>" * 50_000,
    "closed tags": "<answer>1</answer>" * 30_000,
    "thoughts": "<think></think>" * 50_000,
    "markers": "answer is " * 50_000,
    "marker blanks": ("answer" + " " * 500) * 500,
    "one line": "a" * 1_000_000,
}


@pytest.mark.parametrize("carrier", ["tag", "box", "hash", "last_line"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_gets_a_fast_verdict(name: str, carrier: str):
    started = time.process_time()
    verdict = judge(HOSTILE[name], "5", carrier=carrier)
    assert verdict.status is Status.WRONG
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_gold_gets_a_fast_verdict(name: str):
    started = time.process_time()
    assert judge("<answer>5</answer>", HOSTILE[name]).status is not Status.CORRECT
    assert time.process_time() - started < 1.0


math_soup = st.lists(
    st.sampled_from(
        [*"0123456789+-*/^!%(){}$\\,.=x ", "\\frac", "\\boxed", "\\binom", "<answer>", "</answer>", "<think>"]
    )
).map("".join)


@given(
    st.one_of(st.text(), math_soup),
    st.one_of(st.text(max_size=20), math_soup),
    st.sampled_from(["tag", "box", "hash", "last_line"]),
)
@example("<answer>" + "1/3+" * 900 + "1</answer>", "1", "tag")
def test_any_text_gets_a_verdict(text: str, gold: str, carrier: str):
    verdict = judge(text, gold, carrier=carrier)
    assert (verdict.reward is None) == (verdict.status is Status.NO_VERDICT)


@given(math_soup)
def test_parsing_is_idempotent(source: str):
    value = parse(source)
    if value is not None:
        assert parse(render(value)) == value
