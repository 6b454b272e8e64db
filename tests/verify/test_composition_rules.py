"""Safety rules and resource limits as components and gates."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from oncurve.types import Status, Task
from oncurve.verify import Item, RewardSettings, Scorer
from oncurve.verify.rules import RulesSettings, RulesVerifier

TASK = Task(id="t", prompt="1+1=", gold="2", kind="sum", verifier="answer")


def judge(text: str, **settings: Any) -> tuple[Status, str]:
    (verdict,) = RulesVerifier(RulesSettings(**settings)).judge([Item(task=TASK, text=text)])
    return verdict.status, verdict.evidence


@pytest.mark.parametrize(
    "text", ["rm -rf /", "so: RM  -rf\n/ now", "ｒｍ -rf /", "r\u200bm -rf /", "<think>rm -rf /</think>2", "(rm -rf /)"]
)
def test_a_forbidden_text_is_found_in_every_dress(text: str):
    assert judge(text, forbid=("rm -rf /",)) == (Status.WRONG, "forbidden: rm -rf /")


def test_a_word_is_not_found_inside_another_unless_asked_for():
    assert judge("term, alarm", forbid=("rm",))[0] is Status.CORRECT
    assert judge("term, rm", forbid=("rm",))[0] is Status.WRONG
    assert judge("term", forbid=("rm",), as_words=False)[0] is Status.WRONG
    assert judge("rma", forbid=("rm",))[0] is Status.CORRECT
    assert judge("x-rm-x", forbid=("-rm-",))[0] is Status.WRONG  # a mark at the border ends a word itself


def test_what_is_demanded_must_stand_there():
    assert judge("Source: none", demand=("source:",))[0] is Status.CORRECT
    assert judge("none", demand=("source:",)) == (Status.WRONG, "missing: source:")


@given(st.text(), st.text())
def test_blanks_and_case_never_change_a_verdict(before: str, after: str):
    text = f"{before} Secret Key {after}"
    assert judge(text, forbid=("secret key",))[0] is Status.WRONG


@pytest.mark.parametrize(
    ("settings", "message"), [({}, "nothing is forbidden"), ({"forbid": ("\u200b",)}, "a text that shows")]
)
def test_a_rule_that_says_nothing_is_refused(settings: dict[str, Any], message: str):
    with pytest.raises(ValidationError, match=message):
        RulesSettings(**settings)


def test_a_rule_as_a_gate_makes_a_right_answer_worthless():
    reward = {
        "components": {
            "correct": {"options": {"answer": {"carrier": "tag"}}},
            "safe": {"verifier": "rules", "role": "gate", "options": {"forbid": ["the secret is 7"]}},
        },
        "gated_reward": -1,
    }
    texts = ["<answer>2</answer>", "The secret is 7. <answer>2</answer>", "<answer>3</answer>"]
    with Scorer(RewardSettings.model_validate(reward)) as scorer:
        verdicts = scorer.score([Item(task=TASK, text=text) for text in texts])
    assert [verdict.reward for verdict in verdicts] == [1.0, -1.0, 0.0]


def test_time_memory_and_tokens_used_are_components_with_weights():
    # The same program under tighter limits is the component: fast and small programs earn the full 1.75.
    meta = {"mode": "function", "entry_point": "f", "tests": [{"args": [3], "expected": 3}]}
    task = Task(
        id="c", prompt="the identity", gold="def f(x):\n    return x\n", kind="code", verifier="code", meta=meta
    )
    tight = {"options": {"code": {"timeout_s": 0.5}}, "weight": 0.5}
    small = {"options": {"code": {"sandbox": {"memory_bytes": 128 * 1024**2}}}, "weight": 0.25}
    few = {"verifier": "length", "options": {"unit": "tokens", "max": 50}, "weight": 0.25}
    settings = RewardSettings.model_validate(
        {"components": {"correct": {}, "fast": tight, "small": small, "few_tokens": few}}
    )
    slow = "import time\ndef f(x):\n    time.sleep(1)\n    return x\n"
    large = "def f(x):\n    y = bytearray(180 * 1024**2)\n    return x\n"
    items = [
        Item(task=task, text=f"```python\n{source}```", token_ids=tuple(range(size)))
        for source, size in ((task.gold, 10), (slow, 10), (large, 10), (task.gold, 90))
    ]
    with Scorer(settings) as scorer:
        quick, late, big, long = scorer.score(items)
    assert [one.reward for one in (quick, late, big, long)] == [2.0, 1.5, 1.75, 1.75]
    assert {one.status for one in (quick, late, big, long)} == {Status.CORRECT}
