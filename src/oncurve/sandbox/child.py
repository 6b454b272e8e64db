"""The far end of ``FunctionWorker``: a supervisor and the worker that runs the function.

Run by path, standard library only, so that it starts in milliseconds and nothing of the package is in reach.

    parent ──requests──► worker ──replies──► parent          frames of JSON, 8 bytes of length in front
       └────hang-up────► supervisor ──SIGKILL──► worker and everything it started

The supervisor is the leader of an own session and adopts orphans (Linux). It ends when the parent hangs up or dies
or the worker dies, and ends all its descendants first. It runs no foreign code, so nothing can keep it busy. The
worker dies with the supervisor (parent-death signal).
"""

import importlib.util
import inspect
import json
import math
import os
import resource
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

HEADER = struct.Struct(">Q")
POLL_MS = 200
NOT_THE_USERS = "__not_the_users__"
"""A file that defines this name, as True, is never named as the place of an error."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def encode_frame(message: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """One message as bytes. Text is escaped to ASCII, so that lone surrogates survive."""
    body = json.dumps(message, default=default).encode("ascii")
    return HEADER.pack(len(body)) + body


# --- worker -----------------------------------------------------------------------------------------------------


def work(request_fd: int, reply_fd: int, target: dict[str, Any]) -> None:
    """Load the function, say so, then answer one request after the other until the parent hangs up."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a death leaves no file behind
    if target["memory_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_AS, (target["memory_bytes"], target["memory_bytes"]))
    try:
        function = load(Path(target["file"]), target["function"])
    except BaseException as error:  # noqa: BLE001  the border: the failure is reported as data
        _send(reply_fd, encode_frame({"error": describe(error)}))
        return
    _send(reply_fd, encode_frame({"value": None}))
    while (request := _receive(request_fd)) is not None:
        limit_cpu(target["cpu_s"])
        reply = answer(function, request)
        limit_cpu(None)
        _send(reply_fd, reply)


def limit_cpu(seconds: int | None) -> None:
    """Have the kernel end this process (SIGXCPU) after so many more CPU seconds, up to one more; None: never.

    The kernel counts whole seconds of the process's life, so each call starts a new count behind what was used.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    wanted = hard if seconds is None else math.ceil(time.process_time()) + seconds
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if wanted != soft:
        resource.setrlimit(resource.RLIMIT_CPU, (wanted, hard))


def load(file: Path, name: str) -> Callable[..., Any]:
    """Import the file under a name of its own and take the function from it; its folder is importable."""
    module_name = f"user_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    sys.path.insert(0, str(file.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        known = sorted(key for key, value in vars(module).items() if inspect.isfunction(value))
        raise AttributeError(f"{file.name} has no function {name}. It has: {', '.join(known) or 'none'}")
    return function  # type: ignore[no-any-return]


def answer(function: Callable[..., Any], arguments: dict[str, Any]) -> bytes:
    """Call the function and encode its result, or what went wrong."""
    try:
        result = function(**accepted(function, arguments))
        if inspect.isawaitable(result):
            import asyncio  # here, since it would be a third of the start-up time of every worker

            result = asyncio.run(_finish(result))
        return encode_frame({"value": result}, default=plain)
    except BaseException as error:  # noqa: BLE001  the border: the failure is reported as data
        failure = {"error": describe(error)}
        return encode_frame(failure | {"cause": "memory"} if isinstance(error, MemoryError) else failure)


def accepted(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that the function names, or all of them when it takes ``**columns``."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return arguments
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in arguments]
    if missing:
        raise TypeError(f"no column for the parameter {', '.join(missing)}. There are: {', '.join(arguments)}")
    return {p.name: arguments[p.name] for p in parameters if p.name in arguments}


async def _finish(result: Any) -> Any:
    return await result


def plain(value: Any) -> Any:
    """Arrays and tensors as lists or numbers; anything else as text, which no reader takes for a number."""
    return value.tolist() if callable(getattr(value, "tolist", None)) else f"<{type(value).__name__}>"


def describe(error: BaseException) -> str:
    """The exception in one line, with the place in the user's code: of a syntax error, where it stands."""
    text = traceback.format_exception_only(error)[-1].strip()[:500]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{text} ({Path(error.filename).name}, line {error.lineno})"
    frames = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_users(frame)
    ]
    return f"{text} ({Path(frames[-1][0]).name}, line {frames[-1][1]})" if frames else text


def _is_users(frame: FrameType) -> bool:
    """Not this file, not the machinery of imports, not a file of ours that says so of itself."""
    file = frame.f_code.co_filename
    return file != __file__ and not file.startswith("<frozen ") and not frame.f_globals.get(NOT_THE_USERS, False)


def _send(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _receive(fd: int) -> dict[str, Any] | None:
    header = _read(fd, HEADER.size)
    body = _read(fd, HEADER.unpack(header)[0]) if header else None
    return None if body is None else json.loads(body)


def _read(fd: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = os.read(fd, min(size - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)


# --- supervisor -------------------------------------------------------------------------------------------------


class _Stop(Exception):  # noqa: N818  a request, not an error
    """The parent asked for the end."""


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second request must not interrupt the ending
    raise _Stop


def supervise(worker: int, request_fd: int, parent: int) -> int:
    """Wait for the end of the parent, of the conversation, or of the worker; then end everything.

    Returns:
        When the worker ended first: its exit status, or 128 + the signal; 0 otherwise.
    """
    status = 0
    try:
        signal.signal(signal.SIGTERM, _stop)
        poller = select.poll()
        poller.register(request_fd, 0)  # only the hang-up, which poll always reports
        while not poller.poll(POLL_MS) and os.getppid() == parent:
            if (end := os.waitid(os.P_PID, worker, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                status = end.si_status if end.si_code == os.CLD_EXITED else 128 + end.si_status
                break
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except _Stop:
        pass
    end_descendants(worker)
    return status


def end_descendants(worker: int) -> None:
    """Kill the worker's group, then every child; orphans of the killed become children and follow."""
    with suppress(ProcessLookupError):
        os.killpg(worker, signal.SIGKILL)
    while True:
        for pid in children():
            os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def children() -> list[int]:
    """Process ids of the living or unreaped children of this process (Linux; elsewhere none are found)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if fields[1] == str(os.getpid()) and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; systems other than Linux have none."""
    if sys.platform == "linux":
        import ctypes  # not needed by the parent, which imports this file for its frames

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main() -> None:
    target = json.loads(sys.argv[1])
    request_fd, reply_fd = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)  # what the function prints never meets the replies
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    supervisor = os.getpid()
    worker = os.fork()
    if worker == 0:
        os.setpgid(0, 0)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == supervisor:
            work(request_fd, reply_fd, target)
        os._exit(0)
    os.close(reply_fd)
    os._exit(supervise(worker, request_fd, target["parent"]))


if __name__ == "__main__":
    main()
