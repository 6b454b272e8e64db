"""A program under test with standard input and output, a compiler, and a compiled program.

Source, files and arguments come on the channel, which is closed before anything of the program runs.
"""

import atexit
import binascii
import os
import sys
import types
from typing import Any, NoReturn

from . import confine, frames

MAX_REQUEST_BYTES = 64 * 1024**2
FILE = "main.py"


def run(_request: dict[str, Any]) -> NoReturn:
    """Run a Python program as a script and end as the interpreter would."""
    source = frames.Stream(confine.CHANNEL, MAX_REQUEST_BYTES).receive()["source"]
    os.close(confine.CHANNEL)
    with open(FILE, "w", encoding="utf-8", errors="surrogatepass") as file:  # noqa: PTH123
        file.write(source)
    module = types.ModuleType("__main__")
    module.__dict__["__file__"] = FILE
    sys.modules["__main__"] = module
    sys.argv[:] = [FILE]
    _end(_status_of(source, module))


def _status_of(source: str, module: types.ModuleType) -> int:
    try:
        exec(compile(source, FILE, "exec"), module.__dict__)  # noqa: S102  what this process is for
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001  the border: printed as the interpreter prints it
        import traceback  # only programs that fail pay for it

        shown = error.__traceback__.tb_next if error.__traceback__ is not None else None
        traceback.print_exception(type(error), error, shown)
        return 1
    return 0


def _end(status: int) -> NoReturn:
    """What the interpreter does at its end, without taking itself apart: threads, exit functions, buffers."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001  the border: an exit status
        status = status or 120
    try:
        sys.stderr.flush()
    finally:
        os._exit(status & 0xFF)


def execute(_request: dict[str, Any]) -> NoReturn:
    """Write the files that come on the channel and become the command."""
    _, argv = _receive_files()
    os.close(confine.CHANNEL)
    try:
        os.execv(argv[0], argv)  # noqa: S606  there is no shell, on purpose
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error}\n")
        sys.stderr.flush()
        os._exit(127)


def build(_request: dict[str, Any]) -> NoReturn:
    """Write the files that come on the channel, run the compiler, and send back what it made."""
    request, argv = _receive_files()
    with open("messages", "wb") as messages:  # noqa: PTH123
        actions = [(os.POSIX_SPAWN_DUP2, messages.fileno(), fd) for fd in (1, 2)]
        pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=actions)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    reply: dict[str, Any] = {"status": status, "messages": _read("messages", 4000).decode(errors="replace")}
    if status == 0:
        reply["made"] = binascii.b2a_base64(_read(request["makes"], request["max_bytes"])).decode()
    frames.Stream(confine.CHANNEL, MAX_REQUEST_BYTES).send(reply)
    os._exit(0)


def _receive_files() -> tuple[dict[str, Any], list[str]]:
    request = frames.Stream(confine.CHANNEL, MAX_REQUEST_BYTES).receive()
    for name, body in request["files"].items():
        fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o755)
        with open(fd, "wb") as file:  # noqa: PTH123
            file.write(binascii.a2b_base64(body))
    return request, request["argv"]


def _read(name: str, max_bytes: int) -> bytes:
    with open(name, "rb") as file:  # noqa: PTH123
        return file.read(max_bytes)
