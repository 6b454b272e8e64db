"""Output that cannot be written: a reader that is gone, a full disk, a terminal with few characters."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from tests.train.conftest import SMALL

ROOT = Path(__file__).parents[2]


def run(*words: object, cwd: Path = ROOT, encoding: str = "utf-8", **streams: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "oncurve", *map(str, words)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    return subprocess.run(command, text=True, encoding=encoding, cwd=cwd, env=environment, timeout=240, **pipes)


@pytest.fixture
def unread() -> Iterator[IO[bytes]]:
    """The end to write to of a pipe that nobody reads, as behind `| head -1`."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb", buffering=0) as file:
        yield file


@pytest.fixture
def full() -> Iterator[IO[bytes]]:
    with Path("/dev/full").open("wb", buffering=0) as file:
        yield file


@pytest.fixture
def verdicts(tmp_path: Path) -> Path:
    path = tmp_path / "completions.jsonl"
    path.write_text('{"completion": "<answer>3</answer>", "gold": "3"}\n' * 3)
    return path


@pytest.mark.parametrize("where", ["unread", "full"])
def test_a_run_whose_progress_nobody_can_read_is_trained_to_its_end(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    done = run("train", *SMALL, "--run_dir", tmp_path / "run", "--json", stderr=request.getfixturevalue(where))
    assert done.returncode == 0
    assert json.loads(done.stdout)["is_finished"]


def test_all_streams_into_one_pipe_that_closes_does_not_end_a_run(tmp_path: Path, unread: IO[bytes]) -> None:
    run("train", *SMALL, "--run_dir", tmp_path / "run", stdout=unread, stderr=subprocess.STDOUT)
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize("words", [["--help"], ["verify", "{}"], ["explain"], ["import", "verl", os.devnull]])
def test_a_reader_that_has_seen_enough_is_no_error(words: list[str], verdicts: Path, unread: IO[bytes]) -> None:
    done = run(*(word.format(verdicts) for word in words), stdout=unread)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    assert "error" not in done.stderr


def test_a_result_that_fits_on_no_disk_is_one_error(verdicts: Path, full: IO[bytes]) -> None:
    done = run("verify", verdicts, stdout=full)
    assert done.returncode == 1
    assert done.stderr == "error: [Errno 28] No space left on device\n"


def test_a_closed_stdout_is_no_error(verdicts: Path) -> None:
    done = run("verify", verdicts, stdout=None, preexec_fn=lambda: os.close(1))
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_greek_is_told_the_formula_in_escapes(encoding: str, tmp_path: Path) -> None:
    shown = run("explain", *SMALL, cwd=tmp_path, encoding=encoding)
    assert shown.returncode == 0, shown.stderr
    assert "\\u03c1" in shown.stdout  # rho
    data = json.loads(run("explain", *SMALL, "--json", cwd=tmp_path, encoding=encoding).stdout)
    assert "ρ" in data["formula"]
    assert "·" in data["formula"]  # in latin-1, and not in ascii


def test_half_a_character_in_an_id_ends_no_judging(tmp_path: Path) -> None:
    rows = [{"id": name, "completion": "<answer>3</answer>", "gold": "3"} for name in ("a", "\udfff", "😀")]
    path = tmp_path / "completions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for encoding in ("utf-8", "ascii"):
        done = run("verify", path, encoding=encoding)
        assert done.returncode == 0, done.stderr
        assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["a", "\udfff", "😀"]
