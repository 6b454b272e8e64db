"""Judge rows of known cases: what ``oncurve verify format`` prints and what the tests count."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oncurve.types import Task, Verdict
from oncurve.verify.case_rows import case_name, case_result, case_text
from oncurve.verify.items import Item, Verifier, no_verdict
from oncurve.verify.registry import build_verifier

TYPES = ("json", "length", "tags", "tool_call", "xml")


def judge_cases(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Judge rows one by one, in order.

    Args:
        rows: each with ``spec`` and ``completion`` (or ``completion_parts``, a list of [text, repeat]); optional
            ``id``, and ``token_ids`` for lengths in tokens. A spec is the ``type`` of the format and the options of
            the verifier of that name; ``schema`` may stand for ``json_schema``.

    Yields:
        ``id``, ``status``, ``reward``, ``evidence``, ``cause`` and ``seconds`` of each row. A spec that cannot be used
        gives ``no_verdict`` with cause ``bad_spec``.

    Raises:
        ValueError: a row has no ``spec`` or no ``completion``.
    """
    for number, row in enumerate(rows, 1):
        item = _item(row, number)
        started = time.perf_counter()
        verdict = _judged(row["spec"], item)
        yield case_result(item.task.id, verdict, time.perf_counter() - started)


def _judged(spec: Any, item: Item) -> Verdict:
    try:
        verifier = _verifier(spec)
    except (ValueError, RecursionError) as error:
        return no_verdict("bad_spec", str(error))
    return verifier.judge([item])[0]


def _verifier(spec: Any) -> Verifier:
    if _type_of(spec) not in TYPES:
        raise ValueError(f"a spec is an object whose type is one of {', '.join(TYPES)}")
    options = {"json_schema" if key == "schema" else key: value for key, value in spec.items() if key != "type"}
    return build_verifier(str(spec["type"]), options)


def _type_of(spec: Any) -> Any:
    return spec.get("type") if isinstance(spec, Mapping) else None


def _item(row: Mapping[str, Any], number: int) -> Item:
    name, text = case_name(row, number), case_text(row, number, needs="spec")
    task = Task(id=name, prompt="", gold="", kind="case", verifier=str(_type_of(row["spec"])))
    return Item(task=task, text=text, token_ids=tuple(row.get("token_ids") or ()))
