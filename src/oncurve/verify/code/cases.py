"""Judge rows of known cases: what ``oncurve verify code`` prints and what the benchmark and the tests count."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oncurve.sandbox import SandboxSettings
from oncurve.types import Task
from oncurve.verify.code.settings import CodeSettings
from oncurve.verify.code.verifier import CodeVerifier
from oncurve.verify.items import Item

_META = ("mode", "entry_point", "tests", "language", "setup", "prefix", "comparison")
DEFAULT_TIMEOUT_S = 8.0


def judge_cases(rows: Iterable[Mapping[str, Any]], sandbox: SandboxSettings | None = None) -> Iterator[dict[str, Any]]:
    """Judge rows one by one, in order, all by one verifier for each time limit.

    Args:
        rows: each with ``mode``, ``tests`` and ``solution`` (the program); ``entry_point`` where the mode needs it;
            optional ``id``, ``language``, ``setup``, ``prefix``, ``comparison``, ``time_limit_s`` (default 8, for one
            case; twice that for all of them), and ``prior_solution``, a program that is judged before it.
        sandbox: isolation and limits.

    Yields:
        ``id``, ``status``, ``reward``, ``evidence``, ``cause`` and ``seconds`` of each row.

    Raises:
        ValueError: a row has no ``solution``.
        ConfigError: programs cannot be isolated here.
    """
    verifiers: dict[float, CodeVerifier] = {}
    for number, row in enumerate(rows, 1):
        limit_s = float(row.get("time_limit_s") or DEFAULT_TIMEOUT_S)
        if limit_s not in verifiers:
            verifiers[limit_s] = CodeVerifier(
                CodeSettings(
                    carrier="text", timeout_s=limit_s, total_timeout_s=2 * limit_s, sandbox=sandbox or SandboxSettings()
                )
            )
        yield _judged(verifiers[limit_s], row, number)


def _judged(verifier: CodeVerifier, row: Mapping[str, Any], number: int) -> dict[str, Any]:
    name = str(row.get("id", f"row-{number}"))
    if not isinstance(row.get("solution"), str):
        raise ValueError(f"case {name} needs solution, the text of a program; it has {', '.join(row) or 'nothing'}")
    meta = {key: row[key] for key in _META if row.get(key) is not None}
    task = Task(id=name, prompt="", gold="", kind="case", verifier="code", meta=meta)
    if isinstance(row.get("prior_solution"), str):
        verifier.judge([Item(task=task, text=row["prior_solution"])])
    started = time.perf_counter()
    (verdict,) = verifier.judge([Item(task=task, text=row["solution"])])
    return {
        "id": name,
        "status": str(verdict.status.value),
        "reward": verdict.reward,
        "evidence": verdict.evidence,
        "cause": verdict.cause,
        "seconds": round(time.perf_counter() - started, 6),
    }
