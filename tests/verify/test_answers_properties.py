"""What holds for every text: a verdict, quickly; the gold itself is right, its negation is not; spelling is free."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from oncurve.types import Status, Task
from oncurve.verify import AnswerSettings, AnswerVerifier, Item
from oncurve.verify.answers import Comparer, ComparisonSettings, extract, parse
from oncurve.verify.answers.vocabulary import word_set


def judge(text: str, gold: str, carrier: str = "tag"):
    task = Task(id="t", prompt="p", gold=gold, kind="k", verifier="answer")
    return AnswerVerifier(AnswerSettings(carrier=carrier)).judge([Item(task=task, text=text)])[0]  # type: ignore[arg-type]


def equal(answer: str, gold: str) -> bool:
    ours, theirs = parse(answer), parse(gold)
    return ours is not None and theirs is not None and Comparer(ComparisonSettings()).is_equal(ours, theirs)


CARRIERS = ["tag", "box", "hash", "last_line", "text", "json"]
blanks = st.text(" \t\n\r\u00a0\u3000", max_size=4)


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Formulas of the grammar, small enough to be decided."""
    leaf = st.one_of(st.integers(-99, 99).map(lambda n: f"({n})"), st.sampled_from(["x", "y", r"\pi", "0.5"]))
    forms = [r"\frac{%s}{%s}", "(%s+%s)", "(%s-%s)", r"%s \cdot %s", r"\sqrt{(%s)^2+(%s)^2+1}"]
    tree = st.recursive(
        leaf, lambda inner: st.tuples(st.sampled_from(forms), inner, inner).map(lambda t: t[0] % t[1:]), max_leaves=5
    )
    return draw(tree)


@settings(max_examples=60)
@given(expressions())
def test_a_formula_equals_itself_and_not_itself_plus_one(formula: str):
    assert equal(formula, formula)
    twin = formula.replace("+", " + ")
    if equal(f"({twin})+1-1", formula):  # undefined formulas (a division by zero) equal nothing but their text
        assert not equal(f"({formula})+1", formula)


@settings(max_examples=60)
@given(expressions())
def test_the_negation_is_rejected(formula: str):
    assume(not equal(f"2({formula})", formula))  # 0 is its own negation
    assert not equal(f"-({formula})", formula)


@given(st.integers(min_value=-(10**60), max_value=10**60))
def test_every_spelling_of_an_integer_is_that_integer(value: int):
    for text in (
        f"{value}",
        f"{value:,}",
        f"${value}$",
        f"{value}.0",
        f"\\boxed{{{value}}}",
        f"{value}.",
        f"x={value}",
    ):
        assert equal(text, str(value))
        assert not equal(text, str(value + 1))


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**9))
def test_every_spelling_of_a_fraction_is_that_fraction(top: int, bottom: int):
    gold = f"{top}/{bottom}"
    for text in (gold, f"\\frac{{{top}}}{{{bottom}}}", f"\\frac{{{2 * top}}}{{{2 * bottom}}}", f"-{-top}/{bottom}"):
        if "--" not in text:
            assert equal(text, gold)
    assert not equal(f"{top + 1}/{bottom}", gold)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=6), st.randoms())
def test_sets_have_no_order_and_tuples_do(members: list[int], random):
    shuffled = members.copy()
    random.shuffle(shuffled)
    gold, other = ",".join(map(str, members)), ",".join(map(str, shuffled))
    assert equal(f"\\{{{other}\\}}", f"\\{{{gold}\\}}")
    assert equal(f"({other})", f"({gold})") is (members == shuffled)
    assert not equal(f"\\{{{gold},51\\}}", f"\\{{{gold}\\}}")


@given(st.integers(-99, 99), st.integers(1, 50), st.booleans(), st.booleans())
def test_an_interval_is_the_inequality_with_the_same_ends(low: int, length: int, low_closed: bool, high_closed: bool):
    high = low + length
    interval = f"{'[' if low_closed else '('}{low},{high}{']' if high_closed else ')'}"
    chain = f"{low} {'≤' if low_closed else '<'} x {'≤' if high_closed else '<'} {high}"
    split = f"x {'≤' if high_closed else '<'} {high} and x {'≥' if low_closed else '>'} {low}"
    assert equal(chain, interval)
    assert equal(split, interval)
    assert not equal(chain, f"[{low},{high + 1}]")
    assert equal(f"({low},{low + length})", f"[{low},{high}]") is False


@given(blanks, blanks, blanks, blanks, st.sampled_from(["42", r"\frac{84}{2}", "41", "x+1", "6 * 7", "1 or 42"]))
def test_whitespace_never_changes_a_verdict(a: str, b: str, c: str, d: str, answer: str):
    plain = judge(f"<think>s</think><answer>{answer}</answer>", "42")
    spread = judge(f"{a}<think>s</think>{b}<answer>{c}{answer}{d}</answer>{a}", "42")
    assert spread.status is plain.status


WRAPPERS = ["%s", "$%s$", "$$%s$$", r"\(%s\)", r"\[%s\]", "**%s**", "`%s`", "{%s}", r"\boxed{%s}", "%s.", r"\text{ }%s"]


@given(st.sampled_from(WRAPPERS), st.sampled_from(["42", "41", r"\frac12", "(1,2)", r"\sqrt2", "x+1", r"\{1,2\}"]))
def test_wrappers_never_change_a_verdict(wrapper: str, answer: str):
    for gold in ("42", "(1,2)", r"\{2,1\}", "0.5", "1+x", r"\frac{2}{\sqrt2}"):
        wrapped = judge(f"<answer>{wrapper % answer}</answer>", gold)
        assert wrapped.status is judge(f"<answer>{answer}</answer>", gold).status


PIECES = word_set(
    r"\frac \boxed \binom \sqrt \sin \log \{ \} \cup \in \pm \pi \infty \le \ne \text{ \\ dx cm \mathbb{R} \equiv "
    r"\pmod ^\circ \ldots \sum_{k=1}^ \int_0^1 \begin{pmatrix} \end{pmatrix} 3:4 PM _2 f( #### 答案是 不 <answer> "
    r"</answer> <think>"
)
math_soup = st.lists(
    st.sampled_from(
        [*"0123456789+-*/^!%(){}[]|$\\,.;:=<>_x &ei", *sorted(PIECES), " or ", " and ", " cm", '{"answer":']
    )
).map("".join)


@settings(max_examples=250, deadline=None)
@given(st.one_of(st.text(), math_soup), st.one_of(st.text(max_size=20), math_soup), st.sampled_from(CARRIERS))
@example("<answer>" + "1/3+" * 900 + "1</answer>", "1", "tag")
def test_any_text_gets_a_verdict(text: str, gold: str, carrier: str):
    started = time.process_time()
    verdict = judge(text, gold, carrier)
    assert (verdict.reward is None) == (verdict.status is Status.NO_VERDICT)
    assert verdict.cause in (None, "bad_gold")
    assert time.process_time() - started < 1.0


@settings(max_examples=150, deadline=None)
@given(math_soup)
def test_any_gold_accepts_its_own_text(soup: str):
    answer = parse(soup)
    if answer is not None:
        assert Comparer(ComparisonSettings()).is_equal(answer, answer) or answer.node[0] == "num"


KNOWN = [json.loads(line) for line in (Path(__file__).parent / "data" / "math_pairs.jsonl").read_text().splitlines()]
texts = st.sampled_from(sorted({pair[side] for pair in KNOWN for side in ("gold", "answer")}))


@settings(max_examples=400, deadline=None)
@given(texts, texts)
def test_any_two_answers_can_be_compared(answer: str, gold: str):
    if equal(answer, gold):
        for pair in KNOWN:
            if pair["gold"] == gold and pair["answer"] == answer:
                assert pair["correct"]


LONG = {
    "nested braces": "\\boxed{" + "{" * 20_000 + "42" + "}" * 20_001,
    "nested fractions": "\\boxed{" + "\\frac{1}{" * 400 + "1" + "}" * 401,
    "nested parentheses": "\\boxed{" + "\\left(" * 300 + "8" + "\\right)" * 300 + "}",
    "many terms": "\\boxed{" + "1+" * 50_000 + "1}",
    "open boxes": "\\boxed{" * 50_000,
    "nested boxes": "\\boxed{" * 30_000 + "12" + "}" * 30_000,
    "many boxes": "\\boxed{1} " * 30_000,
    "different boxes": "".join(f"\\boxed{{{n}}} " for n in range(20_000)),
    "bare boxes": "\\boxed " * 50_000,
    "styles": "\\boxed{" + "\\mathbf" * 500 + "1}",
    "backslashes": "\\" * 200_000 + "\\boxed{1}",
    "blanks": " " * 300_000 + "\\boxed{1}",
    "digits": "\\boxed{" + "9" * 100_000 + "}",
    "most digits": "\\boxed{" + "9" * 4_096 + "}",
    "commas": "\\boxed{" + "1," * 2_000 + "1}",
    "thousands": "\\boxed{" + "1" + ",000" * 1_000 + "0}",
    "big exponent": "\\boxed{1e4096}",
    "costly powers": "\\boxed{" + "+".join(["3^{8000}/7^{4000}"] * 200) + "}",
    "factorials": "\\boxed{" + "*".join(["1500!/1499!"] * 300) + "}",
    "surrogates and NUL": "\\boxed{\ud800\x00\udfff}",
    "dollars": "$" * 300_000 + "42",
    "hashes": "#" * 300_000,
    "hash lines": "####\n" * 50_000,
    "tags": "<answer>" * 50_000,
    "closed tags": "<answer>1</answer>" * 30_000,
    "thoughts": "<think></think>" * 50_000,
    "markers": "answer is " * 50_000,
    "marker blanks": ("answer" + " " * 500) * 500,
    "sentences": "The answer is 1. " * 10_000,
    "denials": "not " * 100_000 + "5",
    "objects": "{" * 100_000,
    "open objects": '{"answer":' * 30_000,
    "waits": "\\boxed{5} " + "wait " * 50_000,
    "one line": "a" * 1_000_000,
}


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("name", LONG)
def test_long_text_gets_a_fast_verdict(name: str, carrier: str):
    started = time.process_time()
    verdict = judge(LONG[name], "7", carrier=carrier)
    assert verdict.status is Status.WRONG
    assert time.process_time() - started < 1.5


@pytest.mark.parametrize("name", LONG)
def test_a_long_gold_gets_a_fast_verdict(name: str):
    started = time.process_time()
    assert judge("<answer>7</answer>", LONG[name]).status is not Status.CORRECT
    assert time.process_time() - started < 1.5


box_parts = st.sampled_from(
    ["\\boxed{", "\\fbox{", "\\boxed", "{", "}", "\\", "\\frac", "\\{", "7", "x", " ", "$", "."]
)


@given(st.lists(box_parts, max_size=12).map("".join))
@example("\\\\boxed{7}")
@example("{\\boxed{\\frac{1}{2}}}}")
@example("\\boxed{\\{7\\}}")
def test_a_plain_box_is_read_as_every_box_is(text: str):
    # The word in front sends the text past the short cut for texts with one box.
    assert extract(text, "box") == extract("box " + text, "box")


@given(st.integers(-20, 20), st.integers(-20, 20))
def test_a_fraction_equals_itself_in_both_spellings_unless_it_is_over_nothing(top: int, bottom: int):
    assert equal(f"\\frac{{{top}}}{{{bottom}}}", f"{top}/{bottom}") is (bottom != 0)
