"""The environments that come with the package: where they are, their tools, their limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_INSIDE = Path(__file__).parent / "inside"


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """An environment by its code."""

    file: Path
    class_name: str
    tools: tuple[Mapping[str, Any], ...]
    limits: Mapping[str, int]


def _tool(name: str, description: str, **parameters: str) -> Mapping[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "parameters": schema}


KNOWN: Mapping[str, Known] = {
    "files": Known(
        file=_INSIDE / "files.py",
        class_name="Files",
        tools=(
            _tool("list", "Names of all files."),
            _tool("read", "The text of a file.", path="the file"),
            _tool("write", "Write a file; one that exists is replaced.", path="the file", text="its new text"),
            _tool("move", "Rename a file.", source="the file", target="its new path, where nothing is yet"),
            _tool("delete", "Remove a file.", path="the file"),
        ),
        limits={"files": 64, "bytes": 65_536, "answer_chars": 1000},
    ),
    "database": Known(
        file=_INSIDE / "database.py",
        class_name="Database",
        tools=(_tool("sql", "Carry out one SELECT, INSERT, UPDATE or DELETE of SQLite.", query="the statement"),),
        limits={"instructions": 200_000, "rows": 50, "answer_chars": 1000},
    ),
}
