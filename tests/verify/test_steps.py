"""Steps: what counts as one, which are right, and how often the arithmetic checker errs."""

import re
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncurve.types import DataError, Status, Task
from oncurve.verify import Item
from oncurve.verify.registry import build_verifier
from oncurve.verify.steps import (
    ArithmeticChecker,
    ArithmeticSettings,
    ArithmeticVerifier,
    CheckedStep,
    LabelledRow,
    StepStatus,
    aggregate_steps,
    error_rates,
    labelled_rows,
)

RIGHT, WRONG, UNKNOWN = StepStatus.RIGHT, StepStatus.WRONG, StepStatus.UNKNOWN
PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "steps.md"
TASK = Task(id="t", prompt="p", gold="g", kind="k", verifier="arithmetic_steps")


def item(text: str) -> Item:
    return Item(task=TASK, text=text)


def steps(trace: str, **options: object) -> list[tuple[str, StepStatus]]:
    checker = ArithmeticChecker(ArithmeticSettings.model_validate(options))
    return [(step.text, step.status) for step in checker.steps_of(f"<think>{trace}</think>")]


def checked(*statuses: StepStatus) -> list[CheckedStep]:
    return [CheckedStep(text=str(place), status=status) for place, status in enumerate(statuses)]


@pytest.mark.parametrize(
    ("statuses", "share", "first_wrong", "every"),
    [
        ((RIGHT, RIGHT, WRONG, RIGHT), 3 / 4, 2 / 4, 0.0),
        ((UNKNOWN, RIGHT, WRONG), 1 / 2, 1 / 2, 0.0),
        ((RIGHT, UNKNOWN), 1.0, 1.0, 0.0),  # unknown is never right
        ((RIGHT, RIGHT), 1.0, 1.0, 1.0),
        ((WRONG, RIGHT, RIGHT), 2 / 3, 0.0, 0.0),
        ((UNKNOWN, UNKNOWN), None, None, None),
        ((), None, None, None),
    ],
)
def test_aggregates_on_paper(statuses, share, first_wrong, every):
    found = [aggregate_steps(checked(*statuses), how) for how in ("share", "first_wrong", "all")]
    assert found == [share, first_wrong, every]


@given(st.lists(st.sampled_from([RIGHT, WRONG, UNKNOWN]), min_size=1))
def test_the_strict_aggregates_are_never_above_the_share(statuses: list[StepStatus]):
    share, first, every = (aggregate_steps(checked(*statuses), how) for how in ("share", "first_wrong", "all"))
    if share is None:
        assert first is None
        assert every is None
    else:
        assert 0 <= every <= first <= share <= 1


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ("4+5=9;9+2=11", [("4+5=9", RIGHT), ("9+2=11", RIGHT)]),
        ("4+5=9+2=11", [("4+5=9+2", WRONG), ("9+2=11", RIGHT)]),
        ("12 * 3 = 36 = 40 - 5", [("12*3=36", RIGHT), ("36=40-5", WRONG)]),
        ("8/(3-8/3)=24", [("8/(3-8/3)=24", RIGHT)]),  # 8 / (1/3)
        ("0.1+0.2=0.3", [("0.1+0.2=0.3", RIGHT)]),
        ("-2^2=-4, 2^-1=0.5", [("-2^2=-4", RIGHT), ("2^-1=0.5", RIGHT)]),
        ("2^3^2=512", [("2^3^2=512", RIGHT)]),
        ("7-2-1=4, 8/4/2=1", [("7-2-1=4", RIGHT), ("8/4/2=1", RIGHT)]),
        ("2+3*4=14, 2+3*4=20", [("2+3*4=14", RIGHT), ("2+3*4=20", WRONG)]),
        ("1/0=0", [("1/0=0", WRONG)]),
        ("1 1/2 = 3/2", [("1 1/2=3/2", RIGHT)]),
        ("20% * 50 = 10", [("20%*50=10", RIGHT)]),
        ("1,000 + 1 = 1001", [("1,000+1=1001", RIGHT)]),
        ("x + 3 = 5", [("+3=5", UNKNOWN)]),
        ("3 = 3, 4+5 = 4+5", []),
        ("4+5=9, 4 + 5 = 9", [("4+5=9", RIGHT)]),  # said twice, counted once
        ("4+5=10?", [("4+5=10", UNKNOWN)]),
        ("4+5=9? Yes, 4+5=9. Is 4+5=9?", [("4+5=9", RIGHT)]),  # asked, then claimed
        ("total = 12", []),
        ("the score is 12", []),
        ("4 = 7", [("4=7", WRONG)]),
        ("no numbers here", []),
    ],
)  # fmt: skip
def test_steps_of_a_trace(trace: str, expected: Sequence[tuple[str, StepStatus]]):
    assert steps(trace) == expected


@pytest.mark.parametrize(
    ("trace", "rounded", "exact"),
    [
        ("10/3=3.33", RIGHT, WRONG),
        ("10/3=3.3", WRONG, WRONG),  # one place is too few
        ("10/3=3.34", WRONG, WRONG),
        ("2/3=0.67", RIGHT, WRONG),
        ("2/3=0.66", WRONG, WRONG),  # cut, not rounded
        ("1/8=0.13", WRONG, WRONG),  # 0.125 is a finite decimal
        ("10/3≈3.3", RIGHT, RIGHT),
        ("10/3≈3.4", WRONG, WRONG),
        ("1234+0≈1200", RIGHT, RIGHT),  # within 50
        ("1251+0≈1200", WRONG, WRONG),
    ],
)
def test_rounding(trace: str, rounded: StepStatus, exact: StepStatus):
    assert [status for _, status in steps(trace)] == [rounded]
    assert [status for _, status in steps(trace, accept_rounded=False)] == [exact]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>1+1=2</think>2+2=5", ["1+1=2"]),
        ("1+1=2</think>2+2=5", ["1+1=2"]),  # the prompt opened the tag
        ("0+1=2<think>1+1=2", ["1+1=2"]),  # cut off
        ("1+1=2", []),
    ],
)
def test_only_the_trace_is_read(text: str, expected: list[str]):
    assert [step.text for step in ArithmeticChecker(ArithmeticSettings()).steps_of(text)] == expected
    whole = ArithmeticChecker(ArithmeticSettings(thinking_tag="")).steps_of("1+1=2</think>2+2=5")
    assert [step.text for step in whole] == ["1+1=2", "2+2=5"]


NUMBERS = st.fractions(min_value=-99, max_value=99, max_denominator=20)


@given(NUMBERS, NUMBERS, st.sampled_from("+-*/"), st.booleans())
@example(Fraction(3), Fraction(0), "/", True)
def test_the_status_is_that_of_exact_arithmetic(a: Fraction, b: Fraction, sign: str, is_true: bool):
    value = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else Fraction(0)}[sign]
    claimed = value if is_true else value + 1
    expected = RIGHT if is_true and (b or sign != "/") else WRONG
    assert [status for _, status in steps(f"({a}){sign}({b})=({claimed})")] == [expected]


@given(st.text(alphabet="0123456789+-*/^()=.,;%≈≠ \n!?x$\\{}fracis", max_size=120))
def test_no_text_is_too_odd(text: str):
    for _, status in steps(text):
        assert status in StepStatus


def test_steps_beyond_the_limit_are_not_checked():
    assert steps("1+1=2, 2+2=4, 3+3=7", max_steps=2) == [("1+1=2", RIGHT), ("2+2=4", RIGHT)]
    assert steps("1+1=2, 2+2=4, 3+3=7", max_chars=6) == [("1+1=2", RIGHT)]


@pytest.mark.parametrize(
    "trace",
    [
        "9^9^9^9=1", "2^999999=1", "(" * 5000 + "1" + ")" * 5000 + "=1", "1+" * 40_000 + "1=40001",
        "9" * 50_000 + "=1+1",
        "1=" * 40_000 + "2+2", "-" * 50_000 + "1=1*1", "__import__('os').system('true')=1+1", "2^-2^-2^-2^-2=1",
        "1^" * 3000 + "1=1", "\\frac{" * 20_000 + "=1+1", "1 is " * 20_000 + "=2*3", "(" * 50_000 + "=1",
    ],
)  # fmt: skip
def test_hostile_traces_cost_little_and_prove_nothing(trace: str):
    started = time.monotonic()
    assert RIGHT not in {status for _, status in steps(trace)}
    assert time.monotonic() - started < 10


def test_verdicts_say_that_they_are_fallible_and_name_the_first_wrong_step():
    verifier = ArithmeticVerifier(ArithmeticSettings())
    right, wrong, nothing = verifier.judge(
        [item("<think>4+5=9;9+2=11</think>"), item("<think>4+5=9;9+2=12;x+1=2</think>"), item("<think>hm</think>")]
    )
    assert (right.status, right.reward) == (Status.CORRECT, 1.0)
    assert (wrong.status, wrong.reward) == (Status.WRONG, 0.5)
    assert wrong.evidence == (
        "fallible arithmetic_steps check: 1 of 3 steps right, 1 unknown; first wrong: 9+2=12, the sides are 11 and 12"
    )
    assert (nothing.status, nothing.reward) == (Status.WRONG, 0.0)


def test_options_of_the_reward():
    silent = build_verifier("arithmetic_steps", {"without_steps": "no_verdict"})
    assert silent.judge([item("<think>hm</think>")])[0].cause == "no_steps"
    lenient = build_verifier("arithmetic_steps", {"correct_at": 0.5})
    assert lenient.judge([item("<think>1+1=2,1+1=3</think>")])[0].status is Status.CORRECT
    first = build_verifier("arithmetic_steps", {"aggregate": "first_wrong"})
    assert first.judge([item("<think>1+1=3,1+1=2</think>")])[0].reward == 0.0


def test_error_rates_are_those_of_the_labels():
    rows = [
        LabelledRow(id=name, item=item(f"<think>{text}</think>"), label=label)
        for name, text, label in [
            ("accepted", "1+1=2", WRONG), ("refused", "1+1=3", RIGHT), ("open", "x+1=2", RIGHT),
            ("fine", "1+1=2", RIGHT),
            ("open too", "x+1=2", WRONG), ("quiet", "hm", UNKNOWN), ("claimed", "2+2=4", UNKNOWN),
            ("denied", "2+2=5", UNKNOWN),
        ]
    ]  # fmt: skip
    rates = error_rates(ArithmeticChecker(ArithmeticSettings()), rows)
    assert (rates.num_right, rates.num_wrong, rates.num_unknown) == (3, 2, 3)
    assert rates.false_accepts == ("accepted", "claimed")
    assert rates.false_refusals == ("refused", "denied")
    assert rates.undecided == ("open", "open too")
    assert (rates.false_accept_rate, rates.false_refusal_rate, rates.undecided_rate) == (2 / 5, 2 / 6, 2 / 5)


def test_the_arithmetic_checker_keeps_its_error_rates():
    rates = error_rates(ArithmeticChecker(ArithmeticSettings()))
    assert rates.num_right + rates.num_wrong + rates.num_unknown == len(labelled_rows("arithmetic_steps")) >= 150
    assert not rates.failed
    assert rates.false_accept_rate <= 0.01
    assert rates.false_refusal_rate <= 0.03
    assert rates.undecided_rate <= 0.2


def test_the_page_states_the_error_rates():
    rates = error_rates(ArithmeticChecker(ArithmeticSettings()))
    not_right, not_wrong = rates.num_wrong + rates.num_unknown, rates.num_right + rates.num_unknown
    claiming = rates.num_right + rates.num_wrong
    row = (
        f"| `arithmetic_steps` | {len(rates.false_accepts)} of {not_right} "
        f"| {len(rates.false_refusals)} of {not_wrong} | {len(rates.undecided)} of {claiming} |"
    )
    assert row in PAGE.read_text(encoding="utf-8")


def test_the_page_is_true():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert "\n".join(blocks).count("assert") >= 2
    exec(compile("\n".join(blocks), str(PAGE), "exec"), {})


def test_labels_are_distinct_rows():
    rows = labelled_rows("arithmetic_steps")
    assert len({row.id for row in rows}) == len({row.item.text for row in rows}) == len(rows)
    with pytest.raises(DataError, match="no labelled rows come with"):
        labelled_rows("unheard_of")
