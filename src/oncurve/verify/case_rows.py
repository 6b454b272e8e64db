"""What the rows of every kind of known case have in common."""

from collections.abc import Mapping
from typing import Any

from oncurve.types import Verdict


def case_name(row: Mapping[str, Any], number: int) -> str:
    """The row's ``id``, or its number."""
    return str(row.get("id", f"row-{number}"))


def case_text(row: Mapping[str, Any], number: int, *, needs: str) -> str:
    """The completion of a row: ``completion``, or ``completion_parts`` as [text, repeat] one after the other.

    Raises:
        ValueError: neither is there, or the field ``needs`` is missing.
    """
    if needs not in row or not ("completion" in row or "completion_parts" in row):
        raise ValueError(
            f"case {case_name(row, number)} needs {needs} and completion (or completion_parts), it has "
            f"{', '.join(row) or 'nothing'}"
        )
    if "completion" in row:
        return str(row["completion"])
    return "".join(part * times for part, times in row["completion_parts"])


def case_result(name: str, verdict: Verdict, seconds: float) -> dict[str, Any]:
    """What is printed of a row."""
    return {
        "id": name,
        "status": str(verdict.status.value),
        "reward": verdict.reward,
        "evidence": verdict.evidence,
        "cause": verdict.cause,
        "seconds": round(seconds, 6),
    }
