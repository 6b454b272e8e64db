"""The ``tool_call`` verifier: does a completion call tools that exist, with arguments that fit?

It judges the text of calls, which proves nothing about what a call would do: pay for the state that calls lead to.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from oncurve.types import Settings, Verdict
from oncurve.verify.formats.faults import BadFormatError, CannotCheckError
from oncurve.verify.formats.strict_json import load_json, value_end
from oncurve.verify.formats.tools import Tools, tools_of
from oncurve.verify.items import Item, correct, no_verdict, one_line, wrong

TextRule = Literal["none", "before", "around"]
_OPEN, _CLOSE, _RESPONSES = "<tool_call>", "</tool_call>", ("<tool_response", "</tool_response")
_BLANKS = " \t\r\n"


class ToolCallSettings(Settings):
    """How calls are written, which tools there are, and how many calls a completion makes."""

    style: Literal["hermes", "openai"] = "hermes"
    """``hermes``: JSON with ``name`` and ``arguments`` in <tool_call> tags. ``openai``: an assistant message as JSON,
    its list of ``tool_calls``, or one call; ``arguments`` is a string that holds JSON."""

    tools: tuple[dict[str, Any], ...] = ()
    """Definitions with ``name`` and ``parameters`` (a JSON Schema). A task's ``meta`` may name its own ``tools``."""

    min_calls: int = Field(1, ge=0, le=1000)
    """Fewest calls."""

    max_calls: int = Field(1, ge=1, le=1000)
    """Most calls."""

    text: TextRule = "before"
    """Where text may stand beside the calls: nowhere, before the first, or anywhere. For ``openai``: the message's
    ``content``, unless ``none``. A completion without calls is text."""

    extra_arguments: bool = False
    """Accept arguments that a tool's schema does not name, where the schema leaves it open."""

    max_chars: int = Field(1_000_000, ge=1, le=10_000_000)
    """Longest completion that is read; a longer one is wrong."""

    max_depth: int = Field(32, ge=1, le=64)
    """Most arrays and objects inside each other in a call; a deeper one is wrong."""

    @field_validator("tools")
    @classmethod
    def _tools_are_usable(cls, tools: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        if tools:
            tools_of(json.dumps(tools), False)
        return tools

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.min_calls > self.max_calls:
            raise ValueError(f"min_calls {self.min_calls} is above max_calls {self.max_calls}: nothing is accepted")
        return self


class ToolCallVerifier:
    """Reward 1 when every call names a tool and fits its schema, and their number is in the range; 0 otherwise.

    Without tools in the settings or the task's ``meta``, or with unusable ones, there is ``no_verdict`` with cause
    ``bad_tools``.
    """

    name = "tool_call"

    def __init__(self, settings: ToolCallSettings) -> None:
        self.settings = settings

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        return [self._judge(item) for item in items]

    def _judge(self, item: Item) -> Verdict:
        try:
            tools = self._tools(item.task.meta)
            if len(item.text) > self.settings.max_chars:
                raise BadFormatError(f"{len(item.text)} characters, at most {self.settings.max_chars} are read")
            read = read_hermes if self.settings.style == "hermes" else read_openai
            num_calls = 0
            for name, arguments in read(item.text, self.settings):
                num_calls += 1
                if num_calls > self.settings.max_calls:
                    raise BadFormatError(f"more than {self.settings.max_calls} calls")
                tools.check(name, arguments)
        except BadFormatError as found:
            return wrong(str(found))
        except CannotCheckError as found:
            return no_verdict(found.cause, found.evidence)
        if num_calls < self.settings.min_calls:
            return wrong(f"{num_calls} calls, expected {self.settings.min_calls} or more")
        return correct(f"calls that fit their tools: {num_calls}")

    def _tools(self, meta: Mapping[str, Any]) -> Tools:
        source = meta.get("tools", self.settings.tools)
        if not source:
            raise CannotCheckError("bad_tools", "no tools: name them in the options or in the task's meta")
        try:
            return tools_of(source if isinstance(source, str) else json.dumps(source), self.settings.extra_arguments)
        except (TypeError, ValueError, RecursionError) as error:
            raise CannotCheckError("bad_tools", f"tools of the task: {error}") from None


def read_hermes(text: str, settings: ToolCallSettings) -> Iterator[tuple[Any, Any]]:
    """Yield name and arguments of every ``<tool_call>{...}</tool_call>``, in order.

    The JSON decides where a call ends, so a closing tag inside a string is text. An opening tag that no JSON object
    follows is a fault, and so is a tool's response, which is not the model's to write.

    Raises:
        BadFormatError: a call cannot be read, or text stands where none may.
    """
    for tag in _RESPONSES:
        if tag in text:
            raise BadFormatError(f"the completion holds {tag}>: the tool answers, not the model")
    position, is_first = 0, True
    while True:
        start = text.find(_OPEN, position)
        between = text[position : len(text) if start < 0 else start]
        if start >= 0 or not is_first:
            _check_text(between, settings.text, is_first=is_first)
        if start < 0:
            if is_first:
                _check_no_call(between)
            return
        position, is_first = _call_end(text, start + len(_OPEN), settings), False
        yield _call(text[start + len(_OPEN) : position - len(_CLOSE)], settings)


def read_openai(text: str, settings: ToolCallSettings) -> Iterator[tuple[Any, Any]]:
    """Yield name and arguments of every call of an OpenAI message, a list of calls, or one call.

    Raises:
        BadFormatError: the text is none of these, or a call is not written as the API writes it.
    """
    value = load_json(text, max_chars=settings.max_chars, max_depth=settings.max_depth)
    ids: set[str] = set()
    for call in _openai_calls(value, settings):
        if not isinstance(call, dict) or not {"function"} <= call.keys() <= {"id", "type", "function"}:
            raise BadFormatError('a call is {"id", "type": "function", "function": {"name", "arguments"}}')
        if call.get("type", "function") != "function":
            raise BadFormatError(f"a call of type {one_line(repr(call['type']), 40)}, expected function")
        if "id" in call:
            _check_id(call["id"], ids)
        yield _openai_function(call["function"], settings)


def _check_text(text: str, rule: TextRule, *, is_first: bool) -> None:
    """Text before the first call (``is_first``) or behind one."""
    if _CLOSE in text:
        raise BadFormatError(f"{_CLOSE} closes nothing")
    if text.strip() and not (rule == "around" or (rule == "before" and is_first)):
        raise BadFormatError(f"text {'before' if is_first else 'after'} a call: {one_line(text.strip(), 40)}")
    if is_first and text.rfind("<think>") > text.rfind("</think>"):
        raise BadFormatError("the call stands inside <think>")


def _check_no_call(text: str) -> None:
    if _CLOSE in text:
        raise BadFormatError(f"{_CLOSE} closes nothing")


def _call_end(text: str, start: int, settings: ToolCallSettings) -> int:
    """Where the closing tag of the call ends whose opening tag ends at ``start``."""
    opening = _skip_blanks(text, start)
    if text[opening : opening + 1] != "{":
        raise BadFormatError(f"no JSON object behind {_OPEN}: {one_line(text[opening : opening + 40])}")
    closing = _skip_blanks(text, value_end(text, opening, max_depth=settings.max_depth))
    if not text.startswith(_CLOSE, closing):
        raise BadFormatError(f"no {_CLOSE} behind the JSON: {one_line(text[closing : closing + 40])}")
    return closing + len(_CLOSE)


def _skip_blanks(text: str, place: int) -> int:
    while text[place : place + 1] and text[place] in _BLANKS:
        place += 1
    return place


def _call(body: str, settings: ToolCallSettings) -> tuple[Any, Any]:
    call = load_json(body, max_chars=settings.max_chars, max_depth=settings.max_depth)
    if call.keys() != {"name", "arguments"}:
        raise BadFormatError(f"a call holds name and arguments, got {one_line(', '.join(call), 80)}")
    return call["name"], call["arguments"]


def _openai_calls(value: Any, settings: ToolCallSettings) -> list[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and "function" in value:
        return [value]
    if not isinstance(value, dict) or not value.keys() <= {"role", "content", "refusal", "tool_calls"}:
        raise BadFormatError("neither an assistant message nor its tool_calls nor one call")
    if value.get("role", "assistant") != "assistant" or value.get("refusal") is not None:
        raise BadFormatError("not a message in which the assistant calls tools")
    content, calls = value.get("content"), value.get("tool_calls")
    if not (content is None or isinstance(content, str)):
        raise BadFormatError("the content of a message is text or null")
    if content and content.strip() and settings.text == "none":
        raise BadFormatError(f"text beside the calls: {one_line(content.strip(), 40)}")
    if not (calls is None or isinstance(calls, list)):
        raise BadFormatError("tool_calls is no list")
    return calls or []


def _check_id(identity: Any, seen: set[str]) -> None:
    if not isinstance(identity, str) or not identity or identity in seen:
        raise BadFormatError(f"the id {one_line(repr(identity), 40)} is no string of its own")
    seen.add(identity)


def _openai_function(function: Any, settings: ToolCallSettings) -> tuple[Any, Any]:
    if not isinstance(function, dict) or function.keys() != {"name", "arguments"}:
        raise BadFormatError("the function of a call holds name and arguments")
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        raise BadFormatError("arguments is not a string that holds JSON")
    return function["name"], load_json(arguments, max_chars=settings.max_chars, max_depth=settings.max_depth)
