"""Sampling and verification at the same time: what has ended is judged while the rest is still being sampled.

engine ──completion──► blocks ──batch──► one thread ──► verdicts        N requests, each with the task it answers
   └───────── goes on sampling ──────────────┘
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Literal, Protocol

from oncurve.rollout.engine import Engine, Request
from oncurve.rollout.reward_model import NETWORK_VERIFIERS
from oncurve.types import Completion, Sampling, Task, Verdict
from oncurve.verify import Item, RewardSettings
from oncurve.verify.reward_function import is_function_name

Unit = Literal["completion", "group", "rollout"]
"""What is handed to the judge as soon as it is complete."""
Overlap = Literal["auto", "completion", "group", "never"]

COMPARES_A_GROUP = ("kimi", "lead")
"""Length rewards that look at all completions of a task."""
_MIN_BLOCK = 16
"""Fewest completions of a block of groups, unless they are the last: a call costs something too."""
_MAX_BATCH = 64
"""Most completions of one call of the judge: an interrupted rollout waits for the call that is going on."""


class Judge(Protocol):
    """Whatever scores completions; ``oncurve.verify.Scorer`` does, and judges equal completions of a task once."""

    def score(self, items: Sequence[Item]) -> list[Verdict]:
        """Return one verdict an item, in the same order."""
        ...


def unit_of(overlap: Overlap, reward: RewardSettings) -> Unit:
    """What may be judged by itself without changing a verdict.

    Args:
        overlap: the setting. ``auto`` gives single completions to verifiers, and whole groups where a component is a
            reward function, which may compare what it gets, or where the length reward compares a group; where a
            component runs a network in this process nothing is judged before sampling has ended.
        reward: the components.
    """
    if overlap != "auto":
        return "rollout" if overlap == "never" else overlap
    verifiers = [component.verifier for component in reward.components.values()]
    if any(name in NETWORK_VERIFIERS for name in verifiers):
        return "rollout"
    compares = reward.length is not None and reward.length.shape in COMPARES_A_GROUP
    return "group" if compares or any(is_function_name(name) for name in verifiers) else "completion"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """Completions with their verdicts, in the order of the requests, and what they cost."""

    completions: list[Completion]
    verdicts: list[Verdict]
    seconds_rollout: float
    """Wall seconds of sampling."""
    parts: dict[str, float]
    """Of them, by ``engine.PARTS``."""
    seconds_verify: float
    """Wall seconds that verification took beyond sampling."""
    seconds_busy: float
    """Wall seconds in which something was being judged."""


class Judging:
    """Samples with an engine and has the completions judged. Verdicts do not depend on ``unit``, only the time does.

    Args:
        judge: scores; called by one thread at a time, always the same one, which lives as long as this object.
        unit: ``rollout`` judges everything after sampling, in one call.
    """

    def __init__(self, judge: Judge, unit: Unit) -> None:
        self._judge = judge
        self._unit = unit
        # One thread for good: a process that dies with its parent dies with the thread that started it.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="oncurve-verify")

    def sample(
        self,
        engine: Engine,
        requests: Sequence[Request],
        owners: Sequence[Task],
        sampling: Sampling,
        *,
        policy_version: int,
    ) -> Judged:
        """Sample one completion a request and judge it.

        When sampling fails or is interrupted, the call of the judge that is going on ends before the error goes on.

        Args:
            engine: samples.
            requests: those of a task follow each other.
            owners: the task of each request.
            sampling: how.
            policy_version: written on every completion.

        Raises:
            ValueError: the judge does not return one verdict per completion.
            DataError: a prompt does not fit the context, or as the judge.
        """
        began = time.perf_counter()
        work = _Work(self._judge, owners, self._unit)
        if self._unit == "rollout":
            completions = engine.generate(requests, sampling, policy_version=policy_version)
            sampled = time.perf_counter()
            for place, completion in enumerate(completions):
                work.put(place, completion)
            work.finish()
            work.run()
        else:
            completions, sampled = self._overlapped(engine, requests, sampling, policy_version, work)
        return Judged(
            completions=completions,
            verdicts=work.verdicts(),
            seconds_rollout=sampled - began,
            parts=engine.seconds(),
            seconds_verify=time.perf_counter() - sampled,
            seconds_busy=work.seconds,
        )

    def _overlapped(
        self, engine: Engine, requests: Sequence[Request], sampling: Sampling, policy_version: int, work: "_Work"
    ) -> tuple[list[Completion], float]:
        """The completions, and when the last of them ended; the verdicts are in ``work``."""
        judging: Future[None] = self._executor.submit(work.run)

        def put(place: int, completion: Completion) -> None:
            if judging.done():
                judging.result()  # it has failed: sampling on is in vain
            work.put(place, completion)

        try:
            completions = engine.generate(requests, sampling, policy_version=policy_version, on_completion=put)
            sampled = time.perf_counter()
            work.finish()
            judging.result()
        except BaseException:
            work.cancel()
            wait([judging])
            raise
        return completions, sampled


class _Work:
    """Completions on their way to the judge. ``put`` and ``run`` are called by two threads."""

    def __init__(self, judge: Judge, owners: Sequence[Task], unit: Unit) -> None:
        self._judge = judge
        self._owners = owners
        self._max_batch = _MAX_BATCH if unit == "completion" else 1
        self._blocks = _blocks(owners, unit)
        self._block_of = [number for number, block in enumerate(self._blocks) for _ in block]
        self._missing = [len(block) for block in self._blocks]
        self._completions: dict[int, Completion] = {}
        self._verdicts: dict[int, Verdict] = {}
        self._known: dict[tuple[object, ...], Verdict] = {}
        self._ready: deque[int] = deque()
        self._is_open = True
        self._changed = threading.Condition()
        self.seconds = 0.0
        """In which the judge was busy."""

    def put(self, place: int, completion: Completion) -> None:
        """Take a finished completion; its block is ready when none is missing."""
        with self._changed:
            self._completions[place] = completion
            number = self._block_of[place]
            self._missing[number] -= 1
            if not self._missing[number]:
                self._ready.append(number)
                self._changed.notify()

    def finish(self) -> None:
        """Nothing more comes: ``run`` returns after what is ready."""
        with self._changed:
            self._is_open = False
            self._changed.notify()

    def cancel(self) -> None:
        """Nobody wants the verdicts any more: ``run`` returns after the call that is going on."""
        with self._changed:
            self._ready.clear()
            self._is_open = False
            self._changed.notify()

    def run(self) -> None:
        """Judge block after block until nothing more comes."""
        while places := self._take():
            began = time.perf_counter()
            self._score(places)
            self.seconds += time.perf_counter() - began

    def verdicts(self) -> list[Verdict]:
        """One a request, in their order, when everything has been judged."""
        return [self._verdicts[place] for place in range(len(self._owners))]

    def _take(self) -> list[int]:
        """Wait for the places of the next batch; none when there is no more."""
        with self._changed:
            while not self._ready and self._is_open:
                self._changed.wait()
            count = min(len(self._ready), self._max_batch)
            return [place for _ in range(count) for place in self._blocks[self._ready.popleft()]]

    def _score(self, places: Sequence[int]) -> None:
        """Judge these places. What equals an earlier completion of its task has its verdict already."""
        keys = {place: self._key(place) for place in places}
        fresh = [place for place, key in keys.items() if key not in self._known]
        items = [Item.of(self._owners[place], self._completions[place]) for place in fresh]
        verdicts = self._judge.score(items) if items else []
        if len(verdicts) != len(items):
            raise ValueError(f"{len(items)} completions were scored, but {len(verdicts)} verdicts came back")
        self._verdicts |= zip(fresh, verdicts, strict=True)
        if self._max_batch > 1:  # whole groups are told apart by the judge
            self._known |= {keys[place]: self._verdicts[place] for place in fresh}
            self._verdicts |= {place: self._known[key] for place, key in keys.items()}

    def _key(self, place: int) -> tuple[object, ...]:
        done = self._completions[place]
        return self._owners[place].id, done.token_ids, done.text, done.is_truncated, done.episode


def _blocks(owners: Sequence[Task], unit: Unit) -> list[range]:
    """Places that go to the judge together. They do not depend on who ends first."""
    if unit == "completion":
        return [range(place, place + 1) for place in range(len(owners))]
    if unit == "rollout":
        return [range(len(owners))] if owners else []
    blocks, start = [], 0
    for place in range(1, len(owners) + 1):
        ends_a_group = place == len(owners) or owners[place].id != owners[place - 1].id
        if ends_a_group and (place - start >= _MIN_BLOCK or place == len(owners)):
            blocks.append(range(start, place))
            start = place
    return blocks
