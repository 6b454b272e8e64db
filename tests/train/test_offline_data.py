"""What offline runs learn from: pairs of recorded completions, text as tokens, the walk over the data."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncurve.model import fresh_embedded_policy
from oncurve.report import Rollout
from oncurve.train.encode import canonical, encode_completion
from oncurve.train.pairs import pair_rollouts
from oncurve.train.walk import Walk
from oncurve.types import DataError, FinishReason, Message, Status

RIGHT, WRONG, NONE = Status.CORRECT, Status.WRONG, Status.NO_VERDICT
TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)
CHAT = (Message(role="user", content="2+2?"),)


def recorded(
    step: int, group: int, statuses: list[Status], *, task: str = "", text: str | None = None
) -> list[Rollout]:
    return [
        Rollout(
            step=step,
            group=group,
            task_id=task or f"t{step}.{group}",
            kind="test",
            prompt="1+1=",
            gold="2",
            index=index,
            text=f"{step}.{group}.{index}" if text is None else text,
            prompt_ids=(7, 16, 7, 20),
            token_ids=(8 + index, 0),
            old_logprobs=(-1.0, -1.0),
            policy_version=0,
            finish_reason=FinishReason.STOP,
            status=status,
            reward=None if status is NONE else float(status is RIGHT),
            components={},
            evidence="",
            cause="timeout" if status is NONE else None,
            advantage=0.0,
        )
        for index, status in enumerate(statuses)
    ]


def test_a_pair_is_a_right_and_a_wrong_completion_of_one_group_and_none_is_used_twice() -> None:
    rollouts = [
        *recorded(0, 0, [RIGHT, WRONG, WRONG, RIGHT, WRONG, NONE]),  # two pairs
        *recorded(0, 1, [RIGHT, WRONG]),  # one
    ]
    made = pair_rollouts(rollouts, seed=0, max_per_task=9)
    assert [(pair.chosen.group, pair.chosen.status, pair.rejected.status) for pair in made.pairs] == [
        (0, RIGHT, WRONG),
        (0, RIGHT, WRONG),
        (1, RIGHT, WRONG),
    ]
    assert all(pair.chosen.group == pair.rejected.group for pair in made.pairs)
    used = [(m.group, m.index) for pair in made.pairs for m in (pair.chosen, pair.rejected)]
    assert len(set(used)) == len(used)
    assert made.dropped == {}


def test_what_gives_no_pair_is_counted_by_reason() -> None:
    rollouts = [
        *recorded(0, 0, [RIGHT, RIGHT]),
        *recorded(0, 1, [WRONG, WRONG, NONE]),
        *recorded(0, 2, [NONE, NONE]),
        *recorded(1, 0, [RIGHT, WRONG], text="the same"),
        *recorded(1, 1, [WRONG, WRONG]),
        *recorded(2, 0, [RIGHT, WRONG, RIGHT, WRONG, RIGHT, WRONG]),
    ]
    made = pair_rollouts(rollouts, seed=0, max_per_task=2)
    assert len(made.pairs) == 2
    assert made.dropped == {"all_right": 1, "all_wrong": 2, "unscored": 1, "equal_text": 1, "over_limit": 1}


def test_the_limit_holds_for_a_task_over_all_steps() -> None:
    rollouts = [row for step in range(6) for row in recorded(step, 0, [RIGHT, WRONG], task="often")]
    rollouts += recorded(6, 0, [RIGHT, WRONG], task="once")
    choices = {seed: pair_rollouts(rollouts, seed=seed, max_per_task=2) for seed in range(8)}
    for made in choices.values():
        assert Counter(pair.chosen.task_id for pair in made.pairs) == {"often": 2, "once": 1}
        assert [pair.chosen.step for pair in made.pairs] == sorted(pair.chosen.step for pair in made.pairs)
    assert len({tuple(pair.chosen.step for pair in made.pairs) for made in choices.values()}) > 1  # the seed chooses
    assert pair_rollouts(rollouts, seed=3, max_per_task=2) == choices[3]


@given(size=st.integers(1, 12), count=st.integers(1, 12), num_batches=st.integers(1, 9), seed=st.integers(0, 99))
def test_a_walk_hands_out_everything_once_a_pass_and_continues_from_its_cursor(
    size: int, count: int, num_batches: int, seed: int
) -> None:
    walk, items = Walk(range(size), seed=seed), list(range(size))
    if count > size:
        with pytest.raises(DataError, match=f"{count} different items"):
            walk.take(count)
        assert walk.cursor == 0
        return
    batches = [walk.take(count) for _ in range(num_batches)]
    for start in range(0, num_batches, size // count):
        of_pass = [item for batch in batches[start : start + size // count] for item in batch]
        assert len(set(of_pass)) == len(of_pass)
        assert set(of_pass) <= set(items)
    resumed = Walk(range(size), seed=seed)
    for batch in batches:
        again = Walk(range(size), seed=seed)
        again.cursor = resumed.cursor
        assert resumed.take(count) == batch == again.take(count)


def test_every_pass_has_its_own_order_and_so_has_every_seed() -> None:
    walk = Walk(range(20), seed=0)
    first, second, other = walk.take(20), walk.take(20), Walk(range(20), seed=1).take(20)
    assert sorted(first) == sorted(second) == sorted(other) == list(range(20))
    assert len({tuple(first), tuple(second), tuple(other)}) == 3


def chat_policy() -> Any:
    policy = fresh_embedded_policy(0, width=8, num_layers=1, num_heads=1)
    policy.tokenizer.chat_template = TEMPLATE
    return policy


def test_a_text_completion_is_its_tokens_and_the_terminator() -> None:
    policy = fresh_embedded_policy(0, width=8, num_layers=1, num_heads=1)
    assert encode_completion(policy, "1+1=", "2", where="here") == (8, 0)  # "2" is token 8, <end> is 0


def test_a_chat_completion_is_what_the_template_writes_up_to_the_end_of_the_turn() -> None:
    policy = chat_policy()
    ids = encode_completion(policy, CHAT, "4", where="here")
    whole = policy.tokenizer.apply_chat_template(
        [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}], return_dict=False
    )
    assert ids == (10, 0)
    assert [*policy.encode_prompt(CHAT), *ids] == whole[:-1]  # but for the line break after the turn


def test_a_template_that_changes_its_beginning_is_not_cut_but_left() -> None:
    policy = chat_policy()
    policy.tokenizer.chat_template = "{{ messages | length }}" + TEMPLATE  # another beginning with every turn
    assert encode_completion(policy, CHAT, "4", where="here") == (10, 0)


@pytest.mark.parametrize("prompt", ["1+1=", CHAT])
@pytest.mark.parametrize(
    ("text", "message"),
    [("2<end>3", "spells a token that ends a completion"), ("zwölf", "no token for a part of the completion 'zwölf'")],
)
def test_text_that_does_not_come_back_is_refused(prompt: Any, text: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"pairs\.jsonl line 3: .*{message}"):
        encode_completion(chat_policy(), prompt, text, where="pairs.jsonl line 3")


def test_prompts_are_compared_without_their_white_space() -> None:
    assert canonical("a  b\n") == canonical("a b")
    assert canonical(CHAT) != canonical("2+2?")
