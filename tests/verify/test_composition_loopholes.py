"""The search for loopholes: what cheap completions earn of the maximum."""

from typing import Any

import pytest

from oncurve.types import Task
from oncurve.verify import RewardSettings
from oncurve.verify.loopholes import loopholes

YES_NO = [
    Task(id=f"q{number}", prompt=f"Is {number} prime?", gold=gold, kind="prime", verifier="answer")
    for number, gold in enumerate(["no", "no", "yes", "yes", "no", "yes", "no", "yes"])
]
CORRECT = {"options": {"answer": {"carrier": "tag"}}}
FORM = {"verifier": "tags", "options": {"order": ["think", "answer"]}}


def find(components: dict[str, Any], share: float, **reward: Any) -> list[Any]:
    return loopholes(RewardSettings.model_validate({"components": components, **reward}), YES_NO, share)


def test_a_constant_answer_that_is_often_right_is_a_loophole_and_form_adds_to_it():
    # Half of the golds are yes: 1/2 of 1; in form (0.5 * 1 + 0.25) of 1.25, which is 0.6.
    plain = find({"correct": CORRECT}, 0.4)
    assert {"constant yes (answer tag)", "constant no (answer tag)"} <= {one.recipe for one in plain}
    assert plain[0].share == 0.5
    in_form = find({"correct": CORRECT, "form": FORM | {"weight": 0.25}}, 0.55)
    best = next(one for one in in_form if one.recipe == "constant yes (think and answer tags)")
    assert (best.reward, best.maximum) == (0.75, 1.25)
    assert best.share == pytest.approx(0.6)
    assert dict(best.components) == {"correct": 0.5, "form": 1.0}


def test_a_form_behind_the_gate_of_being_right_leaves_no_loophole_of_form_alone():
    open_form = find({"correct": CORRECT, "form": FORM}, 0.45)
    gated = find({"correct": CORRECT | {"role": "gate"}, "form": FORM}, 0.45, primary="correct")
    assert "form only (think and answer tags): ..." in {one.recipe for one in open_form}
    assert {one.recipe.split()[1] for one in gated} <= {"yes", "no"}  # only constant answers are left


def test_the_share_is_a_border_that_is_not_part_of_it():
    assert find({"correct": CORRECT}, 0.5) == []
    assert find({"correct": CORRECT}, 0.49)


def test_the_best_paid_come_first_and_penalties_count():
    # Short is paid, being wrong costs more: nothing cheap is left but luck.
    brief = {"verifier": "length", "options": {"unit": "chars", "max": 60}, "weight": 0.5}
    found = find({"correct": CORRECT, "brief": brief}, 0.2)
    assert [one.reward for one in found] == sorted((one.reward for one in found), reverse=True)
    assert next(one for one in found if one.recipe == "nothing").share == pytest.approx(0.5 / 1.5)


def test_it_asks_for_something_to_try():
    with pytest.raises(ValueError, match="at least one task and a share in"):
        loopholes(RewardSettings(), [], 0.2)
    with pytest.raises(ValueError, match="got 8 and 0"):
        loopholes(RewardSettings(), YES_NO, 0)
