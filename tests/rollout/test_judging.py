"""Verification while sampling goes on: the same verdicts in the same order, errors that come through, nothing left.

The engines below hand out completions in an order that the test chooses; a judge that waits for what only the engine's
going on can bring shows that both happen at the same time.
"""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.rollout import Judging, Request, unit_of
from oncurve.rollout.judging import Unit
from oncurve.types import Completion, FinishReason, Sampling, Status, Task, Verdict
from oncurve.verify import Item, RewardSettings, Scorer
from tests.processes import processes_with, wait_until

SAMPLING = Sampling(max_tokens=4)
UNITS = ("completion", "group", "rollout")


def task(name: str) -> Task:
    return Task(id=name, prompt="1+2=", gold="3", kind="sum", verifier="answer")


def requests_of(tasks: Sequence[Task], group_size: int) -> tuple[list[Request], list[Task]]:
    owners = [one for one in tasks for _ in range(group_size)]
    requests = [
        Request(task_id=owner.id, index=place % group_size, prompt_ids=(1,), seed=place)
        for place, owner in enumerate(owners)
    ]
    return requests, owners


class Scripted:
    """Ends the requests in a given order. The text of a completion is ``texts[seed]``."""

    def __init__(self, order: Sequence[int], texts: Sequence[str], *, fails_after: int | None = None) -> None:
        self.order, self.texts, self.fails_after = order, texts, fails_after
        self.num_ended = 0

    def seconds(self):
        return {"decode": 0.25}

    def generate(self, requests, sampling, *, policy_version, on_completion=None):
        done = {}
        for place in self.order:
            if self.num_ended == self.fails_after:
                raise RuntimeError("the engine broke")
            request = requests[place]
            done[place] = Completion(
                task_id=request.task_id,
                index=request.index,
                prompt_ids=request.prompt_ids,
                token_ids=(len(self.texts[request.seed]),),
                old_logprobs=(-1.0,),
                policy_version=policy_version,
                finish_reason=FinishReason.STOP,
                sampling=sampling,
                text=self.texts[request.seed],
            )
            self.num_ended += 1
            if on_completion is not None:
                on_completion(place, done[place])
        return [done[place] for place in range(len(requests))]


class Recording:
    """Right when the text is "3"; remembers each call."""

    def __init__(self) -> None:
        self.calls: list[list[Item]] = []

    def score(self, items):
        self.calls.append(list(items))
        return [
            Verdict(status=Status.CORRECT if item.text == "3" else Status.WRONG, reward=float(item.text == "3"))
            for item in items
        ]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_verdicts_do_not_depend_on_what_is_judged_when(data):
    num_tasks, group_size = data.draw(st.integers(0, 5)), data.draw(st.integers(1, 6))
    texts = data.draw(
        st.lists(st.sampled_from("345"), min_size=num_tasks * group_size, max_size=num_tasks * group_size)
    )
    order = data.draw(st.permutations(range(len(texts))))
    requests, owners = requests_of([task(f"t{number}") for number in range(num_tasks)], group_size)
    for unit in UNITS:
        judged = Judging(Recording(), unit).sample(Scripted(order, texts), requests, owners, SAMPLING, policy_version=7)
        assert [done.text for done in judged.completions] == texts
        assert [verdict.reward for verdict in judged.verdicts] == [float(text == "3") for text in texts]


@pytest.mark.parametrize(
    ("length", "unit"), [(None, "completion"), ({"shape": "kimi"}, "group"), ({"shape": "lead"}, "group")]
)
def test_a_scorer_gives_the_same_rewards_while_sampling_goes_on(length, unit):
    settings = RewardSettings.model_validate(
        {"components": {"right": {"verifier": "answer", "options": {"carrier": "last_line"}}}, "length": length}
    )
    assert unit_of("auto", settings) == unit
    texts = ["3", "33", "so\n3", "4", "3", "because of that\n3", "x", "3"]
    requests, owners = requests_of([task("a"), task("b")], 4)
    found = []
    with Scorer(settings) as scorer:
        for chosen in (unit, "rollout"):
            engine = Scripted([5, 2, 7, 0, 1, 3, 6, 4], texts)
            judged = Judging(scorer, chosen).sample(engine, requests, owners, SAMPLING, policy_version=0)
            found.append([(v.status, v.reward, v.components, v.evidence) for v in judged.verdicts])
    assert found[0] == found[1]
    assert len({row[1] for row in found[0]}) > 1


def test_completions_are_judged_one_by_one_groups_when_they_are_whole_the_rollout_at_the_end():
    # Two groups of 16: the second one ends first. Blocks of groups hold at least 16 completions.
    texts = [str(number) for number in range(32)]
    order = [*range(16, 32), *range(16)]
    requests, owners = requests_of([task("a"), task("b")], 16)

    def calls(unit: Unit) -> list[list[str]]:
        judge = Recording()
        Judging(judge, unit).sample(Scripted(order, texts), requests, owners, SAMPLING, policy_version=0)
        return [[item.text for item in call] for call in judge.calls]

    assert calls("rollout") == [texts]
    assert calls("group") == [texts[16:], texts[:16]]
    one_by_one = calls("completion")
    assert sorted(text for call in one_by_one for text in call) == sorted(texts)


def test_small_groups_go_together_whoever_ends_first():
    # Groups of 6: 6 + 6 < 16, 6 + 6 + 6 >= 16, and two are left.
    texts = [str(number) for number in range(30)]
    requests, owners = requests_of([task(name) for name in "abcde"], 6)
    for order in (range(30), range(29, -1, -1)):
        judge = Recording()
        Judging(judge, "group").sample(Scripted(order, texts), requests, owners, SAMPLING, policy_version=0)
        calls = [[int(item.text) for item in call] for call in judge.calls]
        assert sorted(calls) == [list(range(18)), list(range(18, 30))]


def test_equal_completions_of_a_task_are_judged_once():
    # Text and ids alike; the same text of another task is another question.
    texts = ["3", "3", "4", "3", "3", "3", "3", "4"]
    requests, owners = requests_of([task("a"), task("b")], 4)

    judge = Recording()

    class OneAtATime(Scripted):
        """Waits until the last one is with the judge: no two meet in one batch."""

        def generate(self, requests, sampling, *, policy_version, on_completion=None):
            def put(place, done):
                on_completion(place, done)
                asked = (done.task_id, done.text)
                assert wait_until(lambda: any((i.task.id, i.text) == asked for call in judge.calls for i in call))

            return super().generate(requests, sampling, policy_version=policy_version, on_completion=put)

    judged = Judging(judge, "completion").sample(
        OneAtATime(range(8), texts), requests, owners, SAMPLING, policy_version=0
    )
    assert [verdict.reward for verdict in judged.verdicts] == [float(text == "3") for text in texts]
    assert [[(i.task.id, i.text) for i in call] for call in judge.calls] == [
        [("a", "3")],
        [("a", "4")],
        [("b", "3")],
        [("b", "4")],
    ]


@pytest.mark.parametrize("unit", ["completion", "group"])
def test_judging_and_sampling_go_on_at_the_same_time(unit):
    # The engine ends the second group only after the judge was busy with the first: in a row this would never end.
    was_judged = threading.Event()

    class Telling(Recording):
        def score(self, items):
            was_judged.set()
            return super().score(items)

    class Waiting(Scripted):
        def generate(self, requests, sampling, *, policy_version, on_completion=None):
            def put(place, done):
                if place == 16:
                    assert was_judged.wait(20.0), "nothing was judged while sampling went on"
                on_completion(place, done)

            return super().generate(requests, sampling, policy_version=policy_version, on_completion=put)

    requests, owners = requests_of([task("a"), task("b")], 16)
    engine = Waiting(range(32), ["3"] * 32)
    judged = Judging(Telling(), unit).sample(engine, requests, owners, SAMPLING, policy_version=0)
    assert [verdict.reward for verdict in judged.verdicts] == [1.0] * 32


def test_the_seconds_tell_what_was_waited_for_and_what_was_hidden():
    class Slow(Recording):
        """Half a second for each of the first two groups, a tenth for the last."""

        def score(self, items):
            time.sleep(0.5 if len(self.calls) < 2 else 0.1)
            return super().score(items)

    judge = Slow()

    class SlowToo(Scripted):
        """Ends the last group when the first two are judged."""

        def generate(self, requests, sampling, *, policy_version, on_completion=None):
            def put(place, done):
                assert place < 47 or wait_until(lambda: len(judge.calls) == 2)
                on_completion(place, done)

            return super().generate(requests, sampling, policy_version=policy_version, on_completion=put)

    requests, owners = requests_of([task("a"), task("b"), task("c")], 16)
    engine = SlowToo(range(48), ["3"] * 48)
    hidden = Judging(judge, "group").sample(engine, requests, owners, SAMPLING, policy_version=0)
    assert hidden.seconds_busy >= 1.1
    assert 0 < hidden.seconds_verify < 1.0 <= hidden.seconds_rollout  # only the last group is waited for
    engine = Scripted(range(48), ["3"] * 48)
    after = Judging(Slow(), "rollout").sample(engine, requests, owners, SAMPLING, policy_version=0)
    assert after.seconds_verify >= after.seconds_busy >= 0.5


@pytest.mark.parametrize("unit", UNITS)
def test_an_error_of_the_judge_comes_through(unit):
    class Broken:
        def score(self, items):
            raise ValueError("no such verifier")

    requests, owners = requests_of([task("a"), task("b")], 16)
    with pytest.raises(ValueError, match="no such verifier"):
        Judging(Broken(), unit).sample(Scripted(range(32), ["3"] * 32), requests, owners, SAMPLING, policy_version=0)


def test_sampling_ends_when_the_judge_has_failed():
    class Broken:
        def score(self, items):
            raise ValueError("no such verifier")

    class Endless(Scripted):
        def generate(self, requests, sampling, *, policy_version, on_completion=None):
            def put(place, done):
                on_completion(place, done)
                if place == 15:  # the one thread that judges takes this when its failure is known
                    judging._executor.submit(int).result(60.0)

            return super().generate(requests, sampling, policy_version=policy_version, on_completion=put)

    requests, owners = requests_of([task("a"), task("b")], 16)
    engine = Endless(range(32), ["3"] * 32)
    judging = Judging(Broken(), "group")
    with pytest.raises(ValueError, match="no such verifier"):
        judging.sample(engine, requests, owners, SAMPLING, policy_version=0)
    assert engine.num_ended == 17


@pytest.mark.parametrize("unit", UNITS)
def test_an_error_of_the_engine_comes_through_and_the_next_rollout_is_judged(unit):
    requests, owners = requests_of([task("a"), task("b")], 16)
    judging = Judging(Recording(), unit)
    with pytest.raises(RuntimeError, match="the engine broke"):
        judging.sample(Scripted(range(32), ["3"] * 32, fails_after=20), requests, owners, SAMPLING, policy_version=0)
    judged = judging.sample(Scripted(range(32), ["3"] * 32), requests, owners, SAMPLING, policy_version=0)
    assert [verdict.reward for verdict in judged.verdicts] == [1.0] * 32


def test_all_calls_come_from_one_thread_that_is_not_the_callers():
    # A sandbox that dies with the thread that started it must find the same thread in the next step.
    threads = set()

    class Seeing(Recording):
        def score(self, items):
            threads.add(threading.get_ident())
            return super().score(items)

    requests, owners = requests_of([task("a"), task("b")], 16)
    judging = Judging(Seeing(), "group")
    for _ in range(3):
        judging.sample(Scripted(range(32), ["3"] * 32), requests, owners, SAMPLING, policy_version=0)
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("overlap", "component", "unit"),
    [
        ("auto", {"verifier": "task"}, "completion"),
        ("auto", {"verifier": "my_rewards.py:score"}, "group"),
        ("auto", {"verifier": "reward_model", "options": {"path": "somewhere", "label": "good"}}, "rollout"),
        ("never", {"verifier": "task"}, "rollout"),
        ("group", {"verifier": "task"}, "group"),
        ("completion", {"verifier": "my_rewards.py:score"}, "completion"),
    ],
)
def test_the_setting_and_the_components_decide_what_is_judged_by_itself(overlap, component, unit):
    settings = RewardSettings.model_validate({"components": {"part": component}})
    assert unit_of(overlap, settings) == unit


INTERRUPTED = """
import sys, time
from oncurve.rollout import Judging, Request
from oncurve.types import Completion, FinishReason, Sampling, Task
from oncurve.verify import RewardSettings, Scorer

class Engine:
    def seconds(self):
        return {}

    def generate(self, requests, sampling, *, policy_version, on_completion=None):
        for place, request in enumerate(requests):
            done = Completion(task_id="a", index=place, prompt_ids=(1,), token_ids=(2,), old_logprobs=(-1.0,),
                policy_version=0, finish_reason=FinishReason.STOP, sampling=sampling, text=str(place))
            on_completion(place, done)
        time.sleep(600)

task = Task(id="a", prompt="p", gold="3", kind="k", verifier="answer")
requests = [Request(task_id="a", index=place, prompt_ids=(1,), seed=place) for place in range(16)]
settings = RewardSettings.model_validate({"components": {"own": {"verifier": sys.argv[1] + ":score"}}, "timeout_s": 2})
with Scorer(settings) as scorer:
    Judging(scorer, "group").sample(Engine(), requests, [task] * 16, Sampling(), policy_version=0)
"""


def test_ctrl_c_while_both_go_on_leaves_no_process(tmp_path: Path):
    function = tmp_path / "slow_reward_of_this_test.py"
    function.write_text(
        "import pathlib, time\n"
        "def score(completions, **_):\n"
        f"    pathlib.Path({str(tmp_path / 'called')!r}).touch()\n"
        "    time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(function)], stderr=subprocess.PIPE, text=True)
    try:
        assert wait_until((tmp_path / "called").exists, 200.0)
        assert processes_with(str(function))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)  # the call that goes on has 2 s
    finally:
        process.kill()
        process.wait()
    assert "KeyboardInterrupt" in errors
    assert wait_until(lambda: not processes_with(str(function)))
