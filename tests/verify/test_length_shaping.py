"""The length component: its own weight, its own record, and the group it is compared in."""

import pytest
from pydantic import ValidationError

from oncurve.types import Status, Task
from oncurve.verify import Item, RewardSettings, Scorer

TASK = Task(id="a", prompt="1+1=", gold="2", kind="sum", verifier="answer")
OTHER = Task(id="b", prompt="1+2=", gold="3", kind="sum", verifier="answer")


def item(answer: str, length: int, *, task: Task = TASK, is_truncated: bool = False) -> Item:
    return Item(task=task, text=f"<answer>{answer}</answer>", token_ids=tuple(range(length)), is_truncated=is_truncated)


def rewards(items: list[Item], **settings: object) -> list[float | None]:
    return [verdict.reward for verdict in scored(items, **settings)]


def scored(items, weight=1.0, **settings):
    reward = {"components": {"correct": {"options": {"answer": {"carrier": "tag"}}, "weight": weight}}, **settings}
    with Scorer(RewardSettings.model_validate(reward)) as scorer:
        return scorer.score(items)


def test_the_penalty_for_overlong_completions_stands_beside_the_task_reward():
    # Free up to 8 of 10 tokens, -1 at 10: 9 tokens lose a half; weight 0.2.
    length = {"shape": "overlong", "max_tokens": 10, "margin": 2, "weight": 0.2}
    found = scored([item("2", 8), item("2", 9), item("5", 10)], length=length)
    assert [verdict.reward for verdict in found] == pytest.approx([1.0, 0.9, -0.2])
    assert [verdict.components["length"] for verdict in found] == pytest.approx([0.0, -0.5, -1.0])
    assert [verdict.components["correct"] for verdict in found] == [1.0, 1.0, 0.0]
    assert [verdict.status for verdict in found] == [Status.CORRECT, Status.CORRECT, Status.WRONG]


def test_kimi_compares_within_a_task_only():
    # Lengths 10 and 30 span 20: 0.5 - 0 and 0.5 - 1; the other task is alone, so its span is 0.
    items = [item("2", 10), item("3", 500, task=OTHER), item("2", 30)]
    assert rewards(items, length={"shape": "kimi", "weight": 1.0}) == pytest.approx([1.5, 1.0, 0.5])


def test_equal_completions_all_count_in_the_comparison():
    # Twice the same short one and one twice as long: LEAD's mean and std are over three right answers.
    # Lengths 10, 10, 20: mean 40/3, sample std sqrt(100/3); z of the long one is (20/3) / 5.7735 = 1.1547.
    found = rewards([item("2", 10), item("2", 10), item("2", 20)], weight=0.0, length={"shape": "lead"})
    assert found[2] == pytest.approx(2.718281828**-0.057735, abs=1e-5)
    assert found[0] == found[1] == pytest.approx(2.718281828**0.0288675, abs=1e-5)


def test_a_task_may_name_its_own_target():
    own = Task(id="c", prompt="", gold="2", kind="sum", verifier="answer", meta={"target_tokens": 30})
    items = [item("2", 20), item("2", 20, task=own)]
    # 1 - 3e-4 * |target - 20| with targets 20 and 30.
    assert rewards(items, weight=0.0, length={"shape": "l1_exact", "target": 20}) == pytest.approx([1.0, 0.997])


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        ({"shape": "band", "low": 10, "high": 20, "max_tokens": 40, "short_weight": 0.5}, [0.75, 1.0, 0.5]),
        ({"shape": "repetition", "ngram_size": 2}, [1.0, 1.0, 1.0]),
        ({"shape": "cosine", "max_tokens": 60}, [1.0 + 0.5 + 0.25 * (1 + 0.9659258), 1.9267767, 1.75]),
        ({"shape": "l1_max", "target": 15}, [1 + 0.503, 1.5, 1 + 0.4955]),
    ],
)
def test_each_shape(length, expected):
    assert rewards([item("2", 5), item("2", 15), item("2", 30)], length=length) == pytest.approx(expected)


def test_a_truncated_completion_keeps_a_share_of_its_reward():
    items = [item("2", 5), item("2", 5, is_truncated=True)]
    assert rewards(items, truncated_factor=0.25) == [1.0, 0.25]


def test_no_verdict_stays_without_a_reward():
    broken = Task(id="d", prompt="", gold="", kind="sum", verifier="answer")
    (verdict,) = scored([item("2", 5, task=broken)], length={"shape": "kimi"})
    assert verdict.status is Status.NO_VERDICT
    assert verdict.reward is None
    assert verdict.components["length"] is None


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ({"length": {"shape": "overlong", "max_tokens": 10}}, "reward.length.margin"),
        ({"length": {"shape": "overlong", "max_tokens": 10, "margin": 11}}, "at most max_tokens"),
        ({"length": {"shape": "band", "low": 9, "high": 5, "max_tokens": 10}}, "low <= high"),
        ({"length": {"shape": "cosine"}}, "max_tokens"),
        ({"length": {"shape": "kimi"}, "components": {"length": {"verifier": "tags"}}}, "another name"),
    ],
)
def test_missing_or_contradicting_numbers_are_refused(reward, message):
    with pytest.raises(ValidationError, match=message):
        RewardSettings.model_validate(reward)


def test_the_length_has_a_weight_among_the_others():
    settings = RewardSettings.model_validate({"length": {"shape": "kimi", "weight": 0.3}})
    assert settings.weights == {"correct": 1.0, "length": 0.3}
