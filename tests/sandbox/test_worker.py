"""Real processes: what a function can do to its worker, and that nothing of it is left afterwards."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.processes import processes_with, wait_until

from oncurve.sandbox import FunctionWorker, Limits

MakeWorker = Callable[..., FunctionWorker]


@pytest.fixture
def make_worker(tmp_path: Path) -> Iterator[MakeWorker]:
    """Write a file and serve its function ``f``; every worker is closed at the end."""
    workers = []

    def make(source: str, *, show_output: bool = False, **limits: float | None) -> FunctionWorker:
        file = tmp_path / f"file_{len(workers)}.py"
        file.write_text(textwrap.dedent(source))
        workers.append(
            FunctionWorker(file, "f", Limits(**{"timeout_s": 20.0, **limits}), show_output=show_output)  # type: ignore[arg-type]
        )
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


def test_values_go_there_and_back(make_worker: MakeWorker):
    worker = make_worker("def f(x): return [x, len(x)]")
    for text in ["", "a\nb", "é你\ud800\x00", "x" * 300_000]:  # the last exceeds any pipe buffer
        assert worker.call({"x": text}).value == [text, len(text)]


def test_one_process_serves_all_calls(make_worker: MakeWorker):
    worker = make_worker("import os\ndef f(): return os.getpid()")
    assert worker.call({}).value == worker.call({}).value != os.getpid()


def test_async_functions_and_arrays_are_finished_and_plain(make_worker: MakeWorker):
    worker = make_worker(
        """
        import asyncio, numpy
        async def f(x):
            await asyncio.sleep(0.01)
            return [numpy.float32(0.5), numpy.array([1, 2]), {"k": object()}]
        """
    )
    assert worker.call({"x": 1}).value == [0.5, [1, 2], {"k": "<object>"}]


def test_only_named_parameters_are_passed_unless_the_function_takes_all(make_worker: MakeWorker):
    arguments = {"a": 1, "b": 2, "c": 3}
    assert make_worker("def f(b, *, z=9): return [b, z]").call(arguments).value == [2, 9]
    assert make_worker("def f(b, **rest): return rest").call(arguments).value == {"a": 1, "c": 3}
    outcome = make_worker("def f(b, answers): return 0").call(arguments)
    assert outcome.cause == "error"
    assert "answers" in outcome.detail
    assert "a, b, c" in outcome.detail


def test_an_exception_is_reported_with_its_place_and_costs_no_restart(make_worker: MakeWorker):
    worker = make_worker(
        """
        import os
        def f(x):
            if x:
                raise ValueError("no such thing")
            return os.getpid()
        """
    )
    pid = worker.call({"x": 0}).value
    outcome = worker.call({"x": 1})
    assert (outcome.cause, outcome.detail) == ("error", "ValueError: no such thing (file_0.py, line 5)")
    assert worker.call({"x": 0}).value == pid


@pytest.mark.parametrize(
    "body",
    [
        "raise SystemExit(0)",
        "raise KeyboardInterrupt",
        "return f()",
        "return {(): 1}",
        "return 10**5000",
        "raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})",
    ],
)
def test_every_way_to_raise_is_an_error(make_worker: MakeWorker, body: str):
    assert make_worker(f"def f(): {body}").call({}).cause == "error"


@pytest.mark.parametrize(
    ("body", "how"),
    [
        ("os._exit(0)", "exit status 0"),
        ("os._exit(7)", "exit status 7"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "signal 11"),
        ("os.kill(os.getppid(), signal.SIGKILL)", "supervisor was killed by signal 9"),
    ],
)
def test_a_death_is_a_crash_and_the_next_call_works(make_worker: MakeWorker, body: str, how: str):
    worker = make_worker(
        f"""
        import os, signal, time
        def f(die):
            if die:
                {body}
                time.sleep(60)
            return 1
        """
    )
    outcome = worker.call({"die": True})
    assert outcome.cause == "crash"
    assert how in outcome.detail
    assert worker.call({"die": False}).value == 1


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "time.sleep(60)",
        "re.match(r'(a+)+$', 'a' * 60 + 'b')",  # one call into C that no signal handler interrupts
        "[signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]; time.sleep(60)",
    ],
)
def test_a_hang_ends_at_the_deadline_and_the_next_call_works(make_worker: MakeWorker, body: str):
    worker = make_worker(
        f"""
        import re, signal, time
        def f(hang):
            if hang:
                {body}
            return 1
        """,
        timeout_s=1.0,
    )
    worker.start()
    started = time.monotonic()
    outcome = worker.call({"hang": True})
    assert (outcome.cause, outcome.value) == ("timeout", None)
    assert time.monotonic() - started < 10
    assert worker.call({"hang": False}).value == 1


def test_what_is_printed_never_meets_the_replies(make_worker: MakeWorker):
    worker = make_worker(
        """
        import os, sys
        print("loading")
        def f():
            print("x" * 100_000)
            sys.stdout.flush()
            os.write(1, b"\\x00" * 64)
            os.system("echo from a shell")
            return 5
        """
    )
    assert worker.call({}).value == 5


def test_output_is_shown_when_asked(make_worker: MakeWorker, capfd: pytest.CaptureFixture[str]):
    source = "import sys\ndef f(): print('seen by the user', flush=True)"
    make_worker(source).call({})
    make_worker(source, show_output=True).call({})
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == "seen by the user\n"


def test_garbage_on_the_channel_is_a_crash(make_worker: MakeWorker):
    # Writes to every descriptor it can find, as a hostile function would.
    worker = make_worker(
        """
        import os
        def f():
            for fd in range(3, 64):
                try:
                    os.write(fd, (1 << 60).to_bytes(8, "big"))
                except OSError:
                    pass
        """
    )
    assert worker.call({}).cause == "crash"


def test_the_memory_limit_is_the_kernels(make_worker: MakeWorker):
    source = "def f(size): return len(bytearray(size))"
    limited = make_worker(source, memory_bytes=512 * 1024**2)
    assert limited.call({"size": 1024**3}).detail.startswith("MemoryError")
    assert limited.call({"size": 1024}).value == 1024
    assert make_worker(source).call({"size": 600 * 1024**2}).value == 600 * 1024**2


@pytest.mark.parametrize(
    ("source", "needle"),
    [
        ("def g(x): return 1\ndef h(): pass", "no function f. It has: g, h"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("def f(:", "SyntaxError"),
        ("f = 3", "no function f"),
        ("raise SystemExit(3)", "SystemExit"),
    ],
)
def test_a_file_that_does_not_load_says_why(make_worker: MakeWorker, source: str, needle: str):
    outcome = make_worker(source).start()
    assert outcome.cause == "error"
    assert needle in outcome.detail


def test_a_file_that_never_loads_ends_at_the_start_deadline(make_worker: MakeWorker):
    outcome = make_worker("while True: pass", start_timeout_s=1.0).start()
    assert outcome.cause == "timeout"


def test_neighbouring_files_can_be_imported(make_worker: MakeWorker, tmp_path: Path):
    (tmp_path / "neighbour_of_f.py").write_text("VALUE = 3")
    assert make_worker("from neighbour_of_f import VALUE\ndef f(): return VALUE").call({}).value == 3


def test_an_argument_that_is_not_plain_data_is_refused_before_anything_starts(make_worker: MakeWorker):
    with pytest.raises(TypeError):
        make_worker("def f(x): return x").call({"x": object()})


def test_an_interrupted_call_does_not_answer_the_next_one(make_worker: MakeWorker, tmp_path: Path):
    called = tmp_path / "called"
    worker = make_worker(
        f"import pathlib, time\nCALLED = pathlib.Path({str(called)!r})\n"
        "def f(x, s):\n    CALLED.touch()\n    time.sleep(s)\n    return x",
        timeout_s=100.0,
    )

    def interrupt() -> None:
        if wait_until(called.exists, 60.0):
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        worker.call({"x": "old", "s": 60.0})
    assert worker.call({"x": "new", "s": 0.0}).value == "new"


def test_threads_wait_for_each_other_and_may_end_before_the_worker(make_worker: MakeWorker):
    worker = make_worker("import time\ndef f(x):\n    time.sleep(0.01)\n    return x")
    results: dict[int, object] = {}

    def call(x: int) -> None:
        results[x] = worker.call({"x": x}).value

    threads = [threading.Thread(target=call, args=(x,)) for x in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The thread that started the process is gone; a parent-death signal tied to it would have killed the worker.
    time.sleep(0.5)
    call(8)
    assert results == {x: x for x in range(9)}


DAEMONS = """
    import subprocess, sys, time
    def f(marker, hang):
        sleep = [sys.executable, "-c", "import time; time.sleep(300)", marker]
        subprocess.Popen(sleep)
        subprocess.Popen(sleep, start_new_session=True)
        daemon = f"import subprocess; subprocess.Popen({sleep!r}, start_new_session=True)"
        subprocess.run([sys.executable, "-c", daemon])  # its parent ends at once
        while hang:
            pass
        return "started"
"""


def test_after_a_timeout_nothing_of_the_function_runs(make_worker: MakeWorker):
    marker = f"marker-{uuid.uuid4().hex}"
    worker = make_worker(DAEMONS, timeout_s=3.0)
    assert worker.call({"marker": marker, "hang": True}).cause == "timeout"
    assert processes_with(marker) == []


def test_after_close_nothing_of_the_function_runs(make_worker: MakeWorker):
    marker = f"marker-{uuid.uuid4().hex}"
    worker = make_worker(DAEMONS)
    assert worker.call({"marker": marker, "hang": False}).value == "started"
    assert len(processes_with(marker)) == 3
    worker.close()
    worker.close()
    assert processes_with(marker) == []


PARENT = """
import sys, threading
from pathlib import Path
from oncurve.sandbox import FunctionWorker, Limits
worker = FunctionWorker(Path(sys.argv[1]), "f", Limits(timeout_s=300))
call = lambda: worker.call({"marker": sys.argv[2], "hang": True})
threading.Thread(target=call).start()
"""


def test_killing_the_parent_leaves_no_process(tmp_path: Path):
    marker = f"marker-{uuid.uuid4().hex}"
    file = tmp_path / f"{marker}.py"  # also on the command line of supervisor and worker
    file.write_text(textwrap.dedent(DAEMONS))
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(file), marker])
    try:
        # the parent itself, supervisor, worker, three sleepers
        assert wait_until(lambda: len(processes_with(marker)) == 6, 30), processes_with(marker)
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    assert wait_until(lambda: processes_with(marker) == []), processes_with(marker)


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("\ndef f(x:\n    return x", "SyntaxError: '(' was never closed (file_0.py, line 2)"),
        ("\n\nimport neighbour_with_a_fault\ndef f(): pass", "(neighbour_with_a_fault.py, line 3)"),
        ("\nimport no_such_module_at_all\ndef f(): pass", "(file_0.py, line 2)"),
    ],
)
def test_a_file_that_does_not_load_is_placed_where_its_author_looks(
    make_worker: MakeWorker, tmp_path: Path, source: str, detail: str
):
    (tmp_path / "neighbour_with_a_fault.py").write_text("\n\nx = = 1")
    outcome = make_worker(source).start()
    assert outcome.cause == "error"
    assert outcome.detail.endswith(detail)
