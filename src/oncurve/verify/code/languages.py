"""How a program of each language becomes a command: an interpreter, or a compiler and what it makes."""

import shutil
import time
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncurve.sandbox import Jail, Program, ProgramFaultError, run_limits
from oncurve.verify.code.outcome import Failed, Unusable, failed_by
from oncurve.verify.code.settings import CodeSettings
from oncurve.verify.code.tasks import Language

_MAX_MADE_BYTES = 32 * 1024**2
_STACK_BYTES = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class _Toolchain:
    tools: tuple[str, ...]
    """Names to look for on PATH, in order."""
    file: str
    flags: tuple[str, ...] = ()
    remedy: str = ""


_TOOLCHAINS: dict[str, _Toolchain] = {
    "c": _Toolchain(("gcc", "cc", "clang"), "main.c", ("-O2", "-std=gnu17", "-w", "-lm"), "apt install gcc"),
    "cpp": _Toolchain(("g++", "c++", "clang++"), "main.cpp", ("-O2", "-std=gnu++17", "-w"), "apt install g++"),
    "javascript": _Toolchain(("node", "nodejs"), "main.js", (), "apt install nodejs"),
}


@dataclass(frozen=True, slots=True)
class Command:
    """What runs a program once for one input."""

    kind: str
    """The runner in the sandbox: ``script`` (Python) or ``command``."""
    message: dict[str, Any]
    """What the runner is told: the source, or files and arguments."""
    limits: dict[str, Any]


def prepare(
    jail: Jail, source: str, language: Language, settings: CodeSettings, seconds: float
) -> Command | Failed | Unusable:
    """Make the command of a program; compile it in the sandbox where its language is compiled.

    Raises:
        JailError: the sandbox failed.
    """
    if language == "python":
        return Command("script", {"source": source}, run_limits(settings.sandbox, seconds))
    chain = _TOOLCHAINS[language]
    tool = next((str(Path(found).resolve()) for name in chain.tools if (found := shutil.which(name))), None)
    if tool is None:
        return Unusable(
            "no_compiler",
            f"{language} programs need {' or '.join(chain.tools)} on PATH, which this machine does not have: "
            f"{chain.remedy}, or leave {language} tasks out",
        )
    files = {chain.file: _packed(source.encode("utf-8", "surrogatepass"))}
    if language == "javascript":
        limits = run_limits(settings.sandbox, seconds, address_space=False)
        return Command("command", {"files": files, "argv": [tool, chain.file]}, limits)
    return _compile(jail, [tool, chain.file, "-o", "program", *chain.flags], files, settings, seconds)


def _compile(
    jail: Jail, argv: list[str], files: dict[str, str], settings: CodeSettings, seconds: float
) -> Command | Failed:
    timeout_s = settings.compile_timeout_s
    deadline = time.monotonic() + timeout_s
    message = {"files": files, "argv": argv, "makes": "program", "max_bytes": _MAX_MADE_BYTES}
    with Program(jail, "build", run_limits(settings.sandbox, timeout_s)) as compiler:
        try:
            compiler.send(message, deadline)
            reply = compiler.receive(deadline, 2 * _MAX_MADE_BYTES)
        except ProgramFaultError as fault:
            return failed_by(fault, "compiling")
    if not isinstance(reply, dict) or reply.get("status") != 0:
        said = str(reply.get("messages", "")) if isinstance(reply, dict) else ""
        return Failed(f"compile error: {' '.join(said.split())[:200]}")
    limits = run_limits(settings.sandbox, seconds, stack_bytes=_STACK_BYTES)
    return Command("command", {"files": {"program": reply["made"]}, "argv": ["./program"]}, limits)


def _packed(data: bytes) -> str:
    return b64encode(data).decode("ascii")
