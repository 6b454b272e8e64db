"""What a prompt says of calls, and how a solution is kept."""

import json
from typing import Any

_CALLS = (
    "You can call tools: write <tool_call>{example}</tool_call> and wait for the answer.\n"
    "Tools: {tools}.\n{task} Change nothing else. When it is done, say so."
)


def ask_with_tools(task: str, *, tools: str, example: tuple[str, dict[str, str]]) -> str:
    """A question for a chat model, with the tools and how they are called."""
    name, arguments = example
    return _CALLS.format(task=task, tools=tools, example=json.dumps({"name": name, "arguments": arguments}))


def solution(*calls: tuple[str, dict[str, Any]]) -> str:
    """The gold of a tool task: the calls that do it."""
    return json.dumps([{"name": name, "arguments": arguments} for name, arguments in calls])
