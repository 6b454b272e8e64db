"""Real processes: a command that ends, is asked to end, is left, and loses its parent."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from tests.processes import processes_with, wait_until

from oncurve.sandbox import Command
from oncurve.types import StorageError

SLEEPS = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]])"


def python(source: str, *words: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(source), *words]


def ended(command: Command) -> int:
    status = command.wait(30.0)
    assert status is not None
    return status


def test_both_streams_are_appended_to_the_log_and_the_status_comes_back(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    source = "import sys; print(sys.argv[1], flush=True); print('err', file=sys.stderr); sys.exit(3)"
    with Command(python(source, "$HOME *"), log) as command:
        assert ended(command) == 3
    assert log.read_text() == "before\n$HOME *\nerr\n"  # no shell has read the words


def test_it_leads_a_group_of_its_own_and_reads_nothing(tmp_path: Path) -> None:
    source = "import os, sys; print(os.getpgid(0) == os.getpid() != int(sys.argv[1]), repr(sys.stdin.read()))"
    with Command(python(source, str(os.getpgid(0))), tmp_path / "log") as command:
        assert ended(command) == 0
    assert (tmp_path / "log").read_text() == "True ''\n"


def test_waiting_does_not_last_longer_than_asked_and_a_request_to_end_is_heard(tmp_path: Path) -> None:
    source = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        print("ready", flush=True)
        time.sleep(600)
    """
    with Command(python(source), tmp_path / "log") as command:
        assert wait_until(lambda: (tmp_path / "log").read_text() == "ready\n")
        started = time.monotonic()
        assert command.wait(0.05) is None
        assert time.monotonic() - started < 5
        command.terminate()
        assert ended(command) == 7
        command.terminate()  # nobody is there: nothing happens


def test_leaving_the_block_ends_the_whole_group(tmp_path: Path) -> None:
    marker = f"marker-{os.getpid()}-left"
    with Command(python(SLEEPS, marker), tmp_path / "log"):
        assert wait_until(lambda: len(processes_with(marker)) == 2)
    assert wait_until(lambda: processes_with(marker) == [])


@pytest.mark.skipif(sys.platform != "linux", reason="needs the parent-death signal of Linux")
def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    marker = f"marker-{os.getpid()}-orphan"
    parent_source = f"""
        import sys, time
        from pathlib import Path
        from oncurve.sandbox import Command
        with Command([sys.executable, "-c", "import time; time.sleep(600)", "{marker}-child"], Path(sys.argv[1])):
            time.sleep(600)
    """
    parent = subprocess.Popen(python(parent_source, str(tmp_path / "log")))
    child = f"time.sleep(600)\x00{marker}-child"
    assert wait_until(lambda: len(processes_with(child)) == 1)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert wait_until(lambda: processes_with(child) == [])


def test_what_cannot_be_started_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot start /bin/true"), Command(["/bin/true"], tmp_path / "no" / "log"):
        pass
    with pytest.raises(ValueError, match="inside its `with` block"):
        Command(["/bin/true"], tmp_path / "log").wait(0.1)
