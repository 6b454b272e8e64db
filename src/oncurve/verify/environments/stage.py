"""Where episodes are played: a process of its own that can be killed, and the judgement of the state they end in."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from oncurve.sandbox import FunctionWorker, Limits, Outcome
from oncurve.types import Episode, Status, Task
from oncurve.verify.environments.calls import Call
from oncurve.verify.environments.inside import play as played
from oncurve.verify.environments.spec import EnvironmentSpec, environment_of, plain
from oncurve.verify.items import one_line

_BATCH = 16
"""Most episodes of one request: what a time-out or a crash puts at risk before they are played one by one."""
_MEMORY_BYTES = 1024**3


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model reads after a call."""

    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Scene:
    """An episode after its calls so far."""

    answers: tuple[Answer, ...] = ()
    """One a call."""
    state: Any = None
    fault: tuple[str, str] | None = None
    """Cause and detail where the environment failed, by no mistake of the model."""


@dataclass(eq=False)
class Stage:
    """Plays episodes in a child process; equal ones once. Close it to end the process.

    Args:
        timeout_s: wall seconds for the episodes of one request; then the process is killed, and its episodes are
            played again one by one.
    """

    timeout_s: float = 10.0
    _worker: FunctionWorker = field(init=False)

    def __post_init__(self) -> None:
        limits = Limits(timeout_s=self.timeout_s, memory_bytes=_MEMORY_BYTES)
        self._worker = FunctionWorker(Path(played.__file__), "serve", limits)

    def play(self, episodes: Sequence[tuple[EnvironmentSpec, Sequence[Call]]]) -> list[Scene]:
        """Play every episode from its start.

        Args:
            episodes: environments, and the calls so far.

        Returns:
            A scene an episode, in order. One on which the process died or hung has a fault.
        """
        requests = [_request(spec, calls) for spec, calls in episodes]
        keys = [json.dumps(request) for request in requests]
        distinct = dict(zip(keys, requests, strict=True))
        scenes: dict[str, Scene] = {}
        names = list(distinct)
        for start in range(0, len(names), _BATCH):
            batch = names[start : start + _BATCH]
            found = self._ask([distinct[name] for name in batch])
            if found.cause is None:
                scenes |= zip(batch, map(_scene, found.value), strict=True)
            else:
                scenes |= {name: self._alone(distinct[name]) for name in batch}
        return [scenes[key] for key in keys]

    def close(self) -> None:
        """End the process; a later call starts another."""
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _alone(self, request: dict[str, Any]) -> Scene:
        found = self._ask([request])
        if found.cause is not None:
            return Scene(fault=(found.cause, found.detail))
        return _scene(found.value[0])

    def _ask(self, requests: Sequence[dict[str, Any]]) -> Outcome:
        return self._worker.call({"episodes": requests})


def judge(spec: EnvironmentSpec, scene: Scene) -> Episode:
    """Compare the state that an episode ended in with the goal, all of it: what must not change is part of the goal."""
    num_calls, num_errors = len(scene.answers), sum(answer.is_error for answer in scene.answers)
    if scene.fault is not None:
        cause, detail = scene.fault
        return Episode(status=Status.NO_VERDICT, cause=cause, evidence=one_line(detail))
    is_right = scene.state == spec.goal
    return Episode(
        status=Status.CORRECT if is_right else Status.WRONG,
        evidence="the environment is as asked for" if is_right else one_line(_difference(scene.state, spec.goal)),
        num_calls=num_calls,
        num_errors=num_errors,
    )


def check_task(task: Task, calls: Sequence[Call], stage: Stage) -> str:
    """Say what is wrong with a task, or return an empty string: its start must not do, and its solution must."""
    spec = environment_of(task)
    if spec is None:
        return "the task names no environment"
    start, solved = stage.play([(spec, ()), (spec, calls)])
    if start.state == spec.goal:
        return "the goal is the start: doing nothing would be right"
    verdict = judge(spec, solved)
    errors = "; ".join(answer.text for answer in solved.answers if answer.is_error)
    return "" if verdict.status is Status.CORRECT else f"its solution does not reach it: {errors or verdict.evidence}"


def _request(spec: EnvironmentSpec, calls: Sequence[Call]) -> dict[str, Any]:
    return {
        "file": str(spec.code.file),
        "class": spec.code.class_name,
        "limits": dict(spec.code.limits),
        "start": spec.start,
        "calls": [[call.name, dict(call.arguments)] for call in calls],
    }


def _scene(found: Any) -> Scene:
    return Scene(tuple(Answer(str(text), bool(is_error)) for text, is_error in found["answers"]), plain(found["state"]))


def _difference(found: Any, goal: Any) -> str:
    """The first part that differs, of states that are tables."""
    if not isinstance(found, dict) or not isinstance(goal, dict):
        return f"the environment is {found!r}, not {goal!r}"
    name = next(name for name in [*goal, *found] if found.get(name, None) != goal.get(name, None) or name not in found)
    shown = [repr(part[name])[:100] if name in part else "missing" for part in (found, goal)]
    return f"{name} is {shown[0]}, not {shown[1]}"
