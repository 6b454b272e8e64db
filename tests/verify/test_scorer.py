"""Composition, the settings that describe it, and the scorer that does it."""

import json
import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from oncurve.types import ConfigError, DataError, Status, Task
from oncurve.verify import (
    Item,
    RewardSettings,
    Scorer,
    Verifier,
    build_verifier,
    check_golds,
    compose_rewards,
    num_duplicates,
    verifier_names,
)


def task(**changes: Any) -> Task:
    return Task(**{"id": "t", "prompt": "p", "gold": "4", "kind": "k", "verifier": "answer"} | changes)


def item(text: str, **changes: Any) -> Item:
    return Item(task=task(**changes), text=text)


def settings(**reward: Any) -> RewardSettings:
    return RewardSettings.model_validate(reward)


# --- composition ------------------------------------------------------------------------------------------------


def test_the_reward_is_the_weighted_sum_of_what_was_scored():
    # 1 * 1 + 0.2 * 0.5 = 1.1;  only the second: 0.2 * 0.5 = 0.1;  nothing: nobody knows.
    rewards = compose_rewards([[1.0, 0.5], [None, 0.5], [None, None]], [1.0, 0.2])
    assert rewards == [pytest.approx(1.1), pytest.approx(0.1), None]


def test_composition_refuses_what_is_not_finite_or_not_aligned():
    for bad in ([[math.nan]], [[math.inf]], [[1.0, 2.0]], [[]]):
        with pytest.raises(ValueError):
            compose_rewards(bad, [1.0])
    with pytest.raises(ValueError, match="weights must be finite"):
        compose_rewards([[1.0]], [math.nan])


@given(st.lists(st.tuples(st.none() | st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=5), st.randoms())
def test_the_order_of_components_does_not_matter(pairs: list[tuple[int | None, int]], random: Any):
    shuffled = random.sample(pairs, len(pairs))
    one, two = (
        compose_rewards([[value for value, _ in order]], [float(weight) for _, weight in order])
        for order in (pairs, shuffled)
    )
    assert one == two


# --- settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ({"components": {}}, "at least 1 item"),
        ({"components": {"a/b": {}}}, "part of a metric name"),
        ({"components": {"a": {}}, "primary": "b"}, "primary 'b' is not a component"),
        ({"components": {"answers": {}}, "primary": "answer"}, "Did you mean answers?"),
        ({"components": {"a": {"weight": 0}}}, "every component has weight 0"),
        ({"components": {"a": {"weight": "nan"}}}, "finite number"),
        ({"components": {"a": {"weight": 1e7}}}, "less than or equal to 1000000"),
        ({"components": {"a": {"verifier": "anwser"}}}, "unknown verifier 'anwser'. Did you mean answer?"),
        ({"components": {"a": {"verifier": "answer", "options": {"carier": "box"}}}}, "Did you mean carrier?"),
        ({"components": {"a": {"verifier": "answer", "options": {"carrier": "bux"}}}}, "'box'"),
        ({"components": {"a": {"verifier": "tags", "options": {"order": []}}}}, "order"),
        ({"components": {"a": {"options": {"carrier": "box"}}}}, "Write options.answer.carrier"),
        ({"components": {"a": {"options": {"answer": {"carier": "box"}}}}}, "Did you mean carrier?"),
        ({"components": {"a": {"options": {"anwser": {}}}}}, "Did you mean answer?"),
        ({"components": {"a": {"verifier": "x.py:f", "options": {"correct_a": 1}}}}, "Did you mean correct_at?"),
        ({"timeout_s": 0}, "greater than 0"),
    ],
)
def test_nonsense_is_refused_with_the_reason(reward: dict[str, Any], message: str):
    with pytest.raises(ValidationError) as caught:
        settings(**reward)
    assert message in str(caught.value)


def test_the_default_is_the_verifier_of_the_task():
    assert settings().primary_name == "correct"
    with Scorer(settings()) as scorer:
        right, wrong = scorer.score([item("<answer>4</answer>"), item("<answer>5</answer>")])
    assert (right.status, right.reward, dict(right.components)) == (Status.CORRECT, 1.0, {"correct": 1.0})
    assert (wrong.status, wrong.reward, dict(wrong.components)) == (Status.WRONG, 0.0, {"correct": 0.0})


def test_every_built_in_verifier_can_be_built():
    need_more = {"prover", "reward_model"}  # Lean, torch
    options = {"length": {"max": 3}, "rules": {"forbid": ["rm"]}}
    assert {"answer", "countdown", "judge", "tags", *options, *need_more} <= set(verifier_names())
    for name in set(verifier_names()) - need_more:
        verifier = build_verifier(name, options.get(name, {}))
        assert isinstance(verifier, Verifier)
        assert verifier.name == name


# --- scorer -----------------------------------------------------------------------------------------------------

TWO = {"format": {"verifier": "tags", "weight": 0.5}, "correct": {"verifier": "task"}}


@pytest.mark.parametrize(
    ("text", "components", "reward", "status"),
    [
        ("<think>s</think><answer>4</answer>", {"format": 1.0, "correct": 1.0}, 1.5, Status.CORRECT),
        ("<answer>4</answer>", {"format": 0.0, "correct": 1.0}, 1.0, Status.CORRECT),
        ("<think>s</think><answer>5</answer>", {"format": 1.0, "correct": 0.0}, 0.5, Status.WRONG),
        ("", {"format": 0.0, "correct": 0.0}, 0.0, Status.WRONG),
    ],
)
def test_the_primary_decides_and_all_components_are_recorded(
    text: str, components: dict[str, float], reward: float, status: Status
):
    with Scorer(settings(components=TWO, primary="correct")) as scorer:
        (verdict,) = scorer.score([item(text)])
    assert (dict(verdict.components), verdict.reward, verdict.status) == (components, reward, status)
    assert list(verdict.components) == ["format", "correct"]


def test_without_a_primary_the_first_component_decides():
    with Scorer(settings(components=TWO)) as scorer:
        (verdict,) = scorer.score([item("<think>s</think><answer>5</answer>")])
    assert verdict.status is Status.CORRECT
    assert verdict.evidence == "tags in order"


def test_no_verdict_of_the_primary_is_no_verdict():
    with Scorer(settings(components=TWO, primary="correct")) as scorer:
        (verdict,) = scorer.score([item("<think>s</think><answer>5</answer>", gold="")])
    assert (verdict.status, verdict.reward, verdict.cause) == (Status.NO_VERDICT, None, "bad_gold")
    assert dict(verdict.components) == {"format": 1.0, "correct": None}


def test_no_verdict_of_another_component_leaves_it_out_of_the_sum(tmp_path: Path):
    (tmp_path / "r.py").write_text("def f(completions, **c): return [None if 'no' in t else 2.0 for t in completions]")
    parts = {"correct": {}, "style": {"verifier": "r.py:f", "weight": 0.25}}
    with Scorer(settings(components=parts), base_dir=tmp_path) as scorer:
        scored, unscored = scorer.score([item("<answer>4</answer>"), item("no <answer>4</answer>")])
    assert (scored.reward, unscored.reward) == (1.5, 1.0)
    assert dict(unscored.components) == {"correct": 1.0, "style": None}
    assert "style: unscored" in unscored.evidence
    assert "style" not in scored.evidence


def test_a_reward_function_may_be_primary(tmp_path: Path):
    (tmp_path / "r.py").write_text("def f(completions, **c): return [len(t) for t in completions]")
    parts = {"long": {"verifier": "r.py:f", "weight": -1.0, "options": {"correct_at": 2}}}
    with Scorer(settings(components=parts), base_dir=tmp_path) as scorer:
        verdicts = scorer.score([item("a"), item("aa")])
    assert [v.reward for v in verdicts] == [-1.0, -2.0]
    assert [v.status for v in verdicts] == [Status.WRONG, Status.CORRECT]
    assert [v.components["long"] for v in verdicts] == [1.0, 2.0]


def test_each_task_is_judged_by_its_own_verifier_with_its_own_options():
    meta = {"numbers": [1, 3], "target": 4}
    mixed = [
        item(r"\boxed{4}"),
        item("<answer>1+3</answer>", id="c", verifier="countdown", meta=meta),
        item("<answer>4</answer>"),
        item("<answer>4</answer>", id="c", verifier="countdown", meta=meta),
    ]
    with Scorer(settings(components={"correct": {"options": {"answer": {"carrier": "box"}}}})) as scorer:
        verdicts = scorer.score(mixed)
    assert [v.reward for v in verdicts] == [1.0, 1.0, 0.0, 0.0]


def test_a_task_with_an_unknown_verifier_is_a_data_error():
    with Scorer(settings()) as scorer, pytest.raises(DataError, match=r"countdwn.*Did you mean countdown\?"):
        scorer.score([item("4", verifier="countdwn")])


def test_equal_completions_of_a_task_are_judged_once_and_others_are_not_mixed_up(tmp_path: Path):
    # The function numbers what it sees: equal rewards mean that it saw one completion.
    (tmp_path / "r.py").write_text(
        "n = 0\ndef f(completions, **c):\n    global n\n    n += len(completions)\n"
        "    return [n - len(completions) + i for i in range(len(completions))]"
    )
    batch = [
        item("a"), item("b"), item("a"), item("a", id="other"), item("a"),
        Item(task=task(), text="a", token_ids=(1,)), Item(task=task(), text="a", is_truncated=True),
    ]  # fmt: skip
    with Scorer(settings(components={"order": {"verifier": "r.py:f"}}), base_dir=tmp_path) as scorer:
        assert [v.reward for v in scorer.score(batch)] == [0, 1, 0, 2, 0, 3, 4]
        assert scorer.score([]) == []
    assert num_duplicates(batch) == 4  # "a" of task t stands five times


def test_a_verdict_does_not_depend_on_its_batch():
    texts = ["<answer>4</answer>", "<answer>5</answer>", "", "<think>", "<think>s</think><answer>4.0</answer>"]
    batch = [item(text) for text in texts]
    with Scorer(settings(components=TWO)) as scorer:
        together = scorer.score(batch)
        alone = [scorer.score([one])[0] for one in batch]
    assert [(v.status, v.reward, v.evidence) for v in together] == [(v.status, v.reward, v.evidence) for v in alone]


def test_a_scorer_that_cannot_be_built_leaves_no_process(tmp_path: Path):
    (tmp_path / "good.py").write_text("def f(completions, **c): return [0.0] * len(completions)")
    parts = {"a": {"verifier": "good.py:f"}, "b": {"verifier": "missing.py:f"}}
    with pytest.raises(ConfigError, match=r"missing\.py"):
        Scorer(settings(components=parts), base_dir=tmp_path)
    deadline = time.monotonic() + 10  # a killed process is gone when the kernel has got round to it
    while is_running(tmp_path / "good.py") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(tmp_path / "good.py")


def is_running(script: Path) -> bool:
    """True when a process has this path on its command line; processes may end while this looks."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(script).encode() in entry.read_bytes():
                return True
    return False


def test_closing_twice_is_fine():
    scorer = Scorer(settings())
    scorer.close()
    scorer.close()


# --- golds ------------------------------------------------------------------------------------------------------


def test_golds_that_do_not_accept_themselves_are_listed():
    meta = {"numbers": [1, 3], "target": 4}
    tasks = [
        task(id="good", gold=r"\frac{1}{2}"),
        task(id="words", gold="a hexagon"),
        task(id="blank", gold=" "),
        task(id="breaks the tag", gold="<answer>"),
        task(id="sum", gold="1+3", verifier="countdown", meta=meta),
        task(id="wrong sum", gold="3-1", verifier="countdown", meta=meta),
        task(id="no numbers", gold="1+3", verifier="countdown"),
    ]
    problems = {problem.task_id: problem.reason for problem in check_golds(tasks)}
    assert list(problems) == ["blank", "breaks the tag", "wrong sum", "no numbers"]
    assert "= 2, target 4" in problems["wrong sum"]


@pytest.mark.parametrize("carrier", ["tag", "box", "hash", "last_line"])
def test_golds_are_stated_in_the_declared_place(carrier: str):
    options = {"answer": {"carrier": carrier}}
    tasks = [task(id=gold, gold=gold) for gold in ["4", "-1,250", r"\boxed{\frac{2}{9}}", "$7$", "x\n#### 72", "a b"]]
    with Scorer(settings(components={"correct": {"options": options}})) as scorer:
        assert check_golds(tasks, scorer) == []
        assert [p.task_id for p in check_golds([task(id="open", gold="{")], scorer)] == ["open"]


def test_a_format_verifier_cannot_state_a_gold():
    with Scorer(settings(components={"format": {"verifier": "tags"}})) as scorer:
        assert check_golds([task(gold="")], scorer) == []


def test_every_vendored_gold_of_a_right_answer_accepts_itself():
    lines = (Path(__file__).parent / "data" / "math_cases.jsonl").read_text().splitlines()
    golds = [case["gold"] for case in map(json.loads, lines) if case["correct"]]
    options = {"answer": {"carrier": "box"}}
    with Scorer(settings(components={"correct": {"options": options}})) as scorer:
        assert check_golds([task(id=gold, gold=gold) for gold in golds], scorer) == []
