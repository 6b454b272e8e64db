"""Several warm processes behind one queue, for calls of one function: whoever is free takes the next call.

callers ──► line ──► queue (bounded) ──► threads, one for each process ──► FunctionWorker
            blocked callers stand in the line; only ``max_queued`` calls stand in the queue
"""

import asyncio
import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from oncurve.sandbox import child
from oncurve.sandbox.worker import FunctionWorker, Limits, Outcome

ATTEMPTS = 2
"""A call whose process dies is made once more in a fresh one: somebody else may have killed it. Limits are final."""

CALLS_PER_WORKER = 4
"""Calls in the queue for each process, unless ``max_queued`` says otherwise."""

_CLOSED = Outcome(cause="crash", detail="the pool was closed before the call was done")


@dataclass(eq=False, slots=True)
class _Job:
    frame: bytes | None
    """The request; None to start a process only."""
    timeout_s: float | None
    outcome: Future[Outcome] = field(default_factory=Future)
    is_queued: threading.Event = field(default_factory=threading.Event)
    """Set when the job has moved from the line into the queue, or will never have to."""


class WorkerPool:
    """Calls one function in up to ``num_workers`` child processes, which stay warm between calls.

    A process is started when a call finds none free, so there are never more than the work needed, and again as soon
    as it had to be killed. A call that exceeds a limit costs itself only. A call whose process dies is made once more
    in a fresh one and is a ``crash`` only then.

    Safe to use from several threads and from event loops at the same time; no signals are used. A forked process has
    a pool without processes, and starts its own. When this process ends, in whatever way, so do all processes; those of
    a pool that nobody holds any more end after the calls that are under way.

    Args:
        file: the Python file.
        function: name of a function in it, sync or async.
        limits: what a call may use.
        num_workers: processes at the same time; 0 for one on each core that this process may use.
        max_queued: calls that wait for a process; further callers wait (``submit``, ``call_async``, ...) until there is
            room. 0 for four for each process.
        show_output: pass what the function prints on to standard error; otherwise it is discarded.
    """

    def __init__(
        self,
        file: Path,
        function: str,
        limits: Limits,
        *,
        num_workers: int = 0,
        max_queued: int = 0,
        show_output: bool = False,
    ) -> None:
        self.num_workers = num_workers or len(os.sched_getaffinity(0))
        self.max_queued = max_queued or CALLS_PER_WORKER * self.num_workers
        self._make: Callable[[], FunctionWorker] = partial(
            FunctionWorker, file, function, limits, show_output=show_output
        )
        self._lock = threading.Lock()
        self._crew, self._when_dropped = self._new_crew()
        _pools.add(self)

    @property
    def num_started(self) -> int:
        """Processes that the work has needed so far."""
        return len(self._crew.members)

    @property
    def num_queued(self) -> int:
        """Calls in the queue; never more than ``max_queued``."""
        return len(self._crew.queue)

    def start(self) -> Outcome:
        """Start one process and load the function, unless that is done. The outcome says whether it worked."""
        return _result(self._enter(_Job(None, None)))

    def call(self, arguments: Mapping[str, Any], *, timeout_s: float | None = None) -> Outcome:
        """Call the function with keyword arguments of plain data, and wait for the outcome.

        Args:
            arguments: of the call.
            timeout_s: wall seconds for this call, where they are not those of the limits.

        Raises:
            TypeError: an argument cannot be written as JSON.
        """
        return _result(self._enter(_Job(child.encode_frame(arguments), timeout_s)))

    async def call_async(self, arguments: Mapping[str, Any], *, timeout_s: float | None = None) -> Outcome:
        """``call`` for event loops: never blocks the loop. Cancelling it takes a call that still waits out of the line.

        Raises:
            TypeError: an argument cannot be written as JSON.
        """
        return await asyncio.wrap_future(self._enter(_Job(child.encode_frame(arguments), timeout_s)).outcome)

    def submit(self, arguments: Mapping[str, Any], *, timeout_s: float | None = None) -> Future[Outcome]:
        """Put a call into the queue; blocks while the queue is full.

        Raises:
            TypeError: an argument cannot be written as JSON.
        """
        job = self._enter(_Job(child.encode_frame(arguments), timeout_s))
        try:
            job.is_queued.wait()
        except BaseException:  # Ctrl-C
            job.outcome.cancel()
            raise
        return job.outcome

    def map(self, calls: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """Make every call, in any order.

        Returns:
            One outcome a call, in the order of the calls.

        Raises:
            TypeError: an argument cannot be written as JSON.
        """
        outcomes: list[Future[Outcome]] = []
        try:
            outcomes.extend(self.submit(arguments) for arguments in calls)
            return [outcome.result() for outcome in outcomes]
        except BaseException:
            for outcome in outcomes:
                outcome.cancel()
            raise

    def close(self) -> None:
        """End every process and all they started, also under running calls. A later call starts fresh ones."""
        with self._lock:
            crew = self._crew
            self._when_dropped.detach()
            self._crew, self._when_dropped = self._new_crew()
        crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _enter(self, job: _Job) -> _Job:
        while not self._crew.enter(job):
            pass  # closed meanwhile: there is a new crew
        return job

    def _new_crew(self) -> "tuple[_Crew, weakref.finalize[[], WorkerPool]]":
        crew = _Crew(self)
        when_dropped = weakref.finalize(self, crew.let_go)
        when_dropped.atexit = False  # ``_close_all`` ends them then
        return crew, when_dropped

    def _forget(self) -> None:
        """In a forked process: threads and processes are the parent's, and another thread may have held a lock."""
        self._lock = threading.Lock()
        self._when_dropped.detach()
        self._crew, self._when_dropped = self._new_crew()


class _Crew:
    """The threads of a pool from one start to one close, each with its process."""

    def __init__(self, pool: WorkerPool) -> None:
        self.num_workers, self.max_queued = pool.num_workers, pool.max_queued
        self._make = pool._make
        self.queue: deque[_Job] = deque()
        self.members: dict[threading.Thread, FunctionWorker] = {}
        self._line: deque[_Job] = deque()
        self._is_closed = False
        self._is_let_go = False
        self._num_idle = 0
        self._changed = threading.Condition()

    def enter(self, job: _Job) -> bool:
        """Put a job at the end of the line. False when the crew has gone home."""
        with self._changed:
            if self._is_closed:
                return False
            self._line.append(job)
            self._advance()
        return True

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            dropped = [*self.queue, *self._line]
            self.queue.clear()
            self._line.clear()
            self._changed.notify_all()
        for job in dropped:
            if job.outcome.set_running_or_notify_cancel():
                job.outcome.set_result(_CLOSED)
            job.is_queued.set()
        for thread, worker in self.members.items():
            while thread.is_alive() and thread is not threading.current_thread():
                worker.kill()  # again, since it may just be starting its process
                thread.join(0.05)

    def let_go(self) -> None:
        """Go home when nothing is left to do. Waits for nobody: the garbage collector may call this in any thread."""
        with self._changed:
            self._is_let_go = True
            self._changed.notify_all()

    def _advance(self) -> None:
        """Move jobs from the line into the queue while there is room, and see that somebody takes them."""
        while self._line and len(self.queue) < self.max_queued:
            job = self._line.popleft()
            if job.outcome.cancelled():
                continue
            self.queue.append(job)
            job.is_queued.set()
            if len(self.queue) > self._num_idle and len(self.members) < self.num_workers:
                self._hire()
            self._changed.notify()

    def _hire(self) -> None:
        worker = self._make()
        thread = threading.Thread(target=self._serve, args=(worker,), name="oncurve-worker", daemon=True)
        thread.start()
        self.members[thread] = worker  # not before: one that cannot start must not count

    def _serve(self, worker: FunctionWorker) -> None:
        with worker:
            while (job := self._next()) is not None:
                if job.outcome.set_running_or_notify_cancel():
                    self._do(job, worker)

    def _next(self) -> _Job | None:
        """Wait for a job; None when the crew goes home."""
        with self._changed:
            self._num_idle += 1
            while not (self.queue or self._is_closed or self._is_let_go):
                self._changed.wait()
            self._num_idle -= 1
            if self._is_closed or not self.queue:
                return None
            job = self.queue.popleft()
            self._advance()
            return job

    def _do(self, job: _Job, worker: FunctionWorker) -> None:
        try:
            outcome = self._attempt(job, worker)
        except BaseException as error:  # noqa: BLE001  the border: whoever waits for it is told
            job.outcome.set_exception(error)
            return
        job.outcome.set_result(outcome)
        if outcome.cause in ("timeout", "cpu", "crash") and not worker.is_started and not self._is_closed:
            worker.start()  # the next call finds it warm

    def _attempt(self, job: _Job, worker: FunctionWorker) -> Outcome:
        outcome = _CLOSED
        for _ in range(ATTEMPTS):
            if self._is_closed:
                return _CLOSED
            outcome = worker.start() if job.frame is None else worker.send(job.frame, job.timeout_s)
            if outcome.cause != "crash":
                return outcome
        return outcome


def _result(job: _Job) -> Outcome:
    try:
        return job.outcome.result()
    except BaseException:  # Ctrl-C
        job.outcome.cancel()
        raise


_pools: "weakref.WeakSet[WorkerPool]" = weakref.WeakSet()


def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


def _forget_all() -> None:
    for pool in list(_pools):
        pool._forget()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all)
