"""Which well paid completions stand in the review queue, and why."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oncurve.report.review import ReviewSettings, Seen, find_suspects, template_of


def seen(reward: float = 1.0, **changes: Any) -> Seen:
    values: dict[str, Any] = {
        "step": 0,
        "group": 0,
        "index": 0,
        "task_id": "t",
        "kind": "sum",
        "prompt": "p",
        "gold": "4",
        "text": "<answer>4</answer>",
        "num_tokens": 10,
        "is_truncated": False,
        "reward": reward,
        "components": {"correct": reward},
        "evidence": "",
    }
    return Seen(**values | changes)


def group(rewards: Sequence[float], *, step: int = 0, number: int = 0, **changes: Any) -> list[Seen]:
    return [
        seen(reward, **{"step": step, "group": number, "index": index, "text": f"text {index} of {step}"} | changes)
        for index, reward in enumerate(rewards)
    ]


def reasons(ones: Sequence[Seen], name: str, **more: Any) -> list[str]:
    found = find_suspects(ones, more.pop("settings", None), **more)
    return [suspect.seen.id for suspect in found if name in {reason.name for reason in suspect.reasons}]


def test_nothing_is_queued_where_nothing_is_paid_more_than_the_rest():
    assert find_suspects([]) == []
    assert find_suspects(group([1.0] * 20)) == []


def test_a_lone_success_among_failures_is_queued_and_an_ordinary_one_is_not():
    # The 8 others earned 0: mean 0, std 0, and 1 - 0 >= half of the span.
    assert reasons(group([0.0] * 8 + [1.0]), "history") == ["s0-g0-i8"]
    # 7 others are no history yet.
    assert reasons(group([0.0] * 7 + [1.0]), "history") == []
    # Four of nine: the others have mean 3/8, std 0.484; 1 - 0.375 = 0.625 < 3 * 0.484.
    assert reasons(group([0.0] * 5 + [1.0] * 4), "history") == []


def test_earlier_rewards_of_the_prompt_are_its_history_and_those_of_other_prompts_are_not():
    before = group([0.0] * 7, step=1)
    now = group([1.0, 0.0], step=2)
    assert reasons([*before, *now], "history") == ["s2-g0-i0"]
    assert reasons([*group([0.0] * 7, step=1, task_id="other"), *now], "history") == []
    # What comes later is no history: the first success is judged by its own group only.
    assert reasons([*group([1.0, 0.0], step=1), *group([0.0] * 9, step=2)], "history") == []


def test_a_witness_that_gives_nothing_and_a_second_verifier_that_disagrees_come_first():
    honest, hacked = seen(index=0), seen(index=1, text="11", components={"claim": 1.0, "honest": 0.0})
    low = seen(0.0, index=2, text="x", components={"claim": 0.0, "honest": 0.0})
    found = find_suspects([honest, hacked, low], witnesses=["honest"])
    assert [suspect.seen for suspect in found] == [hacked]
    assert found[0].reasons[0].text == "component honest gives 0"
    asked: list[Seen] = []

    def disagrees(ones: Sequence[Seen]) -> list[str]:
        asked.extend(ones)
        return ["it is 9" if one.text == "11" else "" for one in ones]

    found = find_suspects([honest, hacked, low], disagrees=disagrees)
    assert asked == [honest, hacked]  # never the badly paid ones
    assert [(s.seen, s.reasons[0].text) for s in found] == [(hacked, "the second verifier: it is 9")]


def test_one_text_for_three_golds_is_queued_once():
    ones = [seen(index=i, task_id=f"t{i}", gold=str(i), text="it  is right") for i in range(3)]
    ones += [seen(0.0, index=9, text="no")]
    assert reasons(ones, "same_text") == ["s0-g0-i2"]
    assert reasons(ones[1:], "same_text") == []  # two golds may share an answer by chance


def test_an_unusual_length_is_queued_among_twenty_of_its_kind():
    # Lengths 10, median deviation 0: one robust std is at least 1 token, so 14 is not beyond 4 of them and 15 is.
    usual = [seen(index=i, text=f"usual {i}") for i in range(20)]
    low = seen(0.0, index=30)
    for tokens, is_queued in ((14, False), (15, True), (5, True)):
        odd = seen(index=25, text="odd", num_tokens=tokens)
        assert bool(reasons([*usual, odd, low], "length")) == is_queued
    assert reasons([*usual[:18], seen(index=25, text="odd", num_tokens=99), low], "length") == []


def test_one_completion_of_a_template_that_many_prompts_share():
    ones = [seen(index=i, task_id=f"t{i}", gold=str(i), text=f"<answer>{i}+{i}</answer>") for i in range(5)]
    ones += [seen(0.0, index=9, text="no")]
    assert reasons(ones, "template") == ["s0-g0-i4"]
    assert reasons(ones[1:], "template") == []  # four prompts
    assert template_of("12 +\n 3.5") == "0 + 0.0"
    rare = [seen(index=20 + i, task_id=f"r{i}", text=f"a text of its own: {'x' * i}") for i in range(25)]
    assert reasons([*ones, *rare], "template") == []  # 5 of 30 is less than a fifth


def test_a_text_that_a_prompt_got_twice_stands_there_once_and_decided_ones_do_not():
    twice = [seen(index=i, components={"honest": 0.0}) for i in range(2)]
    low = seen(0.0, index=9, text="no")
    assert [one.seen.index for one in find_suspects([*twice, low], witnesses=["honest"])] == [1]
    assert find_suspects([*twice, low], witnesses=["honest"], is_decided=lambda one: one.gold == "4") == []


def test_variants_of_one_exploit_do_not_fill_the_queue_and_a_reason_counts_once():
    low = seen(0.0, index=9, text="no")
    ones = [seen(index=i, text=f"variant {i}", components={"a": 0.0, "b": 0.0}) for i in range(4)]
    ones.append(seen(index=5, task_id="other", text="variant", components={"a": 0.0}))
    found = find_suspects([*ones, low], witnesses=["a", "b"])
    assert [one.seen.index for one in found] == [0, 1, 5]
    assert {one.weight for one in found} == {8}
    assert len(find_suspects([*ones, low], ReviewSettings(per_prompt=9), witnesses=["a"])) == 5


def test_well_paid_is_a_share_of_the_range_that_was_recorded():
    # From -1 to 4: 80 % of the way is 3.
    ones = [seen(r, index=i, text=str(r), components={"honest": 0.0}) for i, r in enumerate([-1.0, 2.9, 3.0, 4.0])]
    assert sorted(one.seen.reward for one in find_suspects(ones, witnesses=["honest"])) == [3.0, 4.0]


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 3), st.integers(1, 60)), max_size=40))
def test_the_queue_is_sorted_bounded_and_made_of_well_paid_ones(rows: list[tuple[float, int, int]]):
    ones = [
        seen(
            reward, step=place // 8, group=place // 4, index=place, task_id=f"t{task}", num_tokens=size, text=f"{size}"
        )
        for place, (reward, task, size) in enumerate(rows)
    ]
    found = find_suspects(ones, ReviewSettings(limit=5))
    assert len(found) <= 5
    assert [one.weight for one in found] == sorted((one.weight for one in found), reverse=True)
    assert all(one.seen.reward == 1.0 for one in found if any(o.reward == 1.0 for o in ones))
