"""Real processes behind one queue: who takes which call, what a kill costs, and that nothing is left."""

import asyncio
import os
import signal
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.processes import processes_with, wait_until

from oncurve.sandbox import Limits, WorkerPool

MakePool = Callable[..., WorkerPool]
ECHO = "import os, time\ndef f(x, s=0.0):\n    time.sleep(s)\n    return [x, os.getpid()]"


@pytest.fixture
def make_pool(tmp_path: Path) -> Iterator[MakePool]:
    """Write a file and serve its function ``f``; every pool is closed at the end."""
    pools = []

    def make(source: str, *, num_workers: int = 2, max_queued: int = 0, **limits: float | None) -> WorkerPool:
        file = tmp_path / f"pool_{len(pools)}_{uuid.uuid4().hex}.py"
        file.write_text(textwrap.dedent(source))
        bounds = Limits(**{"timeout_s": 30.0, **limits})  # type: ignore[arg-type]
        pools.append(WorkerPool(file, "f", bounds, num_workers=num_workers, max_queued=max_queued))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def held(folder: Path, source: str = "") -> str:
    """A function that says that it runs by a file, and returns when the file ``go`` is there."""
    return f"""
        import os, time
        from pathlib import Path
        HERE = Path({str(folder)!r})
        def f(x, hold=False):
            {source or "pass"}
            if hold:
                (HERE / f"runs-{{x}}").touch()
                while not (HERE / "go").exists():
                    time.sleep(0.005)
            return [x, os.getpid()]
        """


def test_outcomes_come_in_the_order_of_the_calls_and_processes_are_reused(make_pool: MakePool):
    outcomes = make_pool(ECHO).map([{"x": x} for x in range(40)])
    assert [outcome.value[0] for outcome in outcomes] == list(range(40))
    assert 1 <= len({outcome.value[1] for outcome in outcomes}) <= 2


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.lists(st.integers(-9, 9) | st.text(max_size=3), max_size=12))
def test_a_batch_of_any_size_comes_back_whole(shared_echo: WorkerPool, data: list[Any]):
    assert [outcome.value[0] for outcome in shared_echo.map([{"x": x} for x in data])] == data


@pytest.fixture(scope="module")
def shared_echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    file = tmp_path_factory.mktemp("echo") / "echo.py"
    file.write_text(ECHO)
    with WorkerPool(file, "f", Limits(timeout_s=30), num_workers=2, max_queued=1) as pool:
        yield pool


def test_no_more_processes_than_the_work_needs(make_pool: MakePool, tmp_path: Path):
    pool = make_pool(held(tmp_path), num_workers=3)
    assert pool.num_started == 0
    assert {pool.call({"x": x}).value[1] for x in range(5)} != set()
    assert pool.num_started == 1  # calls that follow each other need one
    jobs = [pool.submit({"x": x, "hold": True}) for x in range(2)]
    assert wait_until(lambda: len(list(tmp_path.glob("runs-*"))) == 2)
    assert pool.num_started == 2
    (tmp_path / "go").touch()
    assert len({job.result().value[1] for job in jobs}) == 2


def test_one_slow_call_does_not_hold_up_the_others(make_pool: MakePool, tmp_path: Path):
    pool = make_pool(held(tmp_path), num_workers=2)
    slow = pool.submit({"x": "slow", "hold": True})
    assert wait_until((tmp_path / "runs-slow").exists)
    others = pool.map([{"x": x} for x in range(30)])
    assert [outcome.value[0] for outcome in others] == list(range(30))
    assert not slow.done()  # all thirty were done by the other process
    assert len({outcome.value[1] for outcome in others}) == 1
    (tmp_path / "go").touch()
    assert slow.result().value[1] not in {outcome.value[1] for outcome in others}


def test_the_queue_is_bounded_and_submit_waits_for_room(make_pool: MakePool, tmp_path: Path):
    pool = make_pool(held(tmp_path), num_workers=1, max_queued=3)
    submitted, seen = [], []

    def produce() -> None:
        for x in range(12):
            submitted.append(pool.submit({"x": x, "hold": x == 0}))
            seen.append(pool.num_queued)

    producer = threading.Thread(target=produce)
    producer.start()
    assert wait_until((tmp_path / "runs-0").exists)
    assert wait_until(lambda: len(submitted) == 4)  # one runs, three wait
    assert pool.num_queued == 3
    time.sleep(0.1)
    assert len(submitted) == 4  # the fifth submit has not returned
    (tmp_path / "go").touch()
    producer.join()
    assert [job.result().value[0] for job in submitted] == list(range(12))
    assert max(seen) <= 3


def test_an_event_loop_goes_on_while_calls_wait(make_pool: MakePool, tmp_path: Path):
    pool = make_pool(held(tmp_path), num_workers=1, max_queued=1)
    most_queued = 0

    async def ticks() -> int:
        nonlocal most_queued
        count = 0
        while count < 20:
            await asyncio.sleep(0.005)
            most_queued = max(most_queued, pool.num_queued)
            count += 1
        (tmp_path / "go").touch()  # only a loop that still turns gets here
        return count

    async def main() -> tuple[list[Any], int]:
        calls = [pool.call_async({"x": x, "hold": True}) for x in range(30)]
        *outcomes, count = await asyncio.gather(*calls, ticks())
        return [outcome.value[0] for outcome in outcomes], count

    assert asyncio.run(main()) == (list(range(30)), 20)
    assert most_queued == 1


def test_a_cancelled_call_leaves_the_line(make_pool: MakePool, tmp_path: Path):
    pool = make_pool(held(tmp_path, "(HERE / f'called-{x}').touch()"), num_workers=1, max_queued=1)

    async def main() -> None:
        tasks = [asyncio.create_task(pool.call_async({"x": x, "hold": x == 0})) for x in range(4)]
        while not (tmp_path / "runs-0").exists():
            await asyncio.sleep(0.005)
        tasks[1].cancel()  # stands in the queue
        tasks[2].cancel()  # stands in the line
        (tmp_path / "go").touch()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome).__name__ for outcome in done] == [
            "Outcome",
            "CancelledError",
            "CancelledError",
            "Outcome",
        ]

    asyncio.run(main())
    assert sorted(path.name for path in tmp_path.glob("called-*")) == ["called-0", "called-3"]


def test_threads_and_event_loops_share_a_pool(make_pool: MakePool):
    pool = make_pool(ECHO, num_workers=2, max_queued=2)
    results: dict[str, list[Any]] = {}

    def batches(name: str) -> None:
        results[name] = [o.value[0] for _ in range(3) for o in pool.map([{"x": f"{name}-{x}"} for x in range(15)])]

    def loop(name: str) -> None:
        async def main() -> list[Any]:
            return list(await asyncio.gather(*(pool.call_async({"x": f"{name}-{x}"}) for x in range(45))))

        results[name] = [outcome.value[0] for outcome in asyncio.run(main())]

    threads = [threading.Thread(target=batches, args=(f"t{n}",)) for n in range(6)]
    threads += [threading.Thread(target=loop, args=(f"a{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {f"t{n}": [f"t{n}-{x}" for _ in range(3) for x in range(15)] for n in range(6)} | {
        f"a{n}": [f"a{n}-{x}" for x in range(45)] for n in range(3)
    }


def test_a_worker_that_is_killed_from_outside_costs_nothing(make_pool: MakePool, tmp_path: Path):
    pool = make_pool(held(tmp_path), num_workers=2)
    jobs = [pool.submit({"x": x, "hold": True}) for x in range(6)]
    assert wait_until(lambda: len(list(tmp_path.glob("runs-*"))) == 2)
    (tmp_path / "runs-0").unlink()
    killed = [pid for pid in processes_with("pool_0_") if parent_of(pid) != os.getpid()]
    assert len(killed) == 2  # the workers, whose parents are their supervisors
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert wait_until((tmp_path / "runs-0").exists)  # it runs again, in a fresh process
    (tmp_path / "go").touch()
    outcomes = [job.result() for job in jobs]
    assert [outcome.value and outcome.value[0] for outcome in outcomes] == list(range(6))
    assert not {outcome.value[1] for outcome in outcomes} & set(killed)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize(
    ("body", "cause", "num_attempts"),
    [
        ("os._exit(3)", "crash", 2),
        ("time.sleep(60)", "timeout", 1),
        ("while True: pass", "timeout", 1),
        ("bytearray(2**30)", "memory", 1),
        ("raise ValueError", "error", 1),
    ],
)
def test_only_a_death_is_tried_again(make_pool: MakePool, tmp_path: Path, body: str, cause: str, num_attempts: int):
    source = f"""
        import os, time
        from pathlib import Path
        def f(bad):
            if bad:
                with Path({str(tmp_path / "attempts")!r}).open("a") as log:
                    log.write("x")
                {body}
            return os.getpid()
        """
    timeout_s = 1.0 if cause == "timeout" else 30.0
    pool = make_pool(source, num_workers=1, timeout_s=timeout_s, memory_bytes=512 * 1024**2)
    pool.start()
    before, outcome, after = pool.map([{"bad": False}, {"bad": True}, {"bad": False}])
    assert outcome.cause == cause, outcome
    assert (tmp_path / "attempts").read_text() == "x" * num_attempts
    assert isinstance(before.value, int)
    assert isinstance(after.value, int)
    assert (before.value == after.value) is (cause in ("memory", "error"))  # those cost no process


def test_cpu_seconds_are_limited_for_each_call(make_pool: MakePool):
    source = """
        import time
        def f(cpu_s):
            end = time.process_time() + cpu_s
            while time.process_time() < end:
                pass
            return "done"
        """
    pool = make_pool(source, num_workers=1, cpu_s=1, timeout_s=60.0)
    calls = [pool.call({"cpu_s": seconds}) for seconds in (0.8, 0.8, 60.0, 0.1)]
    assert [call.value for call in calls] == ["done", "done", None, "done"]  # each call has a second of its own
    assert calls[2].cause == "cpu"
    assert "more than 1 s of CPU time" in calls[2].detail
    unlimited = make_pool(source, num_workers=1, timeout_s=60.0)
    assert unlimited.call({"cpu_s": 2.2}).value == "done"


def test_a_limit_of_one_call_is_not_that_of_the_next(make_pool: MakePool):
    pool = make_pool(ECHO, num_workers=1)
    pool.start()
    assert pool.call({"x": 1, "s": 30.0}, timeout_s=0.2).cause == "timeout"
    assert pool.call({"x": 2, "s": 0.3}).value[0] == 2


def test_after_a_kill_a_fresh_process_is_there_before_the_next_call(make_pool: MakePool):
    pool = make_pool(ECHO, num_workers=1)
    pool.start()
    assert pool.call({"x": 1, "s": 30.0}, timeout_s=0.2).cause == "timeout"
    assert wait_until(lambda: len(processes_with("pool_0_")) == 2), "supervisor and worker, without another call"


@pytest.mark.parametrize("source", ["def g(): pass", "def f(:", "raise SystemExit(3)"])
def test_a_file_that_does_not_load_says_why_each_time(make_pool: MakePool, source: str):
    pool = make_pool(source)
    assert [pool.start().cause, pool.call({"x": 1}).cause] == ["error", "error"]


def test_an_argument_that_is_not_plain_data_is_refused_and_the_rest_is_taken_back(make_pool: MakePool):
    pool = make_pool(ECHO)
    with pytest.raises(TypeError):
        pool.map([{"x": 1}, {"x": object()}])
    assert pool.call({"x": 2}).value[0] == 2


def test_closing_ends_running_and_waiting_calls_and_leaves_nothing(make_pool: MakePool, tmp_path: Path):
    pool = make_pool(held(tmp_path), num_workers=2, max_queued=2)
    outcomes: list[Any] = []
    threads = [
        threading.Thread(target=lambda x=x: outcomes.append(pool.call({"x": x, "hold": True})), daemon=True)
        for x in range(8)  # two run, two are in the queue, four callers wait in the line
    ]
    for thread in threads:
        thread.start()
    assert wait_until(lambda: len(list(tmp_path.glob("runs-*"))) == 2)
    pool.close()
    pool.close()
    for thread in threads:
        thread.join(20)
    assert [(outcome.cause, outcome.detail) for outcome in outcomes] == [
        ("crash", "the pool was closed before the call was done")
    ] * 8
    assert processes_with("pool_0_") == []
    assert pool.call({"x": "again"}).value[0] == "again"


def test_a_pool_that_nobody_holds_any_more_does_what_it_was_given_and_ends(tmp_path: Path):
    name = f"dropped_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(ECHO)
    others = set(threading.enumerate())
    pool = WorkerPool(tmp_path / f"{name}.py", "f", Limits(timeout_s=30.0), num_workers=2)
    pool.close()  # the pool goes on with other threads
    pool.call({"x": 0})
    outcomes = [pool.submit({"x": x, "s": 0.2}) for x in range(5)]
    del pool
    assert [outcome.result(30).value[0] for outcome in outcomes] == [0, 1, 2, 3, 4]
    assert wait_until(lambda: processes_with(name) == [])
    assert wait_until(lambda: set(threading.enumerate()) <= others)


def test_a_thread_that_cannot_start_does_not_stand_for_one_that_serves(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
):
    pool = make_pool(ECHO, num_workers=1)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            pool.call({"x": 1})
    assert pool.call({"x": 2}).value[0] == 2


def test_a_forked_process_starts_its_own(make_pool: MakePool):
    pool = make_pool(ECHO, num_workers=2)
    theirs = pool.call({"x": 1}).value[1]
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        value = pool.call({"x": 2}).value
        pool.close()
        os.write(write, f"{value[0]} {value[1]}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    answer, own = os.read(read, 100).decode().split()
    os.close(read)
    os.close(write)
    assert answer == "2"
    assert int(own) != theirs
    assert pool.call({"x": 3}).value == [3, theirs]  # the parent's is still there
