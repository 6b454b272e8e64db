"""Tasks from rows in HumanEval's layout, which many data sets share."""

from collections.abc import Mapping
from typing import Any

from oncurve.types import Task


def humaneval_task(row: Mapping[str, Any], *, language: str = "en") -> Task:
    """A task of mode ``assert`` from ``task_id``, ``prompt``, ``entry_point``, ``canonical_solution`` and ``test``.

    The prompt is the beginning of the program; it stands before the code of a completion as ``prefix``. It is the
    tests' ``setup`` too: helpers that a prompt defines and a test calls are then the prompt's, not the program's.

    Raises:
        KeyError: the row lacks one of them.
    """
    return Task(
        id=str(row["task_id"]),
        prompt=str(row["prompt"]),
        gold=str(row["canonical_solution"]),
        kind="humaneval",
        verifier="code",
        language=language,
        meta={
            "mode": "assert",
            "entry_point": str(row["entry_point"]),
            "tests": str(row["test"]),
            "setup": str(row["prompt"]),
            "prefix": str(row["prompt"]),
        },
    )
