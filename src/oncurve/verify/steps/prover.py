"""A proof assistant as a step checker: an external command in the sandbox. Fallible, and optional.

The statement comes from the task and the theorem's name is drawn anew for each proof, so a completion can neither
change what is proved nor write the report on it.
"""

import re
import secrets
import shutil
import time
from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from oncurve.sandbox import (
    Jail,
    JailError,
    Output,
    Program,
    ProgramFaultError,
    SandboxSettings,
    Streams,
    run_limits,
    shared_pool,
)
from oncurve.types import ConfigError, Task
from oncurve.verify.items import Item, one_line
from oncurve.verify.steps.lean import (
    ALLOWED_AXIOMS,
    FORBIDDEN_SIGNS,
    FORBIDDEN_WORDS,
    TEMPLATE,
    axioms_of,
    forbidden_in,
)
from oncurve.verify.steps.protocol import Checked, CheckedStep, StepStatus, Unchecked
from oncurve.verify.steps.verifier import StepRewardSettings, StepsVerifier

_SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib64")))
_FIELD = re.compile(r"\{(preamble|name|statement|proof)\}")
_FENCE = re.compile(r"^```[^\n`]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


class ProverSettings(StepRewardSettings):
    """Which prover, what it is given, and what counts as proved. The defaults are Lean 4's."""

    command: tuple[str, ...] = Field(("lean", "{file}"), min_length=1)
    """The program and its arguments; no shell reads them. ``{file}`` is the name of the file with the proof."""

    file_name: str = Field("Proof.lean", pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    """Name of that file."""

    template: str = TEMPLATE
    """The file: ``{preamble}`` and ``{statement}`` are the task's, from its ``meta``; ``{name}`` is a fresh name;
    ``{proof}`` is the completion's."""

    report: Literal["lean_axioms", "output", "exit_status"] = "lean_axioms"
    """``lean_axioms``: exit status 0, and Lean's report on the theorem names allowed axioms only. ``output``: exit
    status 0, and what it prints holds ``accepted_output`` once and no ``refused_output``. ``exit_status``: the status
    alone, which a prover that accepts gaps makes worthless."""

    accepted_output: str = ""
    """Regular expression, for ``output``: what the prover prints of a proof that it accepts."""

    refused_output: str = ""
    """Regular expression, for ``output``: what it prints of gaps and errors, also beside the other. A prover that
    repeats the proof in its messages would otherwise print what the proof wants it to."""

    allowed_axioms: tuple[str, ...] = ALLOWED_AXIOMS
    """What a proof may rest on, for ``lean_axioms``."""

    forbidden_words: tuple[str, ...] = FORBIDDEN_WORDS
    """A proof with one of these words is wrong, unread."""

    forbidden_signs: tuple[str, ...] = FORBIDDEN_SIGNS
    """A proof that holds one of these anywhere is wrong, unread."""

    carrier: Literal["fence", "text"] = "fence"
    """``fence``: the last fenced code block. ``text``: the whole completion is the proof."""

    thinking_tag: str = Field("think", pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    """Nothing inside this tag is a proof; when it is never closed there is none."""

    timeout_s: float = Field(60.0, gt=0, le=3600)
    """Wall seconds for one proof."""

    sandbox: SandboxSettings = SandboxSettings(memory_bytes=8 * 1024**3)
    """Isolation and limits. A prover outside /usr needs its installation in ``read_only_paths``."""

    @field_validator("template")
    @classmethod
    def _has_its_fields(cls, template: str) -> str:
        if missing := {"name", "statement", "proof"} - set(_FIELD.findall(template)):
            raise ValueError(f"the template lacks {', '.join(f'{{{name}}}' for name in sorted(missing))}")
        return template

    @field_validator("accepted_output", "refused_output")
    @classmethod
    def _is_a_pattern(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        return pattern

    @model_validator(mode="after")
    def _says_what_it_looks_for(self) -> Self:
        if self.report == "output" and not self.accepted_output:
            raise ValueError('report = "output" needs accepted_output: what the prover prints of a proof it accepts')
        return self


class ProverChecker:
    """Has a prover check the one step that a completion is: its proof.

    Right: the prover accepts it. Wrong: it does not, or the proof holds what is refused unread. Unchecked: the task has
    no ``meta["statement"]`` (``bad_gold``), no end in time (``timeout``), a limit was met (``limit``), the prover died
    (``crash``) or reported nothing on the theorem (``bad_report``).

    Raises:
        ConfigError: the prover is not installed, or the sandbox does not show it.
    """

    name = "prover"

    def __init__(self, settings: ProverSettings) -> None:
        self.settings = settings
        self._program = find_program(settings)

    def check(self, items: Sequence[Item]) -> list[Checked]:
        """Raises ``ConfigError`` when programs cannot be isolated here."""
        checked: list[Checked] = [()] * len(items)
        jobs: dict[int, tuple[str, str]] = {}
        for place, item in enumerate(items):
            proof = find_proof(item.text, self.settings)
            statement = item.task.meta.get("statement")
            if not isinstance(statement, str):
                checked[place] = Unchecked("bad_gold", f"task {item.task.id} has no text meta.statement to prove")
            elif proof is None:
                checked[place] = ()
            elif refused := forbidden_in(proof, self.settings.forbidden_words, self.settings.forbidden_signs):
                checked[place] = (_step(proof, StepStatus.WRONG, f"it contains {', '.join(refused[:5])}"),)
            else:
                name = fresh_name()
                jobs[place] = (name, write_file(item.task, proof, self.settings.template, name))
        results = shared_pool(self.settings.sandbox).map([partial(self._prove, *job) for job in jobs.values()])
        for place, result in zip(jobs, results, strict=True):
            checked[place] = Unchecked("crash", str(result)) if isinstance(result, JailError) else result
        return checked

    def _prove(self, name: str, file: str, jail: Jail) -> Checked:
        try:
            output = self._run(file, jail)
        except ProgramFaultError as fault:
            return Unchecked("timeout" if fault.kind == "timeout" else "limit", f"the prover: {fault}")
        if output.ending.status is None or output.ending.status < 0 or output.ending.exceeded:
            return Unchecked("limit" if output.ending.exceeded else "crash", f"the prover {output.ending}")
        said = (output.out + b"\n" + output.err).decode("utf-8", "replace")
        if output.ending.status == 127:
            return Unchecked("crash", f"the prover did not start: {one_line(said.strip(), 160)}")
        if output.ending.status != 0:
            return (_step(name, StepStatus.WRONG, f"the prover refuses it: {_first_error(said)}"),)
        return self._accepted(name, said)

    def _accepted(self, name: str, said: str) -> Checked:
        if self.settings.report == "exit_status":
            return (_step(name, StepStatus.RIGHT, ""),)
        if self.settings.report == "output":
            return self._said(name, said)
        axioms = axioms_of(said, name)
        if axioms is None:
            return Unchecked("bad_report", "the prover did not report once on what the proof rests on")
        foreign = sorted(set(axioms) - set(self.settings.allowed_axioms))
        if foreign:
            return (_step(name, StepStatus.WRONG, f"it rests on {', '.join(foreign)}"),)
        return (_step(name, StepStatus.RIGHT, ""),)

    def _said(self, name: str, said: str) -> Checked:
        settings = self.settings
        if settings.refused_output and (refused := re.search(settings.refused_output, said)):
            return (_step(name, StepStatus.WRONG, f"the prover says {one_line(refused[0], 160)}"),)
        if len(re.findall(settings.accepted_output, said)) != 1:
            return Unchecked("bad_report", f"the prover did not print {settings.accepted_output!r} once")
        return (_step(name, StepStatus.RIGHT, ""),)

    def _run(self, file: str, jail: Jail) -> Output:
        settings = self.settings
        deadline = time.monotonic() + settings.timeout_s
        argv = [self._program, *(word.replace("{file}", settings.file_name) for word in settings.command[1:])]
        packed = b64encode(file.encode("utf-8", "surrogatepass")).decode("ascii")
        limits = run_limits(settings.sandbox, settings.timeout_s, address_space=False)
        streams = Streams(b"")
        try:
            with Program(jail, "command", limits, streams.theirs, (0, 1, 2)) as program:
                program.send({"files": {settings.file_name: packed}, "argv": argv}, deadline)
                return program.communicate(streams, deadline, settings.sandbox.max_output_bytes)
        finally:
            streams.close()


class ProverVerifier(StepsVerifier):
    """A prover as the task's verifier: reward 1 for a proof of ``meta["statement"]``."""

    name = ProverChecker.name

    def __init__(self, settings: ProverSettings) -> None:
        super().__init__(ProverChecker(settings), settings)
        self._carrier = settings.carrier

    def state_gold(self, task: Task) -> str:
        """The gold proof the way a completion would write it."""
        return task.gold if self._carrier == "text" else f"```\n{task.gold}\n```"


def find_program(settings: ProverSettings) -> str:
    """The prover's absolute path.

    Raises:
        ConfigError: it is not installed, or the sandbox does not show it.
    """
    word = settings.command[0]
    found = shutil.which(word)
    if found is None:
        raise ConfigError(
            f"there is no prover {word!r} on PATH. Install it (Lean 4: https://lean-lang.org/install), name it by its "
            "path in the option command of the prover, or leave the tasks out that need it: nothing else does."
        )
    path = Path(found).absolute()
    shown = (*_SYSTEM, *settings.sandbox.read_only_paths)
    is_hidden = path.is_relative_to("/tmp") or not any(path.is_relative_to(place) for place in shown)  # noqa: S108
    if settings.sandbox.isolation == "namespaces" and is_hidden:
        raise ConfigError(
            f"the prover {path} is not to be seen in the sandbox, which shows /usr and what sandbox.read_only_paths "
            "names, outside /tmp. Add the directory of its installation there; with elan that is the toolchain, and "
            "command names bin/lean in it."
        )
    return str(path)


def find_proof(text: str, settings: ProverSettings) -> str | None:
    """The proof of a completion: after the thinking, in the last fenced block or all of it. None: there is none."""
    text = text.rpartition(f"</{settings.thinking_tag}>")[2]
    if f"<{settings.thinking_tag}>" in text:
        return None
    if settings.carrier == "text":
        return text.strip() or None
    blocks = _FENCE.findall(text)
    return (blocks[-1].strip() or None) if blocks else None


def write_file(task: Task, proof: str, template: str, name: str) -> str:
    """Fill the template in one pass, so that nothing in a proof is taken for a field of it."""
    values = {
        "preamble": str(task.meta.get("preamble", "")),
        "statement": str(task.meta["statement"]),
        "name": name,
        "proof": proof,
    }
    return _FIELD.sub(lambda field: values[field[1]], template)


def fresh_name() -> str:
    """A theorem name that no completion can know."""
    return f"oncurve_{secrets.token_hex(8)}"


def _step(text: str, status: StepStatus, evidence: str) -> CheckedStep:
    return CheckedStep(text=one_line(text, 120), status=status, evidence=evidence)


def _first_error(said: str) -> str:
    lines = said.strip().splitlines() or ["it says nothing"]
    return one_line(next((line for line in lines if "error" in line.lower()), lines[0]), 160)
