"""Reward functions of users: TRL's signature, every failure told apart, never a silent 0."""

import math
import os
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncurve.types import ConfigError, DataError, Message, Status, Task, Verdict
from oncurve.verify import Item, RewardFunction, RewardFunctionSettings

Make = Callable[..., RewardFunction]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    functions = []

    def make_function(source: str, *, timeout_s: float = 20.0, **options: Any) -> RewardFunction:
        (tmp_path / "rewards.py").write_text(textwrap.dedent(source))
        settings = RewardFunctionSettings(**options)
        functions.append(RewardFunction("rewards.py:f", settings, timeout_s=timeout_s, base_dir=tmp_path))
        return functions[-1]

    yield make_function
    for function in functions:
        function.close()


def items(*texts: str, **changes: Any) -> list[Item]:
    task = {"id": "t", "prompt": "p?", "gold": "g", "kind": "k", "verifier": "answer"} | changes
    return [Item(task=Task(**task), text=text, token_ids=(index,)) for index, text in enumerate(texts)]


def causes(verdicts: list[Verdict]) -> list[str | None]:
    return [verdict.cause for verdict in verdicts]


def test_values_become_rewards_and_correct_from_a_bar_on(make: Make):
    function = make("def f(completions, **columns): return [len(c) / 2 for c in completions]", correct_at=1.5)
    verdicts = function.judge(items("a", "aaa", "", "aaaaa"))
    assert [v.reward for v in verdicts] == [0.5, 1.5, 0.0, 2.5]
    assert [v.status for v in verdicts] == [Status.WRONG, Status.CORRECT, Status.WRONG, Status.CORRECT]


def test_the_arguments_are_those_of_trl(make: Make):
    function = make(
        """
        def f(prompts, completions, completion_ids, **columns):
            seen = (prompts, completions, completion_ids, sorted(columns))
            names = ["answer", "gold", "kind", "level", "solution", "task_id"]
            if seen != (["p?", "p?"], ["a", "b"], [[0], [1]], names):
                raise AssertionError(seen)
            return [c == d for c, d in zip(columns["solution"], columns["level"])]
        """
    )
    first, second = items("a", "b", meta={"level": "g"})[0], items("a", "b")[1]  # only one task has the column
    assert [v.reward for v in function.judge([first, second])] == [1.0, 0.0]


def test_chats_are_passed_as_messages(make: Make):
    function = make(
        """
        def f(prompts, completions, **columns):
            return [p[-1] == {"role": "user", "content": "hi"} and c == [{"role": "assistant", "content": "a"}]
                    for p, c in zip(prompts, completions)]
        """
    )
    chat = (Message(role="system", content="be brief"), Message(role="user", content="hi"))
    assert [v.reward for v in function.judge(items("a", "b", prompt=chat))] == [1.0, 0.0]


def test_async_functions_work(make: Make):
    function = make(
        """
        import asyncio
        async def f(completions, **columns):
            await asyncio.sleep(0)
            return [1.0 for _ in completions]
        """
    )
    assert [v.reward for v in function.judge(items("a", "b"))] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("None", "unscored"), ("float('nan')", "bad_value"), ("float('inf')", "bad_value"), ("'1.0'", "bad_value"),
        ("[1.0]", "bad_value"), ("object()", "bad_value"), ("1j", "bad_value"), ("{}", "bad_value"),
        ("10**400", "bad_value"), ("-1e31", "bad_value"),
    ],
)  # fmt: skip
def test_a_bad_value_costs_only_its_own_completion(make: Make, value: str, cause: str):
    function = make(f"def f(completions, **columns): return [1, {value}, 0.25]")
    first, bad, last = function.judge(items("a", "b", "c"))
    assert (first.reward, last.reward) == (1.0, 0.25)
    assert (bad.status, bad.reward, bad.cause) == (Status.NO_VERDICT, None, cause)


def test_numbers_of_libraries_are_numbers(make: Make):
    function = make("import numpy\ndef f(completions, **columns): return numpy.array([0.5, numpy.nan])")
    half, nan = function.judge(items("a", "b"))
    assert half.reward == 0.5
    assert nan.cause == "bad_value"


@pytest.mark.parametrize(
    ("body", "cause", "evidence"),
    [
        ("return [1.0]", "bad_value", "returned 1 values for 2 completions"),
        ("return [1.0, 1.0, 1.0]", "bad_value", "returned 3 values for 2 completions"),
        ("return 1.0", "bad_value", "not a list"),
        ("return None", "bad_value", "not a list"),
        ("return (x for x in [1, 2])", "bad_value", "not a list"),
        ("raise KeyError('no column')", "error", "KeyError: 'no column' (rewards.py, line 3)"),
        ("raise SystemExit(0)", "error", "SystemExit"),
        ("os._exit(0)", "crash", "the process died: exit status 0"),
        ("time.sleep(60)", "timeout", "no result after 1 s"),
        ("while True: pass", "timeout", "no result after 1 s"),
    ],
)
def test_failures_are_told_apart_and_never_scored(make: Make, body: str, cause: str, evidence: str):
    function = make(f"import os, time\ndef f(completions, **columns):\n    {body}", timeout_s=1.0)
    for verdict in function.judge(items("a", "b")):
        assert (verdict.status, verdict.reward, verdict.cause) == (Status.NO_VERDICT, None, cause)
        assert evidence in verdict.evidence


def test_a_hang_costs_its_own_call_only(make: Make):
    function = make(
        """
        import time
        def f(completions, **columns):
            if "hang" in completions:
                time.sleep(60)
            return [1.0] * len(completions)
        """,
        timeout_s=1.0,
        max_batch=2,
    )
    verdicts = function.judge(items("a", "b", "hang", "c", "d"))
    assert causes(verdicts) == [None, None, "timeout", "timeout", None]


def test_a_batch_is_never_larger_than_allowed(make: Make):
    function = make("def f(completions, **columns): return [len(completions)] * len(completions)", max_batch=3)
    assert [v.reward for v in function.judge(items(*"abcdefg"))] == [3, 3, 3, 3, 3, 3, 1]
    assert function.judge([]) == []


def test_memory_is_limited(make: Make):
    source = "def f(completions, **columns): return [len(bytearray(2**30)) > 0] * len(completions)"
    (limited,) = make(source, memory_bytes=512 * 1024**2).judge(items("a"))
    assert limited.cause == "memory"
    assert "MemoryError" in limited.evidence


def test_what_it_prints_is_discarded_unless_asked_for(make: Make, capfd: pytest.CaptureFixture[str]):
    source = "def f(completions, **columns):\n    print('hello', flush=True)\n    return [1.0]"
    assert make(source).judge(items("a"))[0].reward == 1.0
    assert capfd.readouterr() == ("", "")
    assert make(source, show_output=True).judge(items("a"))[0].reward == 1.0
    assert capfd.readouterr() == ("", "hello\n")


@pytest.mark.parametrize(
    ("source", "needle"),
    [
        ("def g(): pass", "no function f. It has: g"),
        ("def f(:", "SyntaxError"),
        ("import nowhere_to_be_found", "nowhere"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_a_config_error(make: Make, source: str, needle: str):
    with pytest.raises(ConfigError, match=needle):
        make(source)


def test_a_missing_file_is_a_config_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="no file"):
        RewardFunction("nowhere.py:f", RewardFunctionSettings(), timeout_s=1, base_dir=tmp_path)


def test_data_that_cannot_be_sent_is_named(make: Make):
    function = make("def f(completions, **columns): return [1.0]")
    with pytest.raises(DataError, match=r"task t .* not JSON serializable.*Keep plain data"):
        function.judge(items("a", meta={"when": object()}))


def test_close_ends_the_process(make: Make):
    function = make("import os\ndef f(completions, **columns): return [os.getpid()]")
    (verdict,) = function.judge(items("a"))
    pid = int(verdict.reward or math.nan)
    os.kill(pid, 0)
    function.close()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()
