"""Real sandboxes: what a program finds, what it may use, how its end is told, and that nothing of it is left."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.processes import processes_with, wait_until

from oncurve.sandbox import (
    Jail,
    JailError,
    JailPool,
    Program,
    ProgramFaultError,
    SandboxSettings,
    Streams,
    run_limits,
)
from oncurve.types import ConfigError

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")
BOTH = [pytest.param("namespaces", marks=needs_bwrap), "none"]
SMALL = {"memory_bytes": 256 * 1024**2, "max_processes": 10, "disk_bytes": 8 * 1024**2}


def settings(isolation: str = "namespaces", **more: Any) -> SandboxSettings:
    return SandboxSettings.model_validate({"isolation": isolation, **SMALL, **more})


@pytest.fixture(scope="module")
def jails() -> Iterator[Callable[[str], Jail]]:
    """One jail of each kind for the whole module: no program may leave it other than it found it."""
    made: dict[str, Jail] = {}

    def get(isolation: str) -> Jail:
        if isolation not in made:
            made[isolation] = Jail(settings(isolation))
        return made[isolation]

    yield get
    for jail in made.values():
        jail.close()


@pytest.fixture(params=BOTH)
def jail(request: pytest.FixtureRequest, jails: Callable[[str], Jail]) -> Jail:
    return jails(request.param)


@pytest.fixture
def isolated(jails: Callable[[str], Jail]) -> Jail:
    if shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap (apt install bubblewrap)")
    return jails("namespaces")


@contextmanager
def opened(jail: Jail, source: str, timeout_s: float = 20.0) -> Iterator[Callable[..., Any]]:
    """A loaded program; what is yielded calls its function ``f``, and answers or raises its fault."""
    deadline = time.monotonic() + timeout_s
    with Program(jail, "host", run_limits(jail.settings, timeout_s)) as program:
        program.send({"source": textwrap.dedent(source), "entry": "f", "keeps_objects": False}, deadline)
        loaded = program.receive(deadline, 1 << 20)

        def ask(*args: Any) -> Any:
            if "ready" not in loaded:
                return loaded
            program.send({"id": "1", "op": "call", "target": "f", "args": args, "kwargs": {}}, deadline)
            reply = program.receive(deadline, 1 << 20)
            return reply.get("value", reply)

        yield ask


def call(jail: Jail, source: str, *args: Any, timeout_s: float = 20.0) -> Any:
    """Load a program and call its function ``f`` once."""
    with opened(jail, source, timeout_s) as ask:
        return ask(*args)


def run(jail: Jail, source: str, data: bytes = b"", timeout_s: float = 20.0) -> tuple[bytes, bytes, str]:
    """Run a script. Returns what it wrote and how it ended."""
    streams = Streams(data)
    deadline = time.monotonic() + timeout_s
    try:
        with Program(jail, "script", run_limits(jail.settings, timeout_s), streams.theirs, (0, 1, 2)) as program:
            program.send({"source": textwrap.dedent(source)}, deadline)
            output = program.communicate(streams, deadline, 1 << 20)
    finally:
        streams.close()
    return output.out, output.err, str(output.ending)


def descendants(root: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text(errors="replace").rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(entry.parent.name)] = int(parent)
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


# --- what a program finds ---------------------------------------------------------------------------------------


def test_a_function_is_called_in_both_kinds(jail: Jail):
    assert call(jail, "def f(x): return x + 1", 41) == 42


def test_a_script_reads_and_writes(jail: Jail):
    source = "import sys\nprint(input()[::-1])\nprint('note', file=sys.stderr)"
    assert run(jail, source, "añ你\n".encode()) == ("你ña\n".encode(), b"note\n", "ended with exit status 0")


def test_the_environment_is_not_ours(jail: Jail, monkeypatch: pytest.MonkeyPatch):
    names = call(jail, "import os\ndef f(): return sorted(os.environ)")
    assert set(names) <= {
        *("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PWD", "PYTHONDONTWRITEBYTECODE"),
        *("PYTHONHASHSEED", "PYTHONUTF8", "TMPDIR", "LC_CTYPE"),
    }


def test_only_its_own_descriptors_are_open(isolated: Jail):
    assert call(
        isolated, "import os\ndef f(): return [n for n in range(64) if os.path.exists(f'/proc/self/fd/{n}')]"
    ) == [
        0,
        1,
        2,
        3,
    ]


def test_all_namespaces_are_other_than_ours(isolated: Jail):
    source = """
        import os
        def f(): return [os.readlink(f"/proc/self/ns/{name}") for name in ("user", "pid", "mnt", "ipc", "net", "uts")]
    """
    ours = {str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("user", "pid", "mnt", "ipc", "net", "uts")}
    with opened(isolated, source) as ask:  # both are alive, so that their namespaces have different numbers
        first, second = ask(), call(isolated, source)
    assert not set(first) & ours
    assert [a != b for a, b in zip(first, second, strict=True)] == [False, True, True, True, False, False]


def test_the_seccomp_filter_is_loaded_where_the_library_is(isolated: Jail):
    pytest.importorskip("pyseccomp", exc_type=ImportError)
    assert isolated.facts["seccomp"] is True
    status = call(isolated, "def f(): return [l for l in open('/proc/self/status') if l.startswith('Seccomp:')]")
    assert status == ["Seccomp:\t2\n"]
    source = """
        import ctypes
        def f():
            libc = ctypes.CDLL(None, use_errno=True)
            return [(libc.syscall(n, 0, 0, 0, 0), ctypes.get_errno()) for n in (165, 272, 101, 319)]
    """
    if os.uname().machine == "x86_64":  # mount, unshare, ptrace: not permitted; memfd_create: no such call
        assert call(isolated, source) == [{"t": [-1, 1]}] * 3 + [{"t": [-1, 38]}]


def test_the_private_directory_is_empty_for_everyone(isolated: Jail):
    source = """
        import os
        def f():
            found = [os.getcwd(), os.listdir("/tmp"), os.listdir("/dev/shm")]
            open("/tmp/left", "w").close(); open("/dev/shm/left2", "w").close()
            return found
    """
    assert call(isolated, source) == call(isolated, source) == ["/tmp", [], []]


def test_a_program_without_isolation_has_a_directory_that_goes_with_it(jails: Callable[[str], Jail]):
    source = """
        import os
        def f():
            os.makedirs("a/b"); open("a/b/c", "w").close(); os.chmod("a/b", 0); os.chmod("a", 0)
            return os.getcwd()
    """
    folder = call(jails("none"), source)
    assert Path(folder).name.startswith("oncurve-")
    assert not Path(folder).exists()


def test_state_of_the_interpreter_does_not_pass_on(jail: Jail):
    poison = """
        import builtins, json, sys, os
        builtins.sorted = lambda x: "poisoned"
        json.dumps = json.loads = None
        sys.modules["math"] = None
        os.environ["LEFT"] = "1"
        def f(): return 1
    """
    with suppress(ProgramFaultError):  # it may break the runner beside it
        call(jail, poison)
    clean = "import math, os\ndef f(): return [sorted([2, 1]), math.floor(1.5), 'LEFT' in os.environ]"
    assert call(jail, clean) == [[1, 2], 1, False]


# --- what it may use --------------------------------------------------------------------------------------------


def fault(jail: Jail, source: str, timeout_s: float = 20.0) -> str:
    with pytest.raises(ProgramFaultError) as caught:
        call(jail, source, timeout_s=timeout_s)
    return caught.value.kind


def test_memory_of_one_process_is_limited(jail: Jail):
    assert call(jail, "def f(): return len(bytearray(300 << 20))")["text"].startswith("MemoryError")


def test_memory_of_all_processes_together_is_limited(jail: Jail):
    source = """
        import os, time
        def f():
            for _ in range(6):
                if os.fork() == 0:
                    x = bytearray(100 << 20)
                    for place in range(0, 100 << 20, 4096): x[place] = 1
                    time.sleep(60)
            time.sleep(60)
    """
    assert fault(jail, source) == "memory"


def test_what_processes_share_is_counted_once(jail: Jail):
    source = """
        import os, time
        x = bytearray(b"x" * (100 << 20))
        def f():
            for _ in range(5):
                if os.fork() == 0:
                    time.sleep(1)
                    os._exit(0)
            time.sleep(0.5)
            return len(x) >> 20
    """
    assert call(jail, source) == 100


def test_processes_are_limited(jail: Jail):
    source = """
        import os, time
        def f():
            for number in range(200):
                try:
                    if os.fork() == 0:
                        time.sleep(60)
                except OSError:
                    return number
                time.sleep(0.005)
            return 200
    """
    if jail.is_isolated:  # the kernel counts, a few of ours among them
        assert 10 <= call(jail, source) < 20
    else:  # the server counts
        assert fault(jail, source) == "processes"


def test_its_disk_is_limited(isolated: Jail):
    source = """
        def f():
            total = 0
            try:
                for number in range(4):
                    with open(f"fill{number}", "wb", buffering=0) as file:
                        for _ in range(6):
                            total += file.write(bytes(1 << 20))
            except OSError as error:
                return total >> 20
    """
    assert call(isolated, source) in (7, 8)


@pytest.mark.parametrize("body", ["while True: pass", "import time; time.sleep(60)", "9 ** 9 ** 9"])
def test_a_hang_ends_at_the_deadline(jail: Jail, body: str):
    started = time.monotonic()
    assert fault(jail, f"def f():\n    {body}", timeout_s=1.0) == "timeout"
    assert time.monotonic() - started < 5
    assert call(jail, "def f(): return 1") == 1


def test_a_flood_is_cut_off(jail: Jail):
    with pytest.raises(ProgramFaultError, match="1048576 bytes to standard output"):
        run(jail, "while True: print('x' * 1000)")
    with pytest.raises(ProgramFaultError, match="more than 1048576 bytes"):
        call(jail, "def f(): return 'x' * (2 << 20)")


# --- how its end is told ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        ("pass", "ended with exit status 0"),
        ("raise SystemExit(7)", "ended with exit status 7"),
        ("raise SystemExit('words')", "ended with exit status 1"),
        ("1 / 0", "ended with exit status 1"),
        ("import os; os._exit(255)", "ended with exit status 255"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "was killed by SIGTERM"),
        ("import os; os.abort()", "was killed by SIGABRT"),
        ("exit()", "ended with exit status 0"),
        ("import atexit; atexit.register(print, 'bye')", "ended with exit status 0"),
    ],
)
def test_the_end_of_a_script(jail: Jail, body: str, ending: str):
    assert run(jail, body)[2] == ending


def test_what_is_printed_at_the_end_is_read(jail: Jail):
    source = "import atexit, sys\natexit.register(print, 'bye')\nsys.stdout.write('no line end')"
    assert run(jail, source)[0] == b"no line endbye\n"


def test_a_traceback_names_the_line(jail: Jail):
    _, err, _ = run(jail, "x = 1\ny = x / 0")
    assert b'File "main.py", line 2' in err
    assert err.endswith(b"ZeroDivisionError: division by zero\n")
    assert b"script.py" not in err


def test_a_child_that_keeps_the_output_open_is_not_waited_for(jail: Jail):
    started = time.monotonic()
    out, _, _ = run(jail, "import os, time\nprint(5, flush=True)\nif os.fork() == 0: time.sleep(60)")
    assert out == b"5\n"
    assert time.monotonic() - started < 10


# --- nothing is left --------------------------------------------------------------------------------------------

DAEMONS = """
    import os, subprocess, sys, time
    def f(marker, hang):
        sleep = [sys.executable, "-c", "import time; time.sleep(300)", marker]
        subprocess.Popen(sleep)
        subprocess.Popen(sleep, start_new_session=True)
        daemon = f"import subprocess; subprocess.Popen({sleep!r}, start_new_session=True)"
        subprocess.run([sys.executable, "-c", daemon])  # its parent ends at once
        while hang:
            time.sleep(1)
        return "started"
"""


@pytest.mark.parametrize("hang", [False, True])
def test_when_a_program_has_ended_nothing_of_it_runs(jail: Jail, hang: bool):
    marker = f"marker-{uuid.uuid4().hex}"
    if hang:
        with pytest.raises(ProgramFaultError):
            call(jail, DAEMONS, marker, hang, timeout_s=2.0)
    else:
        assert call(jail, DAEMONS, marker, hang) == "started"
    assert processes_with(marker) == []


@pytest.mark.parametrize("isolation", BOTH)
def test_close_leaves_no_process(isolation: str):
    before = descendants(os.getpid())
    jail = Jail(settings(isolation))
    assert len(descendants(os.getpid()) - before) >= 1
    jail.close()
    jail.close()
    assert wait_until(lambda: descendants(os.getpid()) <= before)


@pytest.mark.parametrize("isolation", BOTH)
def test_close_ends_the_server_also_when_a_fork_of_ours_lives(isolation: str):
    jail = Jail(settings(isolation))
    fork = os.fork()
    if fork == 0:
        time.sleep(60)
        os._exit(0)
    try:
        started = time.monotonic()
        jail.close()
        assert time.monotonic() - started < 10
    finally:
        os.kill(fork, signal.SIGKILL)
        os.waitpid(fork, 0)


PARENT = """
import sys, threading, time
from oncurve.sandbox import *
jail = Jail(SandboxSettings(isolation=sys.argv[1]))
program = Program(jail, "host", run_limits(jail.settings, 300))
program.send({"source": sys.argv[2], "entry": "f", "keeps_objects": False}, time.monotonic() + 60)
program.receive(time.monotonic() + 60, 1000)
program.send({"id": "1", "op": "call", "target": "f", "args": [sys.argv[3], True], "kwargs": {}}, time.monotonic() + 60)
print("running", flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("isolation", BOTH)
def test_killing_the_parent_leaves_no_process(isolation: str):
    marker = f"marker-{uuid.uuid4().hex}"
    command = [sys.executable, "-c", PARENT, isolation, textwrap.dedent(DAEMONS), marker]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"running\n"
        assert wait_until(lambda: len(processes_with(marker)) == 4)  # the parent itself, and three sleepers
        family = descendants(parent.pid)
        assert len(family) >= 5
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close() if parent.stdout else None
    assert wait_until(lambda: processes_with(marker) == [])
    assert wait_until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in family))


# --- when the sandbox fails -------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", BOTH)
def test_a_killed_server_costs_one_attempt_and_loses_no_job(isolation: str):
    pool = JailPool(settings(isolation, num_workers=2))
    attempts: list[int] = []

    def job(jail: Jail) -> Any:
        attempts.append(1)
        if len(attempts) == 3:
            for pid in descendants(os.getpid()):
                with suppress(OSError):
                    if "inside.server" in Path(f"/proc/{pid}/cmdline").read_text():
                        os.kill(pid, signal.SIGKILL)
        return call(jail, "def f(x): return x", 5)

    try:
        results = pool.map([job] * 8)
    finally:
        pool.close()
    assert results == [5] * 8
    assert len(attempts) > 8


def test_a_job_whose_every_jail_fails_is_an_error_not_a_result():
    def job(jail: Jail) -> Any:
        jail.close()
        return call(jail, "def f(): return 1")

    pool = JailPool(settings("none", num_workers=1))
    try:
        failed, fine = pool.map([job, lambda jail: call(jail, "def f(): return 1")])
    finally:
        pool.close()
    assert isinstance(failed, JailError)
    assert fine == 1


def test_threads_share_a_pool_and_wait_for_a_free_jail():
    pool = JailPool(settings("none", num_workers=2))
    running, most, lock, results = [0], [0], threading.Lock(), []
    pair = threading.Barrier(2)  # sixteen jobs in eight twos: one at a time would be waited for in vain

    def job(jail: Jail) -> Any:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        try:
            pair.wait(60)
            return call(jail, "import time\ndef f(): time.sleep(0.05); return 1")
        finally:
            with lock:
                running[0] -= 1

    threads = [threading.Thread(target=lambda: results.extend(pool.map([job] * 4))) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        pool.close()
    assert results == [1] * 16
    assert most[0] == 2


# --- machines that cannot ---------------------------------------------------------------------------------------


def test_without_bubblewrap_it_refuses_and_says_what_to_type():
    with pytest.raises(ConfigError) as caught:
        Jail(settings(bwrap="no-such-bwrap"))
    assert "apt install bubblewrap" in str(caught.value)
    assert 'sandbox.isolation = "none"' in str(caught.value)


IN_A_NAMESPACE = """
import sys
from oncurve.sandbox import *
from oncurve.types import ConfigError
try:
    jail = Jail(SandboxSettings())
except ConfigError as error:
    sys.exit(f"refused: {error}")
import test_jail
print(test_jail.call(jail, sys.argv[1]))
jail.close()
"""


def in_user_namespace(prepare: str, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("needs unshare(1) and root, to make a user namespace with other rights")
    inner = ["sh", "-c", f'{prepare} exec "$@"', "sh", sys.executable, "-c", IN_A_NAMESPACE, source]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    command = ["unshare", "--user", *options, *inner]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


@needs_bwrap
def test_where_namespaces_are_forbidden_it_refuses_and_says_so():
    done = in_user_namespace("echo 0 > /proc/sys/user/max_user_namespaces &&", "def f(): return 1", "--map-root-user")
    assert done.returncode == 1
    assert "cannot be isolated here (bwrap: " in done.stderr
    assert 'sandbox.isolation = "none"' in done.stderr


@needs_bwrap
def test_an_ordinary_user_has_the_same_sandbox():
    source = """
import os
def f():
    status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
    keys = ("CapPrm", "CapEff", "CapBnd", "CapAmb")
    return [any(int(status[key], 16) for key in keys), status["NoNewPrivs"], os.getuid(), os.listdir("/tmp")]
"""
    done = in_user_namespace("", source, "--map-user=1000", "--map-group=1000")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[False, '1', 65534, []]\n"


@needs_bwrap
def test_another_user_of_this_machine_has_the_same_sandbox():
    python = next((name for name in ("/usr/bin/python3", "/usr/local/bin/python3") if Path(name).exists()), None)
    check = "import os, oncurve.sandbox as s; assert os.access(s.bubblewrap.base_python(), os.X_OK)"
    prefix = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv(1), to become another user")
    candidates = [name for name in (sys.executable, python) if name]
    usable = [
        name
        for name in candidates
        if subprocess.run([*prefix, name, "-c", check], capture_output=True, cwd="/").returncode == 0
    ]
    if not usable:
        pytest.skip("no interpreter with oncurve that another user may run")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    command = [*prefix, usable[0], "-c", IN_A_NAMESPACE, "def f(): return 1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd="/")
    assert done.stdout == "1\n", done.stderr
