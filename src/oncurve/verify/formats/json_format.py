"""The ``json`` verifier: is a completion strict JSON that fits a schema?"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from oncurve.types import Settings, Verdict
from oncurve.verify.formats.faults import BadFormatError, CannotCheckError
from oncurve.verify.formats.place import Where, take_place
from oncurve.verify.formats.strict_json import load_json
from oncurve.verify.items import Item, correct, no_verdict, wrong

if TYPE_CHECKING:
    from oncurve.verify.formats.schema import Schema

SCHEMA = "json_schema"
"""Name of the option, and of the task's ``meta`` that takes its place."""


class JsonSettings(Settings):
    """Where the JSON stands and what it must hold."""

    where: Where = "whole"
    """``whole``: the completion is the JSON. ``fence``: its only code fence. ``tag``: its only block of ``tag``."""

    tag: str = Field("answer", min_length=1)
    """The tag for ``where = "tag"``."""

    json_schema: dict[str, Any] | bool | None = None
    """JSON Schema (draft 2020-12, 2019-09 or 7) of the value. A task's ``meta`` may name its own. None: any JSON."""

    max_chars: int = Field(1_000_000, ge=1, le=10_000_000)
    """Longest JSON that is read; a longer one is wrong."""

    max_depth: int = Field(32, ge=1, le=64)
    """Most arrays and objects inside each other; a deeper one is wrong."""

    @field_validator("json_schema")
    @classmethod
    def _is_a_schema(cls, schema: dict[str, Any] | bool | None) -> dict[str, Any] | bool | None:
        if schema is not None:
            _compiled(schema)
        return schema


class JsonVerifier:
    """Reward 1 for strict JSON that fits the schema, 0 otherwise. It says nothing about whether the content is true.

    A schema in the task's ``meta`` that cannot be used is ``no_verdict`` with cause ``bad_schema``; one that takes too
    long for a completion is ``no_verdict`` with cause ``limit`` or ``timeout``.
    """

    name = "json"

    def __init__(self, settings: JsonSettings) -> None:
        self.settings = settings

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        return [self._judge(item) for item in items]

    def _judge(self, item: Item) -> Verdict:
        settings = self.settings
        try:
            schema = self._schema(item.task.meta)
            place = take_place(item.text, settings.where, label="json", tag=settings.tag)
            value = load_json(place, max_chars=settings.max_chars, max_depth=settings.max_depth)
            fault = "" if schema is None else schema.fault(value)
        except BadFormatError as found:
            return wrong(str(found))
        except CannotCheckError as found:
            return no_verdict(found.cause, found.evidence)
        return wrong(fault) if fault else correct("JSON" if schema is None else "JSON that fits the schema")

    def _schema(self, meta: Mapping[str, Any]) -> "Schema | None":
        source = meta.get(SCHEMA, self.settings.json_schema)
        try:
            return None if source is None else _compiled(source)
        except (TypeError, ValueError, RecursionError) as error:
            raise CannotCheckError("bad_schema", f"meta {SCHEMA} of the task: {error}") from None


def _compiled(source: Any) -> "Schema":
    """The schema given as data, or as JSON text the way table files store it."""
    from oncurve.verify.formats.schema import schema_of  # jsonschema takes a while to import

    return schema_of(source if isinstance(source, str) else json.dumps(source))
