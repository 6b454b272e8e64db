"""What a task says about its tests, checked before anything runs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import ValidationError

from oncurve.sandbox import plain_tree
from oncurve.types import Task
from oncurve.verify.code.settings import Carrier, CodeComparison, CodeSettings

Mode = Literal["function", "stdin", "assert"]
Language = Literal["python", "c", "cpp", "javascript"]


class BadTaskError(ValueError):
    """The task's tests cannot be used: nobody can be judged by them."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function and its result, as trees of plain data."""

    args: list[Any]
    kwargs: dict[str, Any]
    expected: Any


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a program: what it reads and what it must write."""

    input: bytes
    output: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeTask:
    """The tests of a task."""

    mode: Mode
    language: Language
    entry_point: str
    cases: tuple[Call, ...] | tuple[Run, ...]
    text: str
    """The test text of mode ``assert``."""
    setup: str
    """Code of the task's, not of the program's, that the test text needs."""
    prefix: str
    """Put before the code of a completion."""
    carrier: Carrier
    """Where the program stands in a completion."""
    timeout_s: float
    comparison: CodeComparison


def read_task(task: Task, settings: CodeSettings) -> CodeTask:
    """Read ``task.meta``.

    Keys: ``mode`` and ``tests``; ``entry_point`` (all modes but ``stdin``); optional ``language``, ``setup``,
    ``prefix``, ``carrier``, ``timeout_s``, ``comparison``. ``tests`` is a list of {``args``, ``kwargs``,
    ``expected``}, a list of {``input``, ``output``} (each also as JSON text), or a test text.

    Raises:
        BadTaskError: something is missing, of another kind, or there is no test.
    """
    meta = task.meta
    mode = _choice(meta, "mode", get_args(Mode), None)
    language = _choice(meta, "language", get_args(Language), "python")
    if language != "python" and mode != "stdin":
        raise BadTaskError(f"{language} programs are judged by what they write: mode must be stdin, got {mode}")
    entry = meta.get("entry_point") or ""
    if mode != "stdin" and not (isinstance(entry, str) and entry.isidentifier()):
        raise BadTaskError(f"mode {mode} needs meta.entry_point, the name of a function or class, got {entry!r}")
    comparison = _comparison(meta, settings)
    cases = () if mode == "assert" else _cases(meta, mode, entry)
    if not comparison.nan_equals_nan and any(isinstance(case, Call) and _has_nan(case.expected) for case in cases):
        raise BadTaskError("a test expects NaN, which equals nothing: set comparison.nan_equals_nan, or drop it")
    return CodeTask(
        mode=mode,
        language=language,
        entry_point=entry,
        cases=cases,
        text=_text(meta, "tests") if mode == "assert" else "",
        setup=_text(meta, "setup", ""),
        prefix=_text(meta, "prefix", ""),
        carrier=_choice(meta, "carrier", get_args(Carrier), settings.carrier),
        timeout_s=_seconds(meta, settings),
        comparison=comparison,
    )


def _choice(meta: Mapping[str, Any], key: str, known: tuple[Any, ...], default: str | None) -> Any:
    value = meta.get(key) or default
    if value not in known:
        raise BadTaskError(f"meta.{key} must be one of {', '.join(known)}, got {value!r}")
    return value


def _text(meta: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = meta.get(key, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise BadTaskError(f"meta.{key} must be a text, got {value!r:.80}")
    return value


def _seconds(meta: Mapping[str, Any], settings: CodeSettings) -> float:
    value = meta.get("timeout_s") or settings.timeout_s
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 3600:
        raise BadTaskError(f"meta.timeout_s must be a number of seconds, got {value!r}")
    return float(value)


def _comparison(meta: Mapping[str, Any], settings: CodeSettings) -> CodeComparison:
    if not meta.get("comparison"):
        return settings.comparison
    try:
        return CodeComparison.model_validate(settings.comparison.model_dump() | dict(meta["comparison"]))
    except (ValidationError, TypeError, ValueError) as error:
        raise BadTaskError(f"meta.comparison: {error}") from None


def _cases(meta: Mapping[str, Any], mode: str, entry: str) -> tuple[Any, ...]:
    tests = meta.get("tests")
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except ValueError as error:
            raise BadTaskError(f"meta.tests is not JSON: {error}") from None
    if not isinstance(tests, list | tuple) or not tests:
        raise BadTaskError("meta.tests holds no test: nothing would be verified")
    read = _call if mode == "function" else _run
    try:
        return tuple(read(test) for test in tests)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise BadTaskError(f"meta.tests of mode {mode}{f' for {entry}' if entry else ''}: {error}") from None


def _call(test: Mapping[str, Any]) -> Call:
    if "expected" not in test:
        raise ValueError("a test needs args and expected")
    return Call(
        args=[plain_tree(value) for value in test.get("args", [])],
        kwargs={str(name): plain_tree(value) for name, value in (test.get("kwargs") or {}).items()},
        expected=plain_tree(test["expected"]),
    )


def _run(test: Mapping[str, Any]) -> Run:
    if not isinstance(test.get("output"), str) or not isinstance(test.get("input", ""), str):
        raise ValueError("a test needs input and output, both texts")
    return Run(input=test.get("input", "").encode("utf-8", "surrogatepass"), output=test["output"])


def _has_nan(tree: Any) -> bool:
    if isinstance(tree, dict):
        return tree == {"f": "nan"} or any(_has_nan(part) for part in tree.values())
    return isinstance(tree, list) and any(_has_nan(part) for part in tree)
