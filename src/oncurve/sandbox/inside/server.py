"""Forks a process for each program and says how it ended.

    grader ──request, descriptors──► server ──clone──► init (process 1 of new namespaces) ──fork──► program
       ◄──────────how it ended──────────┘                └── ends with the program, and everything in there with it

A request holds limits and descriptor numbers only. A program's text and its inputs travel on a channel that was made
for it, past this process: its memory, of which every program gets a copy, holds nothing of any other program.

The program is not process 1, whose default-action signals are ignored. Killing init ends everything that the program
started, wherever it went. Without namespaces (``isolated`` false) there is no init, and descendants are looked for.
"""

import builtins
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from _sitebuiltins import Quitter
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from . import confine, host, preloaded, script, tester, watch  # noqa: F401

MAX_REQUEST_BYTES = 4096
TICK_MS = 25


_RUNNERS = {
    "host": host.run,
    "script": script.run,
    "command": script.execute,
    "build": script.build,
    "test": tester.run,
}


class Child:
    """One running program."""

    def __init__(self, request: dict[str, Any], pid: int, status_fd: int, work_dir: str | None) -> None:
        self.number: int = request["number"]
        self.limits: dict[str, Any] = request["limits"]
        self.pid = pid
        self.pid_fd = os.pidfd_open(pid)
        self.status_fd = status_fd
        self.work_dir = work_dir
        self.exceeded: str | None = None
        self.started = time.monotonic()

    def kill(self) -> None:
        """End it, at once and with all that belongs to it."""
        try:
            if self.work_dir is None:
                os.kill(self.pid, signal.SIGKILL)
            else:
                os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


class Server:
    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self.control = control
        self.isolated: bool = config["isolated"]
        self.uid: int | None = config["uid"]
        self.with_proc = self.isolated and _proc_can_be_mounted()
        self.filter = confine.Filter(bytes.fromhex(config["seccomp"])) if config["seccomp"] else None
        self.children: dict[int, Child] = {}
        self.work_dirs: Any = None if self.isolated else _load_work_dirs()
        self.poller = select.poll()
        self.poller.register(control.fileno(), select.POLLIN)
        self.grader_fd: int | None = None
        if not self.isolated:  # elsewhere the launcher watches it
            self.grader_fd = os.pidfd_open(config["grader"])
            self.poller.register(self.grader_fd, select.POLLIN)

    def serve(self) -> dict[str, Any]:
        """Work until the grader hangs up. Returns in a forked process only: the request that it is to run."""
        if self.isolated and not _python_is_readable(self.uid):
            self.send({"refused": f"the user of programs cannot read Python's library ({os.__file__})"})
            self.leave()
        self.send({"ready": {"proc": self.with_proc, "seccomp": self.filter is not None}})
        while True:
            for fd, _ in self.poller.poll(TICK_MS if self.children else None):
                if fd == self.grader_fd:
                    self.leave()
                elif fd != self.control.fileno():
                    self.reap(self.children[fd])
                elif (request := self.receive()) is not None:
                    return request
            self.watch()

    def receive(self) -> dict[str, Any] | None:
        """Act on one message. Not None in a forked process."""
        data, fds, _, _ = socket.recv_fds(self.control, MAX_REQUEST_BYTES, 8)
        if not data:
            self.leave()
        message = json.loads(data)
        if "leave" in message:
            self.leave()
        if "kill" in message:
            for child in self.children.values():
                if child.number == message["kill"]:
                    child.kill()
            return None
        try:
            return self.start(message, fds)
        finally:
            for fd in fds:
                if self.control.fileno() >= 0:  # in the forked process they are where they belong
                    os.close(fd)

    def start(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any] | None:
        """Fork a process for a program. Returns the request there, None here."""
        status_read, status_write = os.pipe()
        work_dir = None
        try:
            work_dir = None if self.isolated else self.work_dirs.make()
            pid = confine.clone_isolated() if self.isolated else os.fork()
        except OSError as error:
            os.close(status_read)
            os.close(status_write)
            self.send({"ended": request["number"], "failure": str(error)})
            return None
        if pid == 0:
            if self.isolated:
                _be_init(status_write)
            self.prepare(request, fds, status_write, work_dir)
            return request
        os.close(status_write)
        child = Child(request, pid, status_read, work_dir)
        self.children[child.pid_fd] = child
        self.poller.register(child.pid_fd, select.POLLIN)
        return None

    def prepare(self, request: dict[str, Any], fds: list[int], status_fd: int, work_dir: str | None) -> None:
        """In the forked process: give up everything that the program must not have."""
        try:
            os.setsid()
            confine.first_victim()
            if work_dir is None:
                confine.mount_private(request["limits"]["disk_bytes"], with_proc=self.with_proc)
            else:
                os.environ["TMPDIR"] = os.environ["HOME"] = work_dir
            os.chdir(work_dir or confine.WORK_DIR)
            confine.limit(request["limits"])
            if self.isolated:
                confine.become(self.uid)
            confine.forbid_new_rights()
            gc.enable()
            if self.filter is not None:
                self.filter.load()
            self.control.detach()
            confine.move_descriptors(fds, request["targets"])
        except BaseException as error:  # noqa: BLE001  the border: a failure of ours, reported as such
            _report(status_fd, {"failure": f"the sandbox could not be set up: {error}"})
            os._exit(1)

    def reap(self, child: Child) -> None:
        """Take note of an end and report it."""
        _, status = os.waitpid(child.pid, 0)
        ending: dict[str, Any] = {"ended": child.number, "exceeded": child.exceeded}
        if child.work_dir is not None:
            watch.end_orphans({other.pid for other in self.children.values()})
            self.work_dirs.remove(child.work_dir)
            ending["status"] = status
        ending |= _reported(child.status_fd)
        self.poller.unregister(child.pid_fd)
        del self.children[child.pid_fd]
        os.close(child.pid_fd)
        self.send(ending)

    def watch(self) -> None:
        """Kill what uses more memory or has more processes than it may, all of its processes together."""
        for child in self.children.values():
            if child.exceeded is None and time.monotonic() - child.started > TICK_MS / 1000:
                child.exceeded = watch.exceeded(child.pid, child.limits)
                if child.exceeded:
                    child.kill()

    def send(self, message: dict[str, Any]) -> None:
        try:
            self.control.send(json.dumps(message).encode())
        except (BrokenPipeError, ConnectionResetError):
            self.leave()

    def leave(self) -> NoReturn:
        """The grader is gone: end what runs and end."""
        for child in list(self.children.values()):
            child.kill()
            os.waitpid(child.pid, 0)
            if child.work_dir is not None:
                watch.end_orphans(set())
                self.work_dirs.remove(child.work_dir)
        os._exit(0)


def _load_work_dirs() -> Any:
    from . import workdir  # what it imports would cost every isolated program at its fork

    return workdir


def _be_init(status_fd: int) -> None:
    """Fork the program and return there; as init wait for it, tell its status, and take everything along."""
    try:
        program = os.fork()
        if program == 0:
            return
        os.closerange(0, status_fd)
        os.closerange(status_fd + 1, 1024)
        while (ended := os.wait())[0] != program:
            pass
        _report(status_fd, {"status": ended[1]})
    except BaseException as error:  # noqa: BLE001  the border: it must never go on as a second server
        _report(status_fd, {"failure": f"the sandbox could not start the program: {error}"})
    os._exit(0)


def _report(status_fd: int, message: dict[str, Any]) -> None:
    os.write(status_fd, json.dumps(message).encode()[:4000])


def _reported(status_fd: int) -> dict[str, Any]:
    """What the processes wrote about their end; a setup failure wins over the exit status that follows it."""
    data = os.read(status_fd, 8192)
    os.close(status_fd)
    found: dict[str, Any] = {}
    for part in _objects(data.decode(errors="replace")):
        found = part | found
    return found


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder, place = json.JSONDecoder(), 0
    while place < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except ValueError:
            return
        yield value


def _proc_can_be_mounted() -> bool:
    """Try once: a container whose /proc is masked refuses a fresh one."""
    return _succeeds(lambda: confine.mount_private(1 << 20, with_proc=True))


def _python_is_readable(uid: int | None) -> bool:
    """Whether the user that programs run as can import what is not loaded yet."""

    def read() -> None:
        confine.become(uid)
        with open(os.__file__, "rb"):  # noqa: PTH123
            pass

    return _succeeds(read)


def _succeeds(action: Callable[[], None]) -> bool:
    """Try something in a process of its own."""
    pid = confine.clone_isolated()
    if pid == 0:
        try:
            action()
            os._exit(0)
        except BaseException:  # noqa: BLE001  the answer is the exit status
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def main() -> None:
    config = json.loads(sys.argv[1])
    control = socket.socket(fileno=config["control_fd"])
    confine.occupy_low_descriptors()
    if config["isolated"]:
        confine.drop_bounding_set()
    else:
        confine.set_subreaper()
    builtins.exit = builtins.quit = Quitter("exit", "Ctrl-D")
    sys.argv[:] = [""]
    sys.path[:] = [confine.WORK_DIR, *config["packages"], *(path for path in sys.path if path != config["runtime"])]
    gc.collect()
    gc.freeze()
    gc.disable()
    request = Server(control, config).serve()
    _RUNNERS[request["kind"]](request)
    os._exit(0)
