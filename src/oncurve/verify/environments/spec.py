"""What a task says of its environment, in ``meta["environment"]``.

    {"name": "files", "start": {"k": "12"}, "goal": {"k": "12", "m": "12"}}

An environment of one's own is ``"name": "path/to/file.py:Class"`` with ``tools`` (definitions) beside it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from oncurve.types import DataError, Task, did_you_mean
from oncurve.verify.environments.calls import Syntax
from oncurve.verify.environments.known import KNOWN, Known
from oncurve.verify.reward_function import is_function_name

KEY = "environment"
_FIELDS = ("name", "start", "goal", "syntax", "tools", "limits")
_LIMITS = {"answer_chars": 1000}


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentSpec:
    """The environment of one task."""

    task_id: str
    code: Known
    start: Any
    goal: Any
    """The state that must be reached, all of it."""
    syntax: Syntax
    is_chat: bool
    """The prompt is a chat, so answers are turns of it."""


def environment_of(task: Task) -> EnvironmentSpec | None:
    """The environment that a task names, None for a task without one.

    Raises:
        DataError: what the task says of it cannot be used; names the task.
    """
    said = task.meta.get(KEY)
    if said is None:
        return None
    if not isinstance(said, Mapping):
        raise DataError(f"task {task.id}: meta.{KEY} must be a table with {', '.join(_FIELDS[:3])}, got {said!r:.80}")
    for field in said:
        if field not in _FIELDS:
            raise DataError(f"task {task.id}: meta.{KEY} has no field {field!r}.{did_you_mean(str(field), _FIELDS)}")
    if "start" not in said or "goal" not in said:
        raise DataError(f"task {task.id}: meta.{KEY} needs start and goal, the state before and after")
    is_chat = not isinstance(task.prompt, str)
    syntax = said.get("syntax", "hermes" if is_chat else "short")
    if syntax not in get_args(Syntax):
        raise DataError(f"task {task.id}: meta.{KEY}.syntax is {syntax!r}, known are {', '.join(get_args(Syntax))}")
    return EnvironmentSpec(
        task_id=task.id,
        code=_code(task.id, said),
        start=_plain(task.id, said["start"]),
        goal=_plain(task.id, said["goal"]),
        syntax=syntax,
        is_chat=is_chat,
    )


def plain(state: Any) -> Any:
    """A state as JSON would give it back: tuples are lists, keys are text."""
    return json.loads(json.dumps(state))


def _plain(task_id: str, state: Any) -> Any:
    try:
        return plain(state)
    except (TypeError, ValueError) as error:
        raise DataError(f"task {task_id}: start and goal in meta.{KEY} must be plain data: {error}") from None


def _code(task_id: str, said: Mapping[str, Any]) -> Known:
    name, limits = str(said.get("name")), said.get("limits", {})
    if name in KNOWN:
        known = KNOWN[name]
        for limit in limits:
            if limit not in known.limits:
                raise DataError(
                    f"task {task_id}: {name} has no limit {limit!r}.{did_you_mean(str(limit), known.limits)}"
                )
        tools = tuple(said["tools"]) if "tools" in said else known.tools
        return Known(file=known.file, class_name=known.class_name, tools=tools, limits={**known.limits, **limits})
    if not is_function_name(name):
        hint = did_you_mean(name, KNOWN)
        raise DataError(
            f"task {task_id}: there is no environment {name!r}.{hint} Known: {', '.join(KNOWN)}, or a class of yours "
            "as path/to/file.py:Class."
        )
    path, _, class_name = name.rpartition(":")
    if not Path(path).is_file() or "tools" not in said:
        raise DataError(f"task {task_id}: the environment {name} needs an existing file, and tools beside it")
    file = Path(path).resolve()
    return Known(file=file, class_name=class_name, tools=tuple(said["tools"]), limits={**_LIMITS, **limits})
