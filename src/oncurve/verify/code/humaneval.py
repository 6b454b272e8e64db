"""Tasks from rows in HumanEval's layout, which many data sets share."""

from collections.abc import Mapping
from typing import Any

from oncurve.tasks.programs import humaneval_meta
from oncurve.types import Task


def humaneval_task(row: Mapping[str, Any], *, language: str = "en") -> Task:
    """A task of mode ``assert`` from ``task_id``, ``prompt``, ``entry_point``, ``canonical_solution`` and ``test``.

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
        meta=humaneval_meta(row),
    )
