"""Runs in the audit's child process: calls a reward function of any known shape on one completion, or on several.

Loaded by path and standard library only, like the process it runs in. Shapes, told apart by the parameters:

    trl        def reward(prompts, completions, **columns) -> [value]             one call for all completions
    verl       def compute_score(data_source, solution_str, ground_truth, extra_info) -> value or {"score": value},
               or one call for all: (data_sources, solution_strs, ground_truths, extra_infos) -> [either]
    verifiers  an object with ``funcs`` and ``weights`` (a Rubric), ``rubrics`` (a group), or ``rubric`` (an
               environment); also a class, or a function named ``load_...``, that makes one
"""

import asyncio
import importlib
import importlib.util
import inspect
import sys
from functools import cache
from pathlib import Path
from typing import Any

__not_the_users__ = True
"""An error is placed in the user's code, not in this file, see ``sandbox.child``."""


def score(target: str, rows: list[dict[str, Any]] | None) -> Any:
    """Call the target on rows, in one call where its signature allows; or, without rows, load it and say its shape.

    Args:
        target: ``path/to/file.py:name`` (the whole path) or ``module:name``.
        rows: each with ``prompt``, ``completion`` (text or messages), ``text``, ``completion_ids``, ``gold``,
            ``task_id``, ``kind`` and ``meta``.

    Returns:
        What the function returned for each, to be checked by the caller.

    Raises:
        TypeError: not one value for each came back.
    """
    if rows is None:
        return shape(target)
    found = load(target)
    if _is_rubric(found):
        return [asyncio.run(_rubric(found, row)) for row in rows]
    return _called_as_verl(found, rows) if _is_verl(found) else _called_as_trl(found, rows)


def shape(target: str) -> str:
    """``trl``, ``verl`` or ``verifiers``. Raises TypeError when the target is none of them."""
    found = load(target)
    if _is_rubric(found):
        return "verifiers"
    if not callable(found):
        raise TypeError(f"{target} is a {type(found).__name__}: neither a function nor a rubric")
    return "verl" if _is_verl(found) else "trl"


@cache
def load(target: str) -> Any:
    """Import the target; an environment or a maker of one becomes its rubric."""
    place, _, name = target.rpartition(":")
    module = _module(place)
    if not hasattr(module, name):
        own = (key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__)
        there = ", ".join(sorted(key for key in own if not key.startswith("_"))[:8])
        raise AttributeError(f"{Path(place).name} has no {name}. It has: {there or 'no function of its own'}")
    found = getattr(module, name)
    if not _is_rubric(found) and not hasattr(found, "rubric") and _makes_something(found):
        found = found()
    return found.rubric if hasattr(found, "rubric") else found


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if place != error.name and not place.startswith(f"{error.name}."):
                raise
            raise ModuleNotFoundError(
                f"there is no module {error.name}, neither installed nor in {Path.cwd()}. "
                "A file is named with its ending: path/to/file.py:function"
            ) from None
    file = Path(place)
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(f"user_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _makes_something(found: Any) -> bool:
    """A class, or a function such as ``load_environment``."""
    return inspect.isclass(found) or str(getattr(found, "__name__", "")).startswith("load_")


def _called_as_trl(function: Any, rows: list[dict[str, Any]]) -> list[Any]:
    names = dict.fromkeys(name for row in rows for name in row["meta"])
    columns = {name: [row["meta"].get(name) for row in rows] for name in names}
    golds = [row["gold"] for row in rows]
    columns |= {name: [row[name] for row in rows] for name in ("task_id", "kind", "gold")}
    columns |= {"answer": golds, "solution": golds, "ground_truth": columns.get("ground_truth", golds)}
    given = {
        "prompts": [row["prompt"] for row in rows],
        "completions": [row["completion"] for row in rows],
        "completion_ids": [row["completion_ids"] for row in rows],
    }
    return _one_each(_finished(_accepted(function, _OF_THE_TRAINER | columns | given)), rows)


def _one_each(values: Any, rows: list[dict[str, Any]]) -> list[Any]:
    values = values.tolist() if callable(getattr(values, "tolist", None)) else values
    if isinstance(values, list | tuple) and len(values) == len(rows):
        return list(values)
    were, each = ("one completion was", "one value") if len(rows) == 1 else (f"{len(rows)} completions were", "as many")
    raise TypeError(f"{were} given, and the function returned {values!r:.80}, not a list of {each}")


_OF_THE_TRAINER = {"trainer_state": None, "log_extra": lambda *_: None, "log_metric": lambda *_: None}
"""What TRL's trainer passes beside prompts, completions and columns."""


def _is_verl(function: Any) -> bool:
    return not {"solution_str", "solution_strs"}.isdisjoint(inspect.signature(function).parameters)


def _called_as_verl(function: Any, rows: list[dict[str, Any]]) -> list[Any]:
    given = [
        {
            "data_source": row["meta"].get("data_source", row["kind"]),
            "solution_str": row["text"],
            "ground_truth": row["gold"],
            "extra_info": row["meta"].get("extra_info", row["meta"]),
        }
        for row in rows
    ]
    if "solution_strs" in inspect.signature(function).parameters:
        columns = {f"{name}s": [row[name] for row in given] for name in given[0]}
        values = _finished(_accepted(function, columns))
        values = _one_each(values if isinstance(values, list | tuple) or len(rows) > 1 else [values], rows)
    else:
        values = [_finished(_accepted(function, row)) for row in given]
    return [value.get("score") if isinstance(value, dict) else value for value in values]


async def _rubric(rubric: Any, row: dict[str, Any]) -> float:
    """The weighted sum of its functions. Unlike the rubric's own method this lets exceptions through."""
    total = 0.0
    for part in getattr(rubric, "rubrics", ()):
        total += await _rubric(part, row)
    functions = getattr(rubric, "funcs", None) or getattr(rubric, "reward_funcs", None) or ()
    weights = getattr(rubric, "weights", None) or getattr(rubric, "reward_weights", None) or [1.0] * len(functions)
    state = _state(row)
    given = {name: state[name] for name in ("prompt", "completion", "answer", "task", "info")} | {"state": state}
    given |= {f"{name}s": [value] for name, value in given.items()}  # a function of a whole group gets one of each
    given |= getattr(rubric, "class_objects", None) or {"parser": getattr(rubric, "parser", None)}
    for function, weight in zip(functions, weights, strict=True):
        value = _accepted(function, given)
        value = await value if inspect.isawaitable(value) else value
        total += weight * float(value[0] if isinstance(value, list) else value)
    return total


class _Message(dict[str, Any]):
    """A message that is read as a mapping by some versions and by attributes by others."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


def _state(row: dict[str, Any]) -> dict[str, Any]:
    """What an environment knows after one turn."""
    messages = row["prompt"] if isinstance(row["prompt"], list) else [{"role": "user", "content": row["prompt"]}]
    prompt = [_Message(message) for message in messages]
    completion = [_Message(role="assistant", content=row["text"])]
    step: dict[str, Any] = {
        "prompt": prompt,
        "completion": completion,
        "response": None,
        "tokens": None,
        "reward": None,
        "extras": {},
    }
    asked = {"prompt": prompt, "answer": row["gold"], "info": row["meta"], "task": row["kind"], "example_id": 0}
    ended = {"is_completed": True, "is_truncated": False, "stop_condition": None, "error": None, "turn": 1}
    return (
        asked | ended | {"input": asked, "completion": completion, "trajectory": [step], "responses": [], "metrics": {}}
    )


def _is_rubric(found: Any) -> bool:
    return not inspect.isclass(found) and any(hasattr(found, name) for name in ("funcs", "reward_funcs", "rubrics"))


def _accepted(function: Any, arguments: dict[str, Any]) -> Any:
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return function(**arguments)
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in arguments]
    if missing:
        raise TypeError(f"no column for the parameter {', '.join(missing)}. There are: {', '.join(arguments)}")
    return function(**{p.name: arguments[p.name] for p in parameters if p.name in arguments})


def _finished(result: Any) -> Any:
    return asyncio.run(_wait(result)) if inspect.isawaitable(result) else result


async def _wait(result: Any) -> Any:
    return await result
