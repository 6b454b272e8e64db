"""Mode ``assert``: run a test text in one process and the program in another, and read the first one's report."""

import time
from typing import Any

from oncurve.sandbox import Jail, Program, ProgramFaultError, run_limits
from oncurve.verify.code.functions import loading_failure
from oncurve.verify.code.outcome import FAULTS, Failed, Outcome, Passed, Unusable, failed_by
from oncurve.verify.code.settings import CodeSettings
from oncurve.verify.code.tasks import CodeTask

_MAX_REPORT_BYTES = 64 * 1024


def judge_asserts(jail: Jail, source: str, task: CodeTask, settings: CodeSettings) -> Outcome:
    """Start the program, start the tests with a link to it, and wait for the report of the tests.

    Raises:
        JailError: the sandbox failed.
    """
    deadline = time.monotonic() + min(task.timeout_s, settings.total_timeout_s)
    limits = run_limits(settings.sandbox, task.timeout_s)
    with Program(jail, "host", limits) as program, Program(jail, "test", limits, [program.hand_over()], [4]) as tests:
        try:
            tests.send(_message(source, task, settings), deadline)
            report = tests.receive(deadline, _MAX_REPORT_BYTES)
        except ProgramFaultError as fault:
            if fault.kind in ("timeout", "memory", "processes"):  # what they compare, and wait for, is the program's
                return failed_by(fault, "the tests did not end")
            return Unusable("bad_gold", f"the tests ended without a report: {fault}")
        return _outcome(report, program)


def _message(source: str, task: CodeTask, settings: CodeSettings) -> dict[str, Any]:
    return {
        "tests": task.text,
        "setup": task.setup,
        "max_bytes": settings.sandbox.max_output_bytes,
        "program": {"source": source, "entry": task.entry_point, "keeps_objects": True},
    }


def _outcome(report: dict[str, Any], program: Program) -> Outcome:
    text = str(report["text"])
    outcome = report["outcome"]
    if outcome == "passed":
        return Passed("the tests passed")
    if outcome == "bad_tests":
        return Unusable("bad_gold", f"the tests cannot be used: {text}")
    if outcome == "program":
        return loading_failure({"failed": report["stage"], "text": text})
    if outcome == "failed":
        return Failed(f"{'memory' if text.startswith('MemoryError') else 'test failed'}: {text}")
    ending = program.ending(0.5)
    kind = FAULTS[(ending.exceeded if ending else None) or "ended"]
    return Failed(f"{kind}: {f'the program {ending}; ' if ending else ''}{text}")
