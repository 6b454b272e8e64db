"""JSON lines over standard input and output: how a benchmark talks to a trainer in a process of its own."""

import json
import os
import sys
from typing import Any


class Channel:
    """The trainer's end. What libraries print goes to standard error, so that it cannot mix with the answers."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def ask(self) -> dict[str, Any]:
        """Wait for the next command; at the end of input the command is ``stop``."""
        line = sys.stdin.readline()
        command: dict[str, Any] = json.loads(line) if line else {"do": "stop"}
        return command

    def answer(self, **values: Any) -> None:
        """Answer the last command."""
        self._out.write(json.dumps(values) + "\n")
        self._out.flush()
