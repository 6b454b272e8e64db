"""Judge rows of known cases: what ``oncurve verify math`` prints and what the benchmark and the tests count."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oncurve.types import Task
from oncurve.verify.answer import AnswerSettings, AnswerVerifier
from oncurve.verify.case_rows import case_name, case_result, case_text
from oncurve.verify.items import Item


def judge_cases(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Judge rows one by one, in order.

    Args:
        rows: each with ``gold`` and ``completion`` (or ``completion_parts``, a list of [text, repeat]); optional
            ``id``, ``carrier`` (default ``box``), ``prompt``, and ``comparison``, a table of comparison settings.

    Yields:
        ``id``, ``status``, ``reward``, ``evidence``, ``cause`` and ``seconds`` of each row.

    Raises:
        ValueError: a row lacks a field or names an unknown carrier or setting.
    """
    verifiers: dict[str, AnswerVerifier] = {}
    for number, row in enumerate(rows, 1):
        carrier = str(row.get("carrier", "box"))
        if carrier not in verifiers:
            verifiers[carrier] = AnswerVerifier(AnswerSettings.model_validate({"carrier": carrier}))
        item = _item(row, number)
        started = time.perf_counter()
        (verdict,) = verifiers[carrier].judge([item])
        yield case_result(item.task.id, verdict, time.perf_counter() - started)


def _item(row: Mapping[str, Any], number: int) -> Item:
    name, text = case_name(row, number), case_text(row, number, needs="gold")
    meta = {"comparison": row["comparison"]} if row.get("comparison") else {}
    task = Task(
        id=name, prompt=str(row.get("prompt", "")), gold=str(row["gold"]), kind="case", verifier="answer", meta=meta
    )
    return Item(task=task, text=text)
