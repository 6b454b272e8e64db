"""Programs counted by cause, references looked for, mutants run: with real programs in the real sandbox."""

import shutil
from typing import Any

import pytest

from oncurve.types import Completion, FinishReason, Group, Sampling, Status, Task, Verdict
from oncurve.verify import Item, RewardSettings, Scorer, check_golds
from oncurve.verify.code.counts import CAUSES, ProgramCounter, cause_of
from oncurve.verify.code.outcome import FAULTS
from oncurve.verify.code.references import review_references

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")
LIMITS = {"timeout_s": 1.0, "carrier": "text", "sandbox": {"max_output_bytes": 4096, "memory_bytes": 256 * 1024**2}}
REWARD = RewardSettings.model_validate({"components": {"correct": {"options": {"code": LIMITS}}}})
PROGRAMS = {
    "passed": "def f(n):\n    return n + 1\n",
    "syntax error": "def f(n)\n",
    "error on load": "1 / 0\n",
    "no entry point": "g = 1\n",
    "wrong answer": "def f(n):\n    return n\n",
    "raised": "def f(n):\n    return n + 'x'\n",
    "no plain data": "def f(n):\n    return f\n",
    "ended early": "def f(n):\n    import os\n    os._exit(0)\n",
    "time-out": "def f(n):\n    while True: pass\n",
    "memory": "def f(n):\n    return len(bytearray(10**10))\n",
    "too much output": "def f(n):\n    return 'x' * 100_000\n",
    "no program": " \n",
}


def task(gold: str = "", **meta: Any) -> Task:
    tests = [{"args": [1], "expected": 2}, {"args": [5], "expected": 6}]
    return Task(id="plus", prompt="", gold=gold, kind="k", verifier="code",
                meta={"mode": "function", "entry_point": "f", "tests": tests, **meta})  # fmt: skip


def group(asked: Task, texts: list[str], verdicts: list[Verdict]) -> Group:
    completions = tuple(
        Completion(task_id=asked.id, index=index, prompt_ids=(1,), token_ids=(2,), old_logprobs=(-1.0,), text=text,
                   policy_version=0, finish_reason=FinishReason.STOP, sampling=Sampling())
        for index, text in enumerate(texts)
    )  # fmt: skip
    return Group(task=asked, completions=completions, verdicts=tuple(verdicts))


def test_every_cause_is_counted_and_every_distinct_program_is_run():
    texts = [*PROGRAMS.values(), PROGRAMS["passed"], PROGRAMS["time-out"]]  # two of them twice
    with Scorer(REWARD) as scorer:
        counter = ProgramCounter(scorer)
        scorer.score([Item(task=task(), text=PROGRAMS["raised"])])  # before the step
        counter.mark()
        verdicts = [scorer.score([Item(task=task(), text=text)])[0] for text in texts]  # in portions, as a run does
        found = counter.metrics([group(task(), texts, verdicts)])
    assert [cause_of(verdict) for verdict in verdicts[: len(PROGRAMS)]] == list(PROGRAMS)
    assert (found["code/distinct"], found["code/sandboxed"]) == (11.0, 11.0)
    assert (found["code/passed"], found["code/time_out"], found["code/no_program"]) == (2.0, 2.0, 1.0)
    counts = {name: value for name, value in found.items() if name not in ("code/distinct", "code/sandboxed")}
    assert sum(counts.values()) == len(texts)
    assert found["code/no_verdict"] == 0.0
    assert "code/crash" not in found


def test_a_program_that_was_not_run_is_missed():
    texts = [PROGRAMS["passed"], PROGRAMS["raised"]]
    with Scorer(REWARD) as scorer:
        verdicts = scorer.score([Item(task=task(), text=text) for text in texts])
        counter = ProgramCounter(scorer)
        counter.mark()
        scorer.score([Item(task=task(), text=PROGRAMS["passed"])])
        found = counter.metrics([group(task(), texts, verdicts)])
        assert (found["code/distinct"], found["code/sandboxed"]) == (2.0, 1.0)
        # Nothing is noted any more, and none of it stays.
        scorer.score([Item(task=task(), text=PROGRAMS["raised"])])
        assert counter.metrics([group(task(), texts, verdicts)])["code/sandboxed"] == 0.0


def test_other_tasks_and_other_verifiers_are_not_programs():
    sums = Task(id="s", prompt="", gold="2", kind="k", verifier="answer")
    with Scorer(RewardSettings()) as scorer:
        verdicts = scorer.score([Item(task=sums, text="<answer>2</answer>")])
        assert ProgramCounter(scorer).metrics([group(sums, ["<answer>2</answer>"], verdicts)]) == {}
    form = RewardSettings.model_validate({"components": {"form": {"verifier": "tags", "options": {"order": ["a"]}}}})
    with Scorer(form) as scorer:
        assert ProgramCounter(scorer).metrics([group(task(), ["x"], scorer.score([Item(task=task(), text="x")]))]) == {}


def test_a_cause_without_a_name_is_counted_as_other():
    assert cause_of(Verdict(status=Status.WRONG, reward=0.0, evidence="something: new")) == "other"
    assert (
        cause_of(Verdict(status=Status.NO_VERDICT, reward=None, cause="bad_gold", evidence="memory: x")) == "no verdict"
    )
    assert set(FAULTS.values()) <= set(CAUSES)


def test_a_test_text_that_does_not_end_is_a_time_out_by_the_same_name():
    slow = task(mode="assert", tests="def check(f):\n    assert f(1) == 2\n")
    with Scorer(REWARD) as scorer:
        (verdict,) = scorer.score([Item(task=slow, text=PROGRAMS["time-out"])])
    assert cause_of(verdict) == "time-out"


def test_golds_that_are_missing_are_no_failure_and_bad_tests_are():
    good, none = task(gold=PROGRAMS["passed"]), task()
    bad, empty = task(gold=PROGRAMS["raised"]), task(tests=[])
    with Scorer(REWARD) as scorer:
        assert check_golds([good, none], scorer) == []
        reasons = [problem.reason for problem in check_golds([good, bad, none, empty], scorer)]
        review = review_references([good, none], scorer)
    assert reasons[0].startswith("raised: case 1 of 2")
    assert reasons[1] == "meta.tests holds no test: nothing would be verified"
    assert (review.num_code, review.without, review.weak) == (2, ("plus",), ())
    assert review.num_mutants == 3  # + to -, 1 to 2, return None


def test_tests_that_let_a_mutant_pass_are_called_weak():
    # n = 0 alone does not tell n * 3 from n * 4 or from n + 3 less 3.
    weak = task(gold="def f(n):\n    return n * 3\n", tests=[{"args": [0], "expected": 0}])
    with Scorer(REWARD) as scorer:
        review = review_references([weak, weak], scorer, num_tasks=1)
    (found,) = review.weak
    assert (found.num_passed, found.num_mutants) == (1, 3)
    assert found.changes == ("line 2: 3 to 4",)
    assert review.num_mutants == 3  # one task only
