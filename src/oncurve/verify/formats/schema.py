"""JSON Schema in bounded work: the jsonschema library, without its network and without Python's endless expressions.

The value comes from a policy that may be hostile; the schema from the task's author, who may be careless. Every
keyword that is applied costs steps, so recursion that branches ends; patterns have a deadline; references stay inside
the schema.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from time import process_time
from typing import Any

from jsonschema import (
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    FormatChecker,
    SchemaError,
    ValidationError,
)
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from oncurve.verify.formats.faults import CannotCheckError
from oncurve.verify.formats.patterns import compile_pattern, search
from oncurve.verify.items import one_line

MAX_STEPS = 50_000
"""Most keywords applied to one value: about a second."""

PATTERN_SECONDS = 0.5
"""CPU seconds that all patterns together may take for one value."""

_CHARS_PER_STEP = 200
_ITEMS_PER_STEP = 8
_NEWEST = "https://json-schema.org/draft/2020-12/schema"
_DIALECTS = {
    _NEWEST: Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": Draft201909Validator,
    "http://json-schema.org/draft-07/schema": Draft7Validator,
}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA = ("const", "enum", "default", "examples")
"""Keywords whose values are data and not schemas."""

Keyword = Callable[[Validator, Any, Any, Any], Iterator[ValidationError]]


class Schema:
    """A JSON Schema (draft 2020-12, 2019-09 or 7) that is ready to check values.

    ``format`` is an annotation, as the standard has it: it is not checked.

    Args:
        source: the schema as plain data.

    Raises:
        ValueError: it is no schema, names another draft, or refers to something outside of itself.
    """

    def __init__(self, source: Mapping[str, Any] | bool) -> None:
        schema, dialect = _without_head(source)
        try:
            dialect.check_schema(
                schema, format_checker=FormatChecker(())
            )  # patterns are read below, not by Python's re
        except SchemaError as error:
            raise ValueError(f"not a JSON Schema: {one_line(error.json_path, 80)}: {one_line(error.message)}") from None
        _refuse_parts(schema)
        self._validator = _bounded(dialect)(schema, registry=Registry())
        _refuse_dangling(schema, self._validator)

    def fault(self, value: Any) -> str:
        """Say where a value does not fit, or return an empty string when it fits.

        Raises:
            CannotCheckError: it takes more work than is allowed, with cause ``limit`` or ``timeout``.
        """
        token = _BUDGET.set(_Budget(MAX_STEPS, PATTERN_SECONDS))
        try:
            error = next(iter(self._validator.iter_errors(value)), None)
        except RecursionError:
            raise CannotCheckError("limit", "the schema refers to itself without end") from None
        finally:
            _BUDGET.reset(token)
        return "" if error is None else f"{one_line(error.json_path, 80)}: {one_line(error.message, 200)}"


@lru_cache(maxsize=64)
def schema_of(text: str) -> Schema:
    """The schema that stands in a JSON text; the last 64 are kept. Raises ``ValueError`` as ``Schema`` does."""
    return Schema(json.loads(text))


@dataclass(slots=True)
class _Budget:
    steps: int
    seconds: float

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise CannotCheckError("limit", f"checking the schema takes more than {MAX_STEPS} steps")

    def search(self, pattern: str, text: str) -> bool:
        self.spend(1 + len(text) // _CHARS_PER_STEP)
        started = process_time()
        found = search(pattern, text, max(self.seconds, 0.001))
        self.seconds -= process_time() - started
        return found


_BUDGET: ContextVar[_Budget] = ContextVar("budget of a check")


def _counted(keyword: Keyword) -> Keyword:
    """The same keyword, paying steps for each use, for large collections, and for messages that repeat the value."""

    def apply(validator: Validator, argument: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        budget = _BUDGET.get()
        budget.spend(1 + (len(instance) // _ITEMS_PER_STEP if isinstance(instance, list | dict) else 0))
        for error in keyword(validator, argument, instance, schema) or ():
            budget.spend(len(error.message) // _CHARS_PER_STEP)
            yield error

    return apply


@lru_cache(maxsize=len(_DIALECTS))
def _bounded(dialect: Any) -> Any:
    own = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
        "multipleOf": _multiple_of,
    }
    keywords = {name: _counted(keyword) for name, keyword in {**dialect.VALIDATORS, **own}.items()}
    return extend(dialect, keywords)  # type: ignore[no-untyped-call]


def _pattern(validator: Validator, pattern: str, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _BUDGET.get().search(pattern, instance):
        yield ValidationError(f"{one_line(repr(instance), 80)} does not match {pattern!r}")


def _pattern_properties(
    validator: Validator, patterns: Mapping[str, Any], instance: Any, _: Any
) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, schema in patterns.items():
            for key, value in instance.items():
                if _BUDGET.get().search(pattern, key):
                    yield from _descend(validator, value, schema, key)


def _additional_properties(
    validator: Validator, argument: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key, value in instance.items():
        if key in known or any(_BUDGET.get().search(pattern, key) for pattern in patterns):
            continue
        if argument is False:
            yield ValidationError(f"{one_line(repr(key), 80)} is not expected")
        else:
            yield from _descend(validator, value, argument, key)


def _unique_items(validator: Validator, argument: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if not argument or not validator.is_type(instance, "array"):
        return
    seen = set()
    for place, item in enumerate(instance):
        identity = _identity(item)
        if identity in seen:
            yield ValidationError(f"item {place} repeats an earlier one")
            return
        seen.add(identity)


def _identity(value: Any) -> object:
    """A hashable that is equal exactly where JSON Schema says that values are: 1 is 1.0 and not true."""
    _BUDGET.get().spend(1)
    if isinstance(value, dict):
        return "object", frozenset((key, _identity(item)) for key, item in value.items())
    if isinstance(value, list):
        return "array", tuple(_identity(item) for item in value)
    return isinstance(value, bool), value


def _multiple_of(validator: Validator, factor: float, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "number") and (_exact(instance) / _exact(factor)).denominator != 1:
        yield ValidationError(f"{one_line(repr(instance), 40)} is not a multiple of {factor}")


def _exact(number: float) -> Fraction:
    return Fraction(repr(number))  # the decimal that was written, so that 0.3 is a multiple of 0.1


def _descend(validator: Validator, value: Any, schema: Any, key: str) -> Iterator[ValidationError]:
    return validator.descend(value, schema, path=key)  # type: ignore[attr-defined, no-any-return]


def _without_head(source: Any) -> tuple[Any, Any]:
    """The schema without its own name and draft, which would make the library look for them elsewhere."""
    if isinstance(source, bool):
        return source, Draft202012Validator
    if not isinstance(source, Mapping):
        raise ValueError(f"a JSON Schema is an object or a boolean, got {type(source).__name__}")
    named = source.get("$schema", _NEWEST)
    dialect = _DIALECTS.get(str(named).rstrip("#"))
    if dialect is None:
        raise ValueError(f"$schema {one_line(repr(named), 80)} is not known. Known: {', '.join(_DIALECTS)}")
    return {key: value for key, value in source.items() if key not in ("$schema", "$id")}, dialect


def _parts(node: Any) -> Iterator[tuple[str, Any]]:
    """Every key of every object of a schema with its value, except inside data."""
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, list | tuple):
            stack.extend(node)
        elif isinstance(node, Mapping):
            for key, value in node.items():
                yield key, value
                if key not in _DATA:
                    stack.append(value)


def _refuse_parts(schema: Any) -> None:
    """Refuse what would be looked up elsewhere, patterns that cannot be read, and what is not bounded here."""
    keys = set()
    for key, value in _parts(schema):
        keys.add(key)
        if key in _REFERENCES and isinstance(value, str) and not value.startswith("#"):
            raise ValueError(f"{key} {one_line(repr(value), 80)} leads out of the schema: put the target under $defs")
        if key in ("$id", "$schema") and isinstance(value, str):
            raise ValueError(f"{key} inside a schema is not supported: it would move what $ref means")
        if key == "pattern" and isinstance(value, str):
            compile_pattern(value)
        if key == "patternProperties" and isinstance(value, Mapping):
            for pattern in value:
                compile_pattern(pattern)
    if {"unevaluatedProperties", "patternProperties"} <= keys:
        raise ValueError("unevaluatedProperties beside patternProperties is not supported: use additionalProperties")


def _refuse_dangling(schema: Any, validator: Any) -> None:
    """Refuse references to nothing: the value of every completion would fail at them."""
    for key, value in _parts(schema):
        if key in _REFERENCES and isinstance(value, str):
            try:
                validator._resolver.lookup(value)
            except Unresolvable:
                raise ValueError(f"{key} {one_line(repr(value), 80)} leads nowhere in the schema") from None
