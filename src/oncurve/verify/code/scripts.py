"""Mode ``stdin``: run the program once for each input, in a process of its own, and compare what it prints."""

import time

from oncurve.sandbox import Jail, Output, Program, ProgramFaultError, Streams
from oncurve.verify.code.compare import same_text
from oncurve.verify.code.languages import Command, prepare
from oncurve.verify.code.outcome import FAULTS, Failed, Outcome, Passed, failed_by
from oncurve.verify.code.settings import CodeSettings
from oncurve.verify.code.tasks import CodeTask, Run


def judge_script(jail: Jail, source: str, task: CodeTask, settings: CodeSettings) -> Outcome:
    """Run the program on each input until one fails. Right output with a failing exit status is a failure.

    Raises:
        JailError: the sandbox failed.
    """
    last = time.monotonic() + settings.total_timeout_s
    command = prepare(jail, source, task.language, settings, task.timeout_s)
    if not isinstance(command, Command):
        return command
    for number, run in enumerate(task.cases, 1):
        where = f"case {number} of {len(task.cases)}"
        if isinstance(run, Run) and (failure := _judge_run(jail, command, run, task, settings, last, where)):
            return failure
    return Passed(f"{len(task.cases)} of {len(task.cases)} cases passed")


def _judge_run(
    jail: Jail, command: Command, run: Run, task: CodeTask, settings: CodeSettings, last: float, where: str
) -> Failed | None:
    deadline = min(last, time.monotonic() + task.timeout_s)
    try:
        output = _output(jail, command, run, deadline, max(settings.sandbox.max_output_bytes, 2 * len(run.output)))
    except ProgramFaultError as fault:
        return failed_by(fault, where)
    if output.ending.status != 0:
        return Failed(f"{_kind(output)}: {where}: the program {output.ending}{_last_line(output.err)}")
    got = output.out.decode("utf-8", "surrogateescape")
    if same_text(run.output, got, task.comparison):
        return None
    return Failed(f"wrong answer: {where}: wrote {_shown(got)}, expected {_shown(run.output)}")


def _output(jail: Jail, command: Command, run: Run, deadline: float, max_bytes: int) -> Output:
    streams = Streams(run.input)
    try:
        with Program(jail, command.kind, command.limits, streams.theirs, (0, 1, 2)) as program:
            program.send(command.message, deadline)
            return program.communicate(streams, deadline, max_bytes)
    finally:
        streams.close()


def _kind(output: Output) -> str:
    """What the end of a program tells by itself, with its last words for the rest."""
    if output.ending.exceeded:
        return FAULTS[output.ending.exceeded]
    words = _last_line(output.err)
    if "SyntaxError" in words or "IndentationError" in words:
        return "syntax error"
    if "MemoryError" in words or "bad_alloc" in words:
        return "memory"
    return "crash"


def _last_line(err: bytes) -> str:
    lines = err.decode("utf-8", "replace").strip().splitlines()
    return f": {lines[-1][:160]}" if lines else ""


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:79]!r}… ({len(text)} characters)"
