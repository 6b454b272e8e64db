"""Tool definitions: the list that a chat request carries, read into schemas of arguments by name."""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from oncurve.verify.formats.faults import BadFormatError
from oncurve.verify.items import one_line

if TYPE_CHECKING:
    from oncurve.verify.formats.schema import Schema

_OPENERS = ("additionalProperties", "patternProperties", "unevaluatedProperties", "$ref", "allOf", "anyOf", "oneOf")
"""Keywords by which a schema says itself what may stand beside ``properties``."""


class Tools:
    """Tools by name, with the schema of their arguments.

    Args:
        source: the definitions, each ``{"name", "parameters"}`` or that under ``"function"`` with
            ``"type": "function"``; or the list as JSON text. Without ``parameters`` a tool takes no arguments.
        extra_arguments: accept arguments that no schema names where the schema does not say.

    Raises:
        ValueError: a definition has no name, repeats one, or its parameters are no JSON Schema of an object.
    """

    def __init__(self, source: Any, *, extra_arguments: bool) -> None:
        self._schemas = dict(_definitions(source, extra_arguments))

    def check(self, name: Any, arguments: Any) -> None:
        """Check one call.

        Raises:
            BadFormatError: there is no such tool, or its arguments do not fit.
            CannotCheckError: checking takes too long.
        """
        if not isinstance(name, str) or name not in self._schemas:
            raise BadFormatError(
                f"no tool {one_line(repr(name), 60)}; there are {one_line(', '.join(self._schemas), 120)}"
            )
        if not isinstance(arguments, dict):
            raise BadFormatError(f"the arguments of {name} are no object")
        fault = self._schemas[name].fault(arguments)
        if fault:
            raise BadFormatError(f"arguments of {name}: {fault}")


@lru_cache(maxsize=256)
def tools_of(text: str, extra_arguments: bool) -> Tools:
    """The tools that stand in a JSON text; the last 256 lists are kept. Raises ``ValueError`` as ``Tools`` does."""
    return Tools(json.loads(text), extra_arguments=extra_arguments)


def _definitions(source: Any, extra_arguments: bool) -> Iterator[tuple[str, "Schema"]]:
    from oncurve.verify.formats.schema import Schema  # jsonschema takes a while to import

    if not isinstance(source, list | tuple) or not source:
        raise ValueError("tools are a list of definitions, and not an empty one")
    seen: set[str] = set()
    for place, entry in enumerate(source):
        tool = entry.get("function", entry) if isinstance(entry, Mapping) else entry
        name = tool.get("name") if isinstance(tool, Mapping) else None
        if not isinstance(name, str) or not name:
            raise ValueError(f"tool {place} has no name. Expected {{'name': ..., 'parameters': {{...}}}}")
        if name in seen:
            raise ValueError(f"two tools are named {name}")
        seen.add(name)
        try:
            yield name, Schema(_closed(tool.get("parameters") or {}, extra_arguments))
        except ValueError as error:
            raise ValueError(f"parameters of the tool {name}: {error}") from None


def _closed(parameters: Any, extra_arguments: bool) -> Any:
    """The schema with ``additionalProperties: false`` where it leaves open what else may stand there."""
    if not isinstance(parameters, Mapping):
        raise ValueError(f"expected a JSON Schema of an object, got {type(parameters).__name__}")
    if parameters.get("type", "object") != "object":
        raise ValueError(f"the arguments of a tool are an object, got type {parameters['type']!r}")
    if extra_arguments or any(key in parameters for key in _OPENERS):
        return parameters
    return {**parameters, "additionalProperties": False}
