"""Several jails, each used by one thread: work comes in, waits for a free one, and is done again when a jail fails."""

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from oncurve.sandbox.endings import JailError
from oncurve.sandbox.jail import Jail
from oncurve.sandbox.settings import SandboxSettings

Result = TypeVar("Result")

ATTEMPTS = 2
"""A job whose jail fails is done once more in a fresh one: the failure was not the job's."""


class JailPool:
    """A fixed number of jails, started when first needed and replaced when they fail.

    Safe to use from several threads at once; no signals are used. Jobs beyond the number of jails wait.

    Args:
        settings: isolation, limits, number of jails.
    """

    def __init__(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self.num_workers = settings.num_workers or len(os.sched_getaffinity(0))
        self._executor = ThreadPoolExecutor(self.num_workers, thread_name_prefix="oncurve-jail")
        self._lock = threading.Lock()
        self._jails: dict[int, Jail] = {}

    def map(self, jobs: Sequence[Callable[[Jail], Result]]) -> list[Result | JailError]:
        """Do every job with a jail, in any order.

        Returns:
            One result a job, in the order of the jobs; a ``JailError`` where ``ATTEMPTS`` jails failed it.

        Raises:
            ConfigError: programs cannot be isolated here.
        """
        return [future.result() for future in [self._executor.submit(self._do, job) for job in jobs]]

    def start(self) -> None:
        """Start one jail, to see whether that is possible.

        Raises:
            ConfigError: programs cannot be isolated here.
            JailError: it does not start for another reason.
        """
        for result in self.map([lambda jail: jail.facts]):
            if isinstance(result, JailError):
                raise result

    def close(self) -> None:
        """Let running jobs end, then end every jail. Closing twice is fine."""
        self._executor.shutdown()
        with self._lock:
            jails, self._jails = list(self._jails.values()), {}
        for jail in jails:
            jail.close()

    def _do(self, job: Callable[[Jail], Result]) -> Result | JailError:
        failure = JailError("no attempt was made")
        for _ in range(ATTEMPTS):
            try:
                return job(self._own())
            except JailError as error:
                failure = error
                self._discard()
            except BaseException:
                self._discard()  # whatever it left running ends with its jail
                raise
        return failure

    def _own(self) -> Jail:
        """The jail of this thread."""
        name = threading.get_ident()
        with self._lock:
            jail = self._jails.get(name)
        if jail is not None and jail.is_alive():
            return jail
        self._discard()
        jail = Jail(self.settings)
        with self._lock:
            self._jails[name] = jail
        return jail

    def _discard(self) -> None:
        with self._lock:
            jail = self._jails.pop(threading.get_ident(), None)
        if jail is not None:
            jail.close()


_shared: dict[SandboxSettings, JailPool] = {}
_shared_lock = threading.Lock()


def shared_pool(settings: SandboxSettings) -> JailPool:
    """The pool of this process for these settings; it ends with the process."""
    with _shared_lock:
        if settings not in _shared:
            _shared[settings] = JailPool(settings)
        return _shared[settings]


def close_shared_pools() -> None:
    """End every shared pool; the next use starts a fresh one."""
    with _shared_lock:
        pools = list(_shared.values())
        _shared.clear()
    for pool in pools:
        pool.close()


def _forget() -> None:
    """A forked process has no threads and must not talk to its parent's jails."""
    global _shared_lock
    _shared_lock = threading.Lock()
    _shared.clear()


atexit.register(close_shared_pools)
os.register_at_fork(after_in_child=_forget)
