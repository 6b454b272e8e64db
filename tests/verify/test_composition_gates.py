"""Gates: a completion that does not pass one is worth a stated value, whatever the rest says."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from oncurve.types import Status, Task
from oncurve.verify import Item, RewardSettings, Scorer, gate_reward

TASK = Task(id="t", prompt="1+1=", gold="2", kind="sum", verifier="answer")
FORM = {"verifier": "tags", "options": {"order": ["think", "answer"]}, "role": "gate"}
RIGHT, RIGHT_IN_FORM = "<answer>2</answer>", "<think>1+1</think><answer>2</answer>"
WRONG_IN_FORM = "<think>1+1</think><answer>3</answer>"


def score(reward: dict[str, Any], texts: Sequence[str], **changes: Any) -> list[Any]:
    with Scorer(RewardSettings.model_validate(reward)) as scorer:
        return scorer.score([Item(task=TASK, text=text, token_ids=tuple(range(9)), **changes) for text in texts])


def test_a_gate_is_added_to_nothing_and_makes_the_rest_worthless():
    # Behind the gate: 3 * correct. In front of it: -1, right or not.
    reward = {"components": {"correct": {"weight": 3}, "form": FORM}, "gated_reward": -1}
    verdicts = score(reward, [RIGHT_IN_FORM, WRONG_IN_FORM, RIGHT])
    assert [verdict.reward for verdict in verdicts] == [3.0, 0.0, -1.0]
    assert [verdict.status for verdict in verdicts] == ["correct", "wrong", "correct"]  # the metric stays the truth
    assert dict(verdicts[2].components) == {"correct": 1.0, "form": 0.0}
    assert "form shuts it out: no <think>" in verdicts[2].evidence


def test_the_primary_can_be_the_gate_so_that_brevity_pays_only_when_right():
    reward = {
        "primary": "correct",
        "components": {
            "correct": {"role": "gate"},
            "brief": {"verifier": "length", "options": {"unit": "chars", "max": 20}, "weight": 2},
        },
    }
    assert [verdict.reward for verdict in score(reward, [RIGHT, "<answer>3</answer>", RIGHT_IN_FORM])] == [
        2.0,
        0.0,
        0.0,
    ]


def test_neither_length_nor_truncation_changes_what_a_gate_settled():
    length = {"shape": "overlong", "max_tokens": 10, "margin": 2}  # 9 tokens: (8 - 9) / 2 = -0.5
    reward = {
        "components": {"correct": {}, "form": FORM},
        "length": length,
        "truncated_factor": 0.5,
        "gated_reward": -2,
    }
    inside, outside = score(reward, [RIGHT_IN_FORM, RIGHT], is_truncated=True)
    assert inside.reward == 0.25  # (1 - 0.5) * 0.5
    assert outside.reward == -2.0
    assert outside.components["length"] == -0.5  # recorded all the same


def test_a_gate_in_doubt_leaves_no_verdict_and_a_shut_one_decides_anyway():
    doubtful = {"verifier": "length", "options": {"unit": "tokens", "max": 9}, "role": "gate"}
    reward = {"components": {"correct": {}, "form": FORM, "size": doubtful}}
    with Scorer(RewardSettings.model_validate(reward)) as scorer:
        in_form, out_of_form = scorer.score([Item(task=TASK, text=text) for text in (RIGHT_IN_FORM, RIGHT)])
    assert (in_form.status, in_form.reward, in_form.cause) == (Status.NO_VERDICT, None, "no_tokens")
    assert (out_of_form.status, out_of_form.reward) == (Status.CORRECT, 0.0)


def test_an_open_gate_before_parts_that_all_failed_is_no_reward_of_0():
    nothing = {"verifier": "length", "options": {"unit": "tokens", "max": 9}}
    reward = {"components": {"correct": {"role": "gate"}, "size": nothing}}
    with Scorer(RewardSettings.model_validate(reward)) as scorer:
        (verdict,) = scorer.score([Item(task=TASK, text=RIGHT)])
    assert (verdict.status, verdict.reward) == (Status.NO_VERDICT, None)


@given(st.none() | st.floats(-9, 9), st.lists(st.sampled_from([True, False, None]), max_size=4), st.floats(-9, 9))
def test_one_shut_gate_is_enough_and_open_ones_change_nothing(reward: float | None, passed: list[Any], shut: float):
    found = gate_reward(reward, passed, gated_reward=shut)
    if False in passed:
        assert found == shut
    elif None in passed:
        assert found is None
    else:
        assert found == reward


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ({"components": {"a": {}, "b": {"role": "gate", "weight": 2}}}, "its weight 2 would do nothing"),
        ({"components": {"a": {"role": "gate"}}}, r"every component has weight 0 \(a only open the way\)"),
        ({"components": {"a": {}}, "gated_reward": -1}, "does nothing without a component of role"),
        ({"components": {"a": {"role": "door"}}}, "'sum' or 'gate'"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(reward: dict[str, Any], message: str):
    with pytest.raises(ValidationError, match=message):
        RewardSettings.model_validate(reward)


def test_an_estimator_that_normalises_components_refuses_gates():
    from oncurve.config import RunConfig  # needs the training half

    form = {"verifier": "tags", "role": "gate"}
    with pytest.raises(ValidationError, match="gdpo normalises each component"):
        RunConfig.model_validate(
            {"reward": {"components": {"a": {}, "form": form}}, "objective": {"advantage": {"estimator": "gdpo"}}}
        )
