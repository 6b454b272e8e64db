"""Extraction: one declared place, after closed thinking, nowhere else."""

import time
from typing import Any

import pytest

from oncurve.verify.answers import candidates, extract
from oncurve.verify.answers.typography import make_plain


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
        ("box", r"Case 1: \boxed{3}. Case 2: \boxed{7}.", ("3", "7")),
        ("box", r"Put it in \boxed{}. \boxed{7}", ("7",)),
        ("hash", "2+2=4\n#### 4", ("4",)),
        ("hash", "#### Step 1\nadd the two numbers\n#### 4\n", ("4",)),
        ("hash", "#### 3\n#### 4", ("3", "4")),
        ("last_line", "so\n42\n\n", ("42",)),
        ("last_line", "the answer is 3\nThe final answer is: 42", ("42",)),
        ("last_line", "ANSWER = 42", ("42",)),
        ("text", "The answer is 3. Then I saw a mistake. The answer is 42.", ("42",)),
        ("text", "The answer is 3. The answer is 42.", ("3", "42")),
        ("text", "Final Answer: the answer is 42. I hope it is correct.", ("42",)),
        ("text", "所以答案是 42。", ("42",)),
        ("text", "故选：C。", ("C",)),
        ("text", "nothing marked\nbut 42", ("but 42",)),
        ("json", 'so {"answer": 1} and {"answer": "x", "n": {"answer": 2}}', ("1", "x")),  # outermost objects, all
        ("json", '{"answer": [1, [2, true]]}', ("1, 2, true",)),
        ("json", '{"answer": 0.10}', ("0.10",)),
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
        ("tag", "<answer>your answer here</answer>", "placeholder"),
        ("tag", "<answer>4</answer> Wait, that is wrong.", "taken back: "),
        ("box", "4", "no \\boxed"),
        ("box", r"\boxedfoo{4}", "no \\boxed"),
        ("box", r"\boxed{4", "never closed"),
        ("box", r"\boxed{\boxed{4}", "never closed"),
        ("box", r"\boxed{4} \boxed{", "never closed"),
        ("box", r"\boxed{4}. The answer again is \boxed{}", "empty"),
        ("box", r"\boxed{4}. Format: \boxed{answer}", "placeholder"),
        ("box", r"\boxed{\ldots}", "placeholder"),
        ("box", r"\boxed", "empty"),
        ("box", r"\boxed 42", "empty"),  # LaTeX would box only the 4
        ("box", r"\boxed{4}. I made a mistake.", "taken back"),
        ("box", r"\boxed{4}。不对", "taken back"),
        ("hash", "4", "no ####"),
        ("hash", "####", "empty"),
        ("last_line", " \n\n", "empty"),
        ("last_line", "", "empty"),
        ("text", "", "no sentence"),
        ("text", "```\n```", "no sentence"),
        ("json", '{"answer": 1, "answer": 2}', "exactly one"),
        ("json", '{"answer": null}', "exactly one"),
        ("json", '{"answer": 1', "exactly one"),
        ("json", '{"result": 1}', "exactly one"),
    ],
)
def test_problems(carrier: Any, text: str, problem: str):
    extraction = extract(text, carrier)
    assert extraction.offers == ()
    assert problem in extraction.problem


def test_a_retraction_that_is_confirmed_after_all_is_none():
    assert extract(r"\boxed{4}. Wait, let me check: 2+2=4. Yes, it is correct.", "box").offers == ("4",)


@pytest.mark.parametrize(
    "text",
    [
        ("The value is " + "1" * 1900 + " b 5. ") * 50,  # 49 times the same statement before the last
        "x = " + "1,2." * 20_000 + " or 3",
        "⁰" * 4000,
    ],
    ids=["sentences", "digits", "raised"],
)
def test_hostile_prose_is_read_in_bounded_time(text: str):
    spent = []
    for _attempt in range(3):
        started = time.process_time()
        for part in extract(text, "text").offers:
            make_plain(part)
        spent.append(time.process_time() - started)
    assert min(spent) < 0.5


def test_the_names_of_the_places_are_settings():
    text = "<plan><result>1</result></plan><result>2</result><answer>3</answer>"
    assert extract(text, "tag", tag="result", thinking_tag="plan").offers == ("2",)
    assert extract('{"result": 2, "answer": 3}', "json", field="result").offers == ("2",)


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        (r"\boxed{1} and \boxed{2}", True),
        (r"\boxed{1}, \boxed{2}", True),
        (r"\boxed{1} papers and \boxed{2} bins", True),
        (r"\boxed{1}\boxed{2}", True),
        (r"\boxed{1} no no no no no \boxed{2}", False),
    ],
)
def test_places_are_joined_by_a_comma_or_a_word(text: str, joined: bool):
    assert extract(text, "box").is_joined is joined


@pytest.mark.parametrize(
    ("sentence", "first"),
    [
        ("Thus, the count is **318**.", "318"),
        ("Therefore $x \\geq 5$ is the solution.", "$x \\geq 5$"),
        ("The answer is not 42, it is 41.", "41"),
        ("Final Answer: Jane began 3 hours ago.", "Jane began 3 hours ago"),
    ],
)
def test_a_sentence_names_its_value(sentence: str, first: str):
    assert candidates(sentence)[0] == first


@pytest.mark.parametrize("sentence", ["The answer is not 42", "答案不是12", "it is 4 or 5", "maybe 5", "it could be 5"])
def test_a_denial_or_a_hedge_names_none(sentence: str):
    assert not {"42", "12", "4", "5"} & set(candidates(sentence))
