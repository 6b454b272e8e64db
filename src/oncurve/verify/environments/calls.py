"""How a call is written, and how the answer to it.

    hermes   <tool_call>{"name": "read", "arguments": {"path": "k"}}</tool_call>      <tool_response>..</tool_response>
    short    !read k;                                                                 :..
             !write m,12;          arguments in the order of the definition, the last one takes the rest

``short`` is for models that know single characters only.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oncurve.verify.formats.faults import CannotCheckError
from oncurve.verify.formats.tool_calls import ToolCallSettings, read_hermes
from oncurve.verify.formats.tools import tools_of

Syntax = Literal["hermes", "short"]
_HERMES = ToolCallSettings(text="before", max_chars=20_000, max_depth=8)
_OPEN, _CLOSE = "!", ";"
_MAX_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class Call:
    """A call that fits the definition of its tool."""

    name: str
    arguments: Mapping[str, Any]


def closing(syntax: Syntax) -> str:
    """The text that ends a call: where sampling stops and the environment answers."""
    return "</tool_call>" if syntax == "hermes" else _CLOSE


def read_call(text: str, tools: Sequence[Mapping[str, Any]], syntax: Syntax) -> Call:
    """The one call in a turn of the model.

    Args:
        text: of the turn, up to and including the mark that closes the call.
        tools: definitions with name and parameters.
        syntax: how calls are written.

    Raises:
        ValueError: there is no call, it cannot be read, or does not fit a tool; the message is for the model.
    """
    try:
        name, arguments = _read_hermes(text) if syntax == "hermes" else _read_short(text, tools)
        tools_of(json.dumps(list(tools)), extra_arguments=False).check(name, arguments)
    except CannotCheckError as fault:
        raise ValueError(str(fault)) from None
    return Call(name, arguments)


def write_call(name: str, arguments: Mapping[str, Any], syntax: Syntax) -> str:
    """A call as a model would write it: ``read_call`` of it gives it back.

    Raises:
        ValueError: the arguments cannot be written in the short syntax.
    """
    if syntax == "hermes":
        return f"<tool_call>{json.dumps({'name': name, 'arguments': dict(arguments)})}</tool_call>"
    values = [str(value) for value in arguments.values()]
    if any("," in value for value in values[:-1]) or any(_CLOSE in value for value in values):
        raise ValueError(f"the arguments of {name} hold a comma or {_CLOSE!r}, which the short syntax cannot write")
    return f"{_OPEN}{name} {','.join(values)}".rstrip() + _CLOSE


def _read_hermes(text: str) -> tuple[Any, Any]:
    calls = list(read_hermes(text, _HERMES))
    if len(calls) != 1:
        raise ValueError(f"{len(calls)} calls, expected one")
    return calls[0]


def _read_short(text: str, tools: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
    body = text.rstrip()
    if len(body) > _MAX_CHARS or body.count(_CLOSE) != 1 or not body.endswith(_CLOSE) or _OPEN not in body:
        raise ValueError(f"no call. A call is {_OPEN}name arguments{_CLOSE}")
    name, _, rest = body[:-1].rpartition(_OPEN)[2].partition(" ")
    tool = next((tool for tool in tools if tool["name"] == name), None)
    if tool is None:
        return name, {}
    names = list(tool["parameters"].get("properties", {}))
    values = rest.split(",", max(0, len(names) - 1)) if rest else []
    if len(values) != len(names):
        raise ValueError(f"{name} takes {len(names)} arguments, got {len(values)}")
    return name, dict(zip(names, values, strict=True))
