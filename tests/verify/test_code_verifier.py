"""The code verifier with real programs: verdicts, evidence, what is told apart, what is run once."""

import dataclasses
import shutil
import threading
from typing import Any

import pytest

from oncurve.sandbox import SandboxSettings, shared_pool
from oncurve.types import ConfigError, Status, Task, Verdict
from oncurve.verify import Item, RewardSettings, Scorer, build_verifier, check_golds
from oncurve.verify.code import CodeSettings, CodeVerifier, judge_cases

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")

SANDBOX = SandboxSettings(num_workers=2, memory_bytes=256 * 1024**2, max_output_bytes=1 << 20)
VERIFIER = CodeVerifier(CodeSettings(carrier="text", timeout_s=5, sandbox=SANDBOX))


def task(mode: str = "function", **meta: Any) -> Task:
    defaults: dict[str, Any] = {"mode": mode}
    if mode == "function":
        defaults |= {"entry_point": "f", "tests": [{"args": [2], "expected": 4}, {"args": [3], "expected": 9}]}
    if mode == "stdin":
        defaults |= {"tests": [{"input": "2\n", "output": "4\n"}, {"input": "3\n", "output": "9\n"}]}
    if mode == "assert":
        defaults |= {"entry_point": "f", "tests": "assert f(2) == 4\nassert f(3) == 9\n"}
    return Task(id="t", prompt="p", gold="", kind="k", verifier="code", meta=defaults | meta)


def judge(program: str, of: Task | None = None, verifier: CodeVerifier = VERIFIER) -> Verdict:
    (verdict,) = verifier.judge([Item(task=of or task(), text=program)])
    return verdict


RIGHT = {
    "function": "def f(x): return x * x",
    "stdin": "print(int(input()) ** 2)",
    "assert": "def f(x): return x * x",
}


@pytest.mark.parametrize("mode", RIGHT)
def test_a_right_program_is_paid_and_a_constant_is_not(mode: str):
    right = judge(RIGHT[mode], task(mode))
    assert (right.status, right.reward, right.cause) == (Status.CORRECT, 1.0, None)
    assert right.seconds > 0
    wrong = judge("print(4)\ndef f(x): return 4", task(mode))
    assert (wrong.status, wrong.reward) == (Status.WRONG, 0.0)


@pytest.mark.parametrize(
    ("program", "evidence"),
    [
        ("def f(x: return x", "syntax error: "),
        ("import nothing_of_this_name", "error on load: ModuleNotFoundError"),
        ("def g(x): return x", "no entry point: the program defines no f"),
        ("def f(x): return x + 2", "wrong answer: case 2 of 2: got 5, expected 9"),
        ("def f(x): return object()", "no plain data: case 1 of 2: the function returned a object"),
        ("def f(x):\n    return 1 / 0", "raised: case 1 of 2: ZeroDivisionError: division by zero (line 2)"),
        ("def f(x): raise SystemExit(3)", "ended early: case 1 of 2: SystemExit: 3 (line 1)"),
        ("import os\ndef f(x): os._exit(3)", "ended early: case 1 of 2: the program ended with exit status 3 before"),
        ("import os\nos.abort()", "ended early: loading: the program was killed by SIGABRT before"),
        ("def f(x): return 'x' * (2 << 20)", "too much output: case 1 of 2: the program answered with more than"),
        ("def f(x): return bytearray(1 << 30)", "memory: case 1 of 2: MemoryError"),
    ],
)
def test_what_a_function_did_instead_is_told_apart(program: str, evidence: str):
    verdict = judge(program)
    assert verdict.status is Status.WRONG
    assert verdict.evidence.startswith(evidence), verdict.evidence


@pytest.mark.parametrize(
    ("program", "evidence"),
    [
        ("print(4", "syntax error: case 1 of 2: the program ended with exit status 1: SyntaxError"),
        ("print(4)", "wrong answer: case 2 of 2: wrote '4\\n', expected '9\\n'"),
        ("print(int(input()) ** 2)\nraise SystemExit(3)", "crash: case 1 of 2: the program ended with exit status 3"),
        ("1 / 0", "crash: case 1 of 2: the program ended with exit status 1: ZeroDivisionError: division by zero"),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
            "crash: case 1 of 2: the program was killed by SIG",
        ),
        ("x = bytearray(1 << 30)", "memory: case 1 of 2: the program ended with exit status 1: MemoryError"),
        ("while True: print('x' * 999)", "too much output: case 1 of 2: the program wrote more than 1048576 bytes"),
    ],
)
def test_what_a_script_did_instead_is_told_apart(program: str, evidence: str):
    verdict = judge(program, task("stdin"))
    assert verdict.status is Status.WRONG
    assert verdict.evidence.startswith(evidence), verdict.evidence


@pytest.mark.parametrize("mode", RIGHT)
def test_a_hang_is_a_time_out_of_the_program(mode: str):
    verdict = judge("while True: pass", task(mode, timeout_s=0.5))
    assert verdict.status is Status.WRONG
    assert verdict.evidence.startswith("time-out: ")


def test_time_for_all_cases_together_is_limited():
    slow = CodeVerifier(CodeSettings(carrier="text", timeout_s=5, total_timeout_s=1.0, sandbox=SANDBOX))
    tests = [{"args": [number], "expected": number} for number in range(20)]
    verdict = judge("import time\ndef f(x): time.sleep(0.2); return x", task(tests=tests), slow)
    assert verdict.evidence.startswith("time-out: case ")


@pytest.mark.parametrize(
    ("tests", "evidence"),
    [
        ("assert f(2) == 4\nassert f(3) == 10", "test failed: tests line 2: assert f(3) == 10"),
        ("x = f(2)\nassert x[0] == 4", "test failed: TypeError: 'int' object is not subscriptable; tests line 2"),
        ("assert helper(2) == 4 and f(2) == 4", "test failed: NameError: neither the tests nor the program define"),
    ],
)
def test_a_failed_test_names_its_line(tests: str, evidence: str):
    verdict = judge(RIGHT["assert"], task("assert", tests=tests))
    assert verdict.status is Status.WRONG
    assert verdict.evidence.startswith(evidence), verdict.evidence


@pytest.mark.parametrize(
    ("tests", "needle"),
    [
        ("assert f(", "tests.py"),
        ("f(2)", "assert nothing"),
        ("assert True", "never call"),
        ("def check(candidate):\n    assert True", "never call"),
        ("import no_such_module\nassert f(2) == 4", "no_such_module"),
        ("assert f(object()) == 4", "cannot be sent"),
        ("import sys\nsys.exit(0)\nassert f(2) == 4", "SystemExit"),
        ("import os\nos._exit(0)\nassert f(2) == 4", "without a report"),
    ],
)
def test_tests_that_cannot_be_used_judge_nobody(tests: str, needle: str):
    for program in (RIGHT["assert"], "def f(x): return 0"):
        verdict = judge(program, task("assert", tests=tests))
        assert (verdict.status, verdict.reward, verdict.cause) == (Status.NO_VERDICT, None, "bad_gold")
        assert needle in verdict.evidence


@pytest.mark.parametrize(
    "tests",
    [
        "def check(candidate):\n    assert candidate(2) == 4\n",
        "def check(candidate):\n    assert candidate(2) == 4\ncheck(f)\n",
        "def test_two():\n    assert f(2) == 4\ndef test_three():\n    assert f(3) == 9\n",
        "for x in range(5):\n    assert candidate(x) == x * x\n",
    ],
)
def test_ways_to_write_tests(tests: str):
    assert judge(RIGHT["assert"], task("assert", tests=tests)).status is Status.CORRECT
    assert judge("def f(x): return 0", task("assert", tests=tests)).status is Status.WRONG


def test_helpers_of_the_task_are_not_the_programs():
    tests = "assert near(f(2), 4)\n"
    setup = "def near(a, b):\n    return abs(a - b) < 0.1\n"
    of = task("assert", tests=tests, setup=setup)
    assert judge(RIGHT["assert"], of).status is Status.CORRECT
    assert judge("def near(a, b): return True\ndef f(x): return 99", of).status is Status.WRONG


def test_a_prefix_stands_before_the_completion():
    of = task(prefix="def f(x):\n")
    assert judge("    return x * x\n", of).status is Status.CORRECT


def test_no_program_is_wrong_and_bad_tests_are_no_verdict():
    fenced = CodeVerifier(CodeSettings(sandbox=SANDBOX))
    assert judge("I cannot.", verifier=fenced).evidence == "no program: no code block (py, py3, python, python3)"
    verdict = judge(RIGHT["function"], task(tests=[]))
    assert (verdict.status, verdict.cause) == (Status.NO_VERDICT, "bad_gold")


LANGUAGES = {
    "c": ("gcc", '#include <stdio.h>\nint main() { int x; scanf("%d", &x); printf("%d\\n", x * x); }'),
    "cpp": ("g++", "#include <iostream>\nint main() { int x; std::cin >> x; std::cout << x * x << std::endl; }"),
    "javascript": ("node", 'const x = parseInt(require("fs").readFileSync(0, "utf8")); console.log(x * x);'),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_other_languages(language: str, monkeypatch: pytest.MonkeyPatch):
    tool, source = LANGUAGES[language]
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool}")
    of = task("stdin", language=language, timeout_s=10)
    assert judge(source, of).status is Status.CORRECT
    assert judge(source.replace("x * x", "x + x"), of).evidence.startswith("wrong answer: case 2 of 2: wrote '6\\n'")
    broken = judge("this is no program {", of)
    assert broken.status is Status.WRONG
    assert broken.evidence.startswith("crash" if language == "javascript" else "compile error: ")


def test_a_missing_compiler_is_no_verdict_and_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Any):
    judge(RIGHT["function"])  # the sandbox is running
    monkeypatch.setenv("PATH", str(tmp_path))
    verdict = judge("int main() {}", task("stdin", language="c"))
    assert (verdict.status, verdict.cause) == (Status.NO_VERDICT, "no_compiler")
    assert "apt install gcc" in verdict.evidence


def test_a_compiler_cannot_be_made_to_hang_or_to_read_our_files():
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    impatient = CodeVerifier(CodeSettings(carrier="text", compile_timeout_s=1.0, sandbox=SANDBOX))
    of = task("stdin", language="c")
    assert judge('#include "/dev/zero"', of, impatient).status is Status.WRONG
    verdict = judge(f'#include "{__file__}"', of)
    assert "No such file" in verdict.evidence


# --- many at once -----------------------------------------------------------------------------------------------


def test_equal_programs_are_run_once_also_from_several_threads():
    # A program that is right half of the time by the clock would give different verdicts if it were run again.
    noisy = "import time\ndef f(x):\n    time.sleep(0.3)\n    return time.time_ns()"
    of = task(tests=[{"args": [1], "expected": 0}])
    all_have_asked = threading.Barrier(3)

    class Together(CodeVerifier):
        """Runs nothing before every thread has asked."""

        def _run(self, jobs: dict[str, Any]) -> None:
            all_have_asked.wait(60)
            super()._run(jobs)

    verifier = Together(CodeSettings(carrier="text", sandbox=SANDBOX))
    evidence: list[str] = []

    def work() -> None:
        evidence.extend(verdict.evidence for verdict in verifier.judge([Item(task=of, text=noisy)] * 3))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(evidence) == 9
    assert len(set(evidence)) == 1


def test_the_same_program_with_other_tests_is_another_one():
    other = dataclasses.replace(task(), meta=task().meta | {"tests": [{"args": [2], "expected": 5}]})
    first, second = VERIFIER.judge(
        [Item(task=task(), text=RIGHT["function"]), Item(task=other, text=RIGHT["function"])]
    )
    assert (first.status, second.status) == (Status.CORRECT, Status.WRONG)


def test_verdicts_come_in_the_order_of_the_items():
    programs = [f"def f(x): return x * x + {number % 2}" for number in range(20)]
    verdicts = VERIFIER.judge([Item(task=task(), text=program) for program in programs])
    assert [verdict.reward for verdict in verdicts] == [1.0, 0.0] * 10
    assert VERIFIER.judge([]) == []


def test_a_machine_that_cannot_isolate_is_an_error_and_no_verdict():
    cannot = CodeVerifier(CodeSettings(carrier="text", sandbox=SandboxSettings(bwrap="no-such-bwrap", num_workers=1)))
    for _ in range(2):  # the first failure leaves nothing half done
        with pytest.raises(ConfigError, match=r'sandbox\.isolation = "none"'):
            judge(RIGHT["function"], verifier=cannot)
    with pytest.raises(ConfigError):
        cannot.start()


def test_without_isolation_it_judges_as_well():
    free = CodeVerifier(CodeSettings(carrier="text", sandbox=SandboxSettings(isolation="none", num_workers=1)))
    for mode, program in RIGHT.items():
        assert judge(program, task(mode), free).status is Status.CORRECT
        assert judge("def f(x): return 0", task(mode), free).status is Status.WRONG


def test_verifiers_with_equal_settings_share_their_sandboxes():
    assert shared_pool(SANDBOX) is shared_pool(SandboxSettings.model_validate(SANDBOX.model_dump()))
    assert shared_pool(SANDBOX) is not shared_pool(SandboxSettings(num_workers=1))


# --- in a run ---------------------------------------------------------------------------------------------------


def test_it_is_a_verifier_like_any_other():
    assert isinstance(build_verifier("code", {"timeout_s": 2}), CodeVerifier)
    with pytest.raises(ValueError, match="Did you mean timeout_s"):
        build_verifier("code", {"timeout": 2})
    with Scorer(RewardSettings()) as scorer:
        (verdict,) = scorer.score([Item(task=task(), text="```python\ndef f(x): return x * x\n```")])
    assert (verdict.status, verdict.reward, dict(verdict.components)) == (Status.CORRECT, 1.0, {"correct": 1.0})


def test_reference_solutions_are_checked_before_a_run():
    good = dataclasses.replace(task(), id="good", gold="def f(x): return x * x")
    bad = dataclasses.replace(task(), id="bad", gold="def f(x): return x")
    assert [problem.task_id for problem in check_golds([good, bad])] == ["bad"]


def test_cases_are_judged_in_order():
    rows = [
        {
            "id": "a",
            "mode": "function",
            "entry_point": "f",
            "tests": task().meta["tests"],
            "solution": RIGHT["function"],
        },
        {"mode": "stdin", "tests": task("stdin").meta["tests"], "solution": "print(4)", "time_limit_s": 2},
        {"id": "c", "mode": "function", "entry_point": "f", "tests": [], "solution": "x"},
    ]
    first, second, third = judge_cases(rows, SANDBOX)
    assert set(first) == {"id", "status", "reward", "evidence", "cause", "seconds"}
    assert (first["id"], first["status"], first["reward"], first["cause"]) == ("a", "correct", 1.0, None)
    assert (second["id"], second["status"], second["reward"]) == ("row-2", "wrong", 0.0)
    assert (third["status"], third["reward"], third["cause"]) == ("no_verdict", None, "bad_gold")
    with pytest.raises(ValueError, match="case row-1 needs solution"):
        list(judge_cases([{"mode": "stdin"}]))


def test_many_cases_keep_their_order_over_batches_and_time_limits():
    rows = [
        {
            "id": str(number),
            "mode": "stdin",
            "tests": [{"input": "", "output": f"{number}"}],
            "solution": f"print({number})",
        }
        for number in range(140)
    ]
    for number in range(0, 140, 30):
        rows[number] |= {"time_limit_s": 7, "prior_solution": "print('before')"}
    verdicts = list(judge_cases(rows, SANDBOX))
    assert [verdict["id"] for verdict in verdicts] == [str(number) for number in range(140)]
    assert {verdict["status"] for verdict in verdicts} == {"correct"}
    assert list(judge_cases([], SANDBOX)) == []
