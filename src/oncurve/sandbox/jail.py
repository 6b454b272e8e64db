"""One fork server in its sandbox, and the programs that run in it: start, talk, end."""

import json
import os
import select
import socket
import subprocess  # noqa: TID251  this package is its home
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from oncurve.sandbox import bubblewrap
from oncurve.sandbox.endings import Ending, JailError, ready
from oncurve.sandbox.seccomp import compiled_filter
from oncurve.sandbox.settings import SandboxSettings
from oncurve.types import ConfigError

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 20.0


class Jail:
    """A fork server. Runs one program at a time for one thread (and a tester beside it).

    Args:
        settings: isolation and limits.

    Raises:
        ConfigError: this machine cannot isolate programs, and the settings do not say to do without.
        JailError: the server did not start for another reason.
    """

    def __init__(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self.is_isolated = settings.isolation == "namespaces"
        self._endings: dict[int, Ending | JailError] = {}
        self._number = 0
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        try:
            self._process = _start(settings, theirs)
        finally:
            theirs.close()
        try:
            self.facts = self._ready()
        except BaseException:
            self.close()
            raise

    def start(
        self, kind: str, limits: Mapping[str, Any], fds: Sequence[int], targets: Sequence[int]
    ) -> tuple[int, socket.socket]:
        """Fork a process for a program.

        Args:
            kind: what runs in it (``host``, ``script``, ``command``, ``build``, ``test``).
            limits: as ``run_limits`` gives them.
            fds: descriptors that it gets beside its channel.
            targets: their numbers there.

        Returns:
            Its number, and our end of its channel.

        Raises:
            JailError: the server does not answer.
        """
        self._number += 1
        request = {"number": self._number, "kind": kind, "limits": limits, "targets": [3, *targets]}
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], [theirs.fileno(), *fds])
            except OSError as error:
                ours.close()
                raise JailError(f"the sandbox server does not take requests: {error}") from None
        return self._number, ours

    def control_fd(self) -> int:
        return self._control.fileno()

    def take_note(self) -> None:
        """Read what the server says, without waiting.

        Raises:
            JailError: it is gone.
        """
        while True:
            try:
                data = self._control.recv(8192)
            except BlockingIOError:
                return
            except OSError as error:
                raise JailError(f"the sandbox server is gone: {error}") from None
            if not data:
                raise JailError(f"the sandbox server ended{self._last_words()}")
            message = json.loads(data)
            if "ended" in message:
                self._endings[message["ended"]] = _ending(message)

    def ending(self, number: int) -> Ending | None:
        """How a program ended, None while it runs.

        Raises:
            JailError: it could not be started.
        """
        ending = self._endings.get(number)
        if isinstance(ending, JailError):
            raise ending
        return ending

    def wait(self, number: int, timeout_s: float = END_TIMEOUT_S) -> Ending:
        """Wait until a program has ended and nothing of it is left.

        Raises:
            JailError: that does not happen in time.
        """
        deadline = time.monotonic() + timeout_s
        while (ending := self.ending(number)) is None:
            if not ready({self.control_fd(): select.POLLIN}, deadline):
                raise JailError(f"a program could not be ended within {timeout_s:g} s")
            self.take_note()
        return ending

    def kill(self, number: int) -> Ending:
        """End a program with everything it started."""
        if self.ending(number) is None:
            with suppress(OSError):
                self._control.send(json.dumps({"kill": number}).encode())
        ending = self.wait(number)
        del self._endings[number]
        return ending

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End the server and everything in it. Closing twice is fine."""
        with suppress(OSError):  # said in words, too: a fork of this process may hold the socket open
            self._control.send(b'{"leave": true}')
        self._control.close()
        if self._process.stderr is not None:
            self._process.stderr.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ready(self) -> dict[str, Any]:
        deadline = time.monotonic() + START_TIMEOUT_S
        if not ready({self.control_fd(): select.POLLIN}, deadline):
            raise JailError(f"the sandbox server did not start within {START_TIMEOUT_S:g} s")
        data = self._control.recv(8192)
        message = json.loads(data) if data else {}
        if "ready" in message:
            facts: dict[str, Any] = message["ready"]
            return facts
        words = f" ({message['refused']})" if "refused" in message else self._last_words()
        if not self.is_isolated or not ("refused" in message or "bwrap: " in words):
            raise JailError(f"the sandbox server did not start{words}")
        raise ConfigError(
            f"untrusted programs cannot be isolated here{words}. A container must allow user namespaces "
            f"(docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined; "
            f"sysctl user.max_user_namespaces above 0). {bubblewrap.without_isolation()}"
        )

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        if self._process.stderr is None or self._process.poll() is None:
            return ""
        words = self._process.stderr.read(4000).decode(errors="replace").strip()
        return f" ({' '.join(words.splitlines()[-3:])})" if words else ""


def _start(settings: SandboxSettings, control: socket.socket) -> subprocess.Popen[bytes]:
    python = str(bubblewrap.base_python())
    config: dict[str, Any] = {"control_fd": control.fileno(), "isolated": settings.isolation == "namespaces"}
    code = compiled_filter()
    config["seccomp"] = code.hex() if code else ""
    if config["isolated"]:
        config |= {"packages": bubblewrap.inside_packages(settings), "runtime": bubblewrap.RUNTIME, "uid": None}
        command = bubblewrap.isolated_command(settings)
        plan = {"parent": os.getpid(), "uid": bubblewrap.PROGRAM_UID, "command": command, "config": config}
        argv = [python, "-I", "-S", str(Path(__file__).with_name("isolate.py")), json.dumps(plan)]
    else:
        runtime = bubblewrap.outside_runtime()
        config |= {"packages": bubblewrap.package_directories(settings), "runtime": runtime, "uid": None, "seccomp": ""}
        config["grader"] = os.getpid()
        argv = [python, *bubblewrap.server_arguments(runtime), json.dumps(config)]
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=bubblewrap.environment(None),
            cwd="/",
            pass_fds=(control.fileno(),),
            start_new_session=True,
        )
    except OSError as error:
        raise JailError(f"no process could be started: {error}") from None


def _ending(message: dict[str, Any]) -> Ending | JailError:
    if "failure" in message:
        return JailError(message["failure"])
    status = message.get("status")
    exit_code = None if status is None else os.waitstatus_to_exitcode(status)
    return Ending(exit_code, message["exceeded"])
