"""Judge rows of known cases: what ``oncurve verify code`` prints and what the benchmark and the tests count."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oncurve.sandbox import SandboxSettings
from oncurve.types import Task
from oncurve.verify.code.settings import CodeSettings
from oncurve.verify.code.verifier import CodeVerifier
from oncurve.verify.items import Item

_META = ("mode", "entry_point", "tests", "language", "setup", "prefix", "comparison")
DEFAULT_TIMEOUT_S = 8.0
BATCH = 64
"""Rows that are judged together, several at a time."""


def judge_cases(rows: Iterable[Mapping[str, Any]], sandbox: SandboxSettings | None = None) -> Iterator[dict[str, Any]]:
    """Judge rows; verdicts come in the order of the rows.

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
    judges = _Judges(sandbox or SandboxSettings())
    batch: list[Item] = []
    verifier: CodeVerifier | None = None
    for number, row in enumerate(rows, 1):
        item, own = _item(row, number), judges.of(row)
        has_prior = isinstance(row.get("prior_solution"), str)
        if verifier is not None and (own is not verifier or has_prior or len(batch) == BATCH):
            yield from _judged(verifier, batch)
            batch = []
        if has_prior:
            own.judge([Item(task=item.task, text=row["prior_solution"])])
        verifier = own
        batch.append(item)
    if verifier is not None:
        yield from _judged(verifier, batch)


class _Judges:
    """One verifier for each time limit."""

    def __init__(self, sandbox: SandboxSettings) -> None:
        self._sandbox = sandbox
        self._verifiers: dict[float, CodeVerifier] = {}

    def of(self, row: Mapping[str, Any]) -> CodeVerifier:
        limit_s = float(row.get("time_limit_s") or DEFAULT_TIMEOUT_S)
        if limit_s not in self._verifiers:
            self._verifiers[limit_s] = CodeVerifier(
                CodeSettings(carrier="text", timeout_s=limit_s, total_timeout_s=2 * limit_s, sandbox=self._sandbox)
            )
        return self._verifiers[limit_s]


def _item(row: Mapping[str, Any], number: int) -> Item:
    name = str(row.get("id", f"row-{number}"))
    if not isinstance(row.get("solution"), str):
        raise ValueError(f"case {name} needs solution, the text of a program; it has {', '.join(row) or 'nothing'}")
    meta = {key: row[key] for key in _META if row.get(key) is not None}
    return Item(task=Task(id=name, prompt="", gold="", kind="case", verifier="code", meta=meta), text=row["solution"])


def _judged(verifier: CodeVerifier, items: list[Item]) -> Iterator[dict[str, Any]]:
    for item, verdict in zip(items, verifier.judge(items), strict=True):
        yield {
            "id": item.task.id,
            "status": str(verdict.status.value),
            "reward": verdict.reward,
            "evidence": verdict.evidence,
            "cause": verdict.cause,
            "seconds": round(verdict.seconds, 6),
        }
