"""Mode ``function``: call the program's function case by case and compare what it returns, out here."""

import json
import secrets
import time
from typing import Any

from oncurve.sandbox import Jail, Program, ProgramFaultError, run_limits
from oncurve.verify.code.compare import same_value
from oncurve.verify.code.outcome import Failed, Outcome, Passed, failed_by
from oncurve.verify.code.settings import CodeSettings
from oncurve.verify.code.tasks import Call, CodeTask

_STAGES = {"syntax": "syntax error", "load": "error on load", "entry": "no entry point"}


def judge_function(jail: Jail, source: str, task: CodeTask, settings: CodeSettings) -> Outcome:
    """Run one process for the program, and send it one case at a time: each only after the one before is answered.

    Raises:
        JailError: the sandbox failed.
    """
    last = time.monotonic() + settings.total_timeout_s
    where = "loading"
    with Program(jail, "host", run_limits(settings.sandbox, settings.total_timeout_s)) as program:
        session = _Session(program, task, last, settings.sandbox.max_output_bytes)
        try:
            failure = session.load(source)
            for number, case in enumerate(task.cases, 1):
                if failure is not None:
                    break
                where = f"case {number} of {len(task.cases)}"
                failure = session.judge(case, where) if isinstance(case, Call) else None
        except ProgramFaultError as fault:
            return failed_by(fault, where)
    return failure or Passed(f"{len(task.cases)} of {len(task.cases)} cases passed")


class _Session:
    def __init__(self, program: Program, task: CodeTask, last: float, max_bytes: int) -> None:
        self._program, self._task, self._last, self._max_bytes = program, task, last, max_bytes

    def load(self, source: str) -> Failed | None:
        first = {"source": source, "entry": self._task.entry_point, "keeps_objects": False}
        reply = self._exchange(first)
        return loading_failure(reply) if "ready" not in reply else None

    def judge(self, case: Call, where: str) -> Failed | None:
        # The number is drawn after the case before was answered: an answer written in advance is none.
        number = secrets.token_hex(8)
        request = {"id": number, "op": "call", "target": self._task.entry_point}
        reply = self._exchange(request | {"args": case.args, "kwargs": case.kwargs})
        if reply.get("id") != number:
            raise ProgramFaultError("protocol", "it answered what was not asked")
        if "value" not in reply:
            return _no_value(reply, where)
        if same_value(case.expected, reply["value"], self._task.comparison):
            return None
        return Failed(f"wrong answer: {where}: got {_shown(reply['value'])}, expected {_shown(case.expected)}")

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        deadline = min(self._last, time.monotonic() + self._task.timeout_s)
        self._program.send(message, deadline)
        reply = self._program.receive(deadline, self._max_bytes)
        if not isinstance(reply, dict):
            raise ProgramFaultError("protocol", "it wrote what is no answer")
        return reply


def loading_failure(reply: dict[str, Any]) -> Failed:
    """Why the program's text did not load, by its own account."""
    stage = _STAGES.get(str(reply.get("failed")), "error on load")
    text = str(reply.get("text", ""))
    return Failed(f"{'memory' if text.startswith('MemoryError') else stage}: {text}")


def _no_value(reply: dict[str, Any], where: str) -> Failed:
    if "ended" in reply:
        return Failed(f"ended early: {where}: {reply['ended']}")
    if "unplain" in reply:
        return Failed(f"no plain data: {where}: the function returned a {reply['unplain']}")
    text = str(reply.get("text", ""))
    return Failed(f"{'memory' if text.startswith('MemoryError') else 'raised'}: {where}: {text}")


def _shown(tree: Any) -> str:
    text = json.dumps(tree, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"
