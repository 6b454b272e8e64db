"""Compute each value once: remember the latest, and wait for a thread that is computing the same one."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Once(Generic[Value]):
    """Values by key, computed by whoever asks first. Safe to use from several threads.

    Args:
        max_kept: values that are remembered; the one that was asked for least recently goes first.
        is_kept: whether a value is remembered at all.
    """

    def __init__(self, max_kept: int, is_kept: Callable[[Value], bool]) -> None:
        self._max_kept = max_kept
        self._is_kept = is_kept
        self._kept: OrderedDict[Hashable, Value] = OrderedDict()
        self._running: dict[Hashable, Future[Value]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """The value of a key. What ``compute`` raises is raised for everybody who waits for it, and forgotten."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            running = self._running.get(key)
            if running is None:
                mine = self._running[key] = Future()
        return self._compute(key, mine, compute) if running is None else running.result()

    def _compute(self, key: Hashable, mine: Future[Value], compute: Callable[[], Value]) -> Value:
        try:
            value = compute()
        except BaseException as error:
            with self._lock:
                del self._running[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._running[key]
            if self._is_kept(value):
                self._kept[key] = value
                if len(self._kept) > self._max_kept:
                    self._kept.popitem(last=False)
        mine.set_result(value)
        return value
