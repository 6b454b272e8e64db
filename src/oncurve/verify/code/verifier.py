"""The ``code`` verifier: does the program do what the tests say?"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from oncurve.sandbox import Jail, JailError, JailPool, shared_pool
from oncurve.types import Task, Verdict
from oncurve.verify.code.asserts import judge_asserts
from oncurve.verify.code.extract import extract_program
from oncurve.verify.code.functions import judge_function
from oncurve.verify.code.outcome import Failed, Outcome, Passed, Unusable
from oncurve.verify.code.scripts import judge_script
from oncurve.verify.code.settings import CodeSettings
from oncurve.verify.code.tasks import BadTaskError, CodeTask, read_task
from oncurve.verify.items import Item, correct, no_verdict, wrong

_JUDGES: dict[str, Callable[[Jail, str, CodeTask, CodeSettings], Outcome]] = {
    "function": judge_function,
    "stdin": judge_script,
    "assert": judge_asserts,
}


class CodeVerifier:
    """Run the program of a completion in a sandbox, give it inputs, and compare its outputs outside.

    Correct: every test passed. Wrong: whatever the program did instead, told apart in the evidence (``syntax error``,
    ``wrong answer``, ``raised``, ``time-out``, ``memory``, ``too much output``, ``crash``, ``ended early``, ...). No
    verdict: the tests cannot be used (``bad_gold``), a compiler is missing (``no_compiler``), or the sandbox failed
    twice (``crash``).

    Equal programs with equal tests are run once, also when several threads ask at the same time. Everything that a
    program started has ended when its verdict is returned.

    Raises (from ``judge`` and ``start``):
        ConfigError: programs cannot be isolated here, and ``sandbox.isolation`` does not say to do without.
    """

    name = "code"

    def __init__(self, settings: CodeSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._running: dict[str, Future[Verdict]] = {}
        self.sandboxed: set[str] | None = None
        """Where somebody puts a set: the programs, with their tests, that the sandbox has run since then."""

    def start(self) -> None:
        """Start one sandbox, to see now and not later whether programs can be isolated."""
        self._pool().start()

    def state_gold(self, task: Task) -> str:
        """The reference solution the way a completion would write it."""
        if (task.meta.get("carrier") or self.settings.carrier) != "fence":
            return task.gold
        return f"```{task.meta.get('language') or 'python'}\n{task.gold}\n```"

    def gold_fault(self, task: Task) -> str:
        """Why nobody could be judged by the task's tests, whether there is a reference solution or not."""
        try:
            read_task(task, self.settings)
        except BadTaskError as error:
            return str(error)
        return ""

    def num_distinct(self, items: Sequence[Item]) -> int:
        """Different programs with their tests among the completions; those without a program do not count."""
        return len({repr(ready) for item in items if not isinstance(ready := self._program(item), Verdict)})

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        verdicts: list[Verdict | Future[Verdict]] = []
        jobs: dict[str, tuple[str, CodeTask]] = {}
        for item in items:
            ready = self._program(item)
            if isinstance(ready, Verdict):
                verdicts.append(ready)
                continue
            key = repr(ready)
            future, is_mine = self._claim(key)
            verdicts.append(future)
            if is_mine:
                jobs[key] = ready
        self._run(jobs)
        return [verdict.result() if isinstance(verdict, Future) else verdict for verdict in verdicts]

    def _pool(self) -> JailPool:
        return shared_pool(self.settings.sandbox)

    def _program(self, item: Item) -> tuple[str, CodeTask] | Verdict:
        try:
            task = read_task(item.task, self.settings)
        except BadTaskError as error:
            return no_verdict("bad_gold", str(error))
        extracted = extract_program(item.text, task.language, task.carrier, self.settings.thinking_tag)
        if extracted.program is None:
            return wrong(f"no program: {extracted.reason}")
        return task.prefix + extracted.program, task

    def _claim(self, key: str) -> tuple[Future[Verdict], bool]:
        with self._lock:
            if key in self._running:
                return self._running[key], False
            future: Future[Verdict] = Future()
            self._running[key] = future
            return future, True

    def _run(self, jobs: dict[str, tuple[str, CodeTask]]) -> None:
        """Do the jobs and answer everybody who waits for them, also when that fails."""
        try:
            results = self._pool().map([partial(self._do, source, task) for source, task in jobs.values()])
        except BaseException as error:
            for key in jobs:
                self._release(key).set_exception(error)
            raise
        for key, result in zip(jobs, results, strict=True):
            self._release(key).set_result(no_verdict("crash", str(result)) if isinstance(result, JailError) else result)

    def _release(self, key: str) -> Future[Verdict]:
        with self._lock:
            return self._running.pop(key)

    def _do(self, source: str, task: CodeTask, jail: Jail) -> Verdict:
        started = time.perf_counter()
        if self.sandboxed is not None:
            self.sandboxed.add(repr((source, task)))
        verdict = _verdict(_JUDGES[task.mode](jail, source, task, self.settings))
        return replace(verdict, seconds=time.perf_counter() - started)


def _verdict(outcome: Outcome) -> Verdict:
    match outcome:
        case Passed(evidence):
            return correct(evidence)
        case Failed(evidence):
            return wrong(evidence)
        case Unusable(cause, evidence):
            return no_verdict(cause, evidence)
