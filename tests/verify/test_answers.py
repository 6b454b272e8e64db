"""The answer verifier on known cases: right answers are accepted, every other text is not."""

import json
from pathlib import Path
from typing import Any

import pytest

from oncurve.types import DataError, Status, Task
from oncurve.verify import AnswerSettings, AnswerVerifier, Item, check_golds
from oncurve.verify.answers.cases import judge_cases
from oncurve.verify.answers.gold import read_gold

DATA = Path(__file__).parent / "data"


def load(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


CASES, PAIRS, CARRIERS = load("math_cases.jsonl"), load("math_pairs.jsonl"), load("math_carriers.jsonl")
HOSTILE = load("math_hostile.jsonl")


def judge(text: str, gold: str, meta: dict[str, Any] | None = None, prompt: str = "p", **settings: Any):
    task = Task(id="t", prompt=prompt, gold=gold, kind="k", verifier="answer", meta=meta or {})
    return AnswerVerifier(AnswerSettings(**settings)).judge([Item(task=task, text=text)])[0]


def text_of(case: dict[str, Any]) -> str:
    return case["text"] if "text" in case else "".join(part * times for part, times in case["parts"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}:{case['why']}"[:60])
def test_known_cases(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    verdict = judge(text_of(case), case["gold"], carrier=case["carrier"])
    if case.get("policy") != "any_verdict_but_fast":
        assert (verdict.status is Status.CORRECT) == case["correct"], verdict.evidence
    if case["gold"].strip(" ") not in ("", "\\boxed{}"):
        assert verdict.status is not Status.NO_VERDICT, verdict.evidence
    assert list(tmp_path.iterdir()) == []  # nothing was executed


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair['kind']}:{pair['gold']}={pair['answer']}"[:70])
def test_pairs_of_gold_and_answer(pair: dict[str, Any]):
    verdict = judge(f"So the answer is $\\boxed{{{pair['answer']}}}$.", pair["gold"], carrier="box")
    assert verdict.status is (Status.CORRECT if pair["correct"] else Status.WRONG), verdict.evidence


@pytest.mark.parametrize("kind", sorted({row["kind"] for row in HOSTILE}))
def test_hostile_pairs_in_a_box_and_in_a_tag(kind: str):
    surprises = []
    for row in (row for row in HOSTILE if row["kind"] == kind):
        texts = {"box": f"So it is $\\boxed{{{row['answer']}}}$.", "tag": f"<answer>{row['answer']}</answer>"}
        for carrier, text in texts.items():
            verdict = judge(text, row["gold"], carrier=carrier)
            if verdict.status is not (Status.CORRECT if row["correct"] else Status.WRONG):
                surprises.append((carrier, row["gold"], row["answer"], verdict.evidence))
    assert surprises == []


@pytest.mark.parametrize("case", CARRIERS, ids=lambda case: f"{case['carrier']}:{case['text']}"[:70])
def test_carriers(case: dict[str, Any]):
    verdict = judge(case["text"], case["gold"], carrier=case["carrier"])
    assert verdict.status is (Status.CORRECT if case["correct"] else Status.WRONG), verdict.evidence


def test_every_gold_accepts_itself_in_every_carrier():
    golds = {pair["gold"] for pair in PAIRS} | {case["gold"] for case in CASES if case["kind"] != "gold_edge"}
    tasks = [Task(id=gold, prompt="p", gold=gold, kind="k", verifier="answer") for gold in sorted(golds)]
    assert check_golds(tasks) == []
    for carrier in ("box", "hash", "json"):
        verifier = AnswerVerifier(AnswerSettings(carrier=carrier))
        items = [Item(task=task, text=verifier.state_gold(task)) for task in tasks if "\n" not in task.gold]
        refused = [v.evidence for v in verifier.judge(items) if v.status is not Status.CORRECT]
        assert refused == []


# --- the verifier ---


def test_the_same_value_twice_is_one_answer_and_two_values_are_a_hedge():
    assert judge(r"\boxed{0.5}, that is \boxed{\frac12}", "1/2", carrier="box").status is Status.CORRECT
    for gold in ("4", "5"):
        verdict = judge(r"\boxed{4} or \boxed{5}", gold, carrier="box")
        assert (verdict.status, verdict.reward) == (Status.WRONG, 0.0)
        assert "different answers offered: 4 and 5" in verdict.evidence


def test_two_places_together_state_a_gold_of_two_values_when_they_are_joined():
    assert judge(r"\boxed{4} and \boxed{5}", "4, 5", carrier="box").status is Status.CORRECT
    assert judge(r"\boxed{4} no no no no no \boxed{5}", "4, 5", carrier="box").status is Status.WRONG
    assert judge(r"\boxed{4} and \boxed{5}", "5", carrier="box").status is Status.WRONG


@pytest.mark.parametrize("gold", ["", "  ", r"\boxed{}", r"\text{}", "nan", "####", "$$"])
def test_an_unusable_gold_pays_nobody_and_blames_nobody(gold: str):
    for text in ("<answer></answer>", f"<answer>{gold}</answer>", "<answer>5</answer>", ""):
        verdict = judge(text, gold)
        assert (verdict.status, verdict.reward, verdict.cause) == (Status.NO_VERDICT, None, "bad_gold")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("48/2=24\n48+24=72\n#### 72", "72"),
        (r"\boxed{72}", "72"),
        (r"So $x=\boxed{1}$ and $y=\boxed{2}$.", "1,2"),
        (r"First \boxed{5} apples. In total there are \boxed{72}.", "72"),
        ("$72$", "72"),
        (r"72\text{ (approx.)}", "72"),
        ("word " * 30 + "The final answer is 72. I hope it is correct.", "72"),
    ],
)
def test_golds_in_the_shapes_of_data_sets(gold: str, answer: str):
    assert judge(f"<answer>{answer}</answer>", gold).status is Status.CORRECT
    assert judge("<answer>71</answer>", gold).status is Status.WRONG


def test_a_copy_of_the_prompt_is_no_answer():
    prompt = "Give the result as in: <answer>42</answer>. What is 6*7?"
    assert judge(prompt, "42", prompt=prompt).status is Status.WRONG
    assert judge(prompt + " <answer>42</answer>", "42", prompt=prompt).status is Status.CORRECT


def test_the_evidence_names_both_sides_in_one_line():
    verdict = judge("<answer>0.25</answer>", "1/2")
    assert verdict.evidence == "0.25 is not the gold 1/2"
    hostile = judge("<answer>a\n\x1b[31m\ud800" + "z" * 9999 + "</answer>", "1/2")
    assert hostile.evidence.isprintable()
    assert len(hostile.evidence) < 400


def test_a_task_overrides_the_comparison():
    assert judge("<answer>3.15</answer>", "3.14").status is Status.WRONG
    assert judge("<answer>3.15</answer>", "3.14", {"comparison": {"absolute_tolerance": 0.02}}).status is Status.CORRECT
    with pytest.raises(DataError, match=r"task t: meta\.comparison"):
        judge("<answer>3.15</answer>", "3.14", {"comparison": {"tolerance": 0.02}})


def test_cases_come_back_in_order_with_everything_a_table_needs():
    rows = [
        {"id": "a", "gold": "4", "completion": r"\boxed{4}"},
        {"gold": "4", "completion_parts": [["#", 4], [" 5", 1]], "carrier": "hash"},
        {"id": "c", "gold": "", "completion": "x"},
        {"id": "d", "gold": "2", "completion": r"\boxed{2.1}", "comparison": {"relative_tolerance": 0.1}},
    ]
    results = list(judge_cases(rows))
    assert [result["id"] for result in results] == ["a", "row-2", "c", "d"]
    assert [result["status"] for result in results] == ["correct", "wrong", "no_verdict", "correct"]
    assert [result["reward"] for result in results] == [1.0, 0.0, None, 1.0]
    assert [result["cause"] for result in results] == [None, None, "bad_gold", None]
    assert all(result["seconds"] < 1 and result["evidence"] for result in results)
    with pytest.raises(ValueError, match="case z needs gold"):
        list(judge_cases([{"id": "z", "completion": "4"}]))


@pytest.mark.parametrize("gold", ["\\frac{1}{", "[1,2", "1/0", "\\frac{3}{0}"])
def test_broken_mathematics_is_no_gold(gold: str):
    assert read_gold(gold) is None


@pytest.mark.parametrize("gold", ["[1,2)", "a) Paris", "0/5", "A)", "\\text{yes}", "1.2.3.4"])
def test_what_only_looks_broken_is_a_gold(gold: str):
    assert read_gold(gold) is not None
