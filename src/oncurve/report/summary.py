"""A run in a few numbers: for the terminal, for ``--json``, and for the head of the page."""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from oncurve.report.costs import WHOLE_STEP, costs_of, seconds_by_phase
from oncurve.report.readers import (
    Run,
    count_rollouts,
    read_evaluations,
    read_events,
    read_metrics,
    read_text,
    run_path,
)

OFFLINE = ("dpo", "sft")
"""Methods that sample nothing to learn from."""


def summarise(run: Run) -> dict[str, Any]:
    """Return what a run did, as plain data.

    Returns:
        ``run_dir``; ``method``; ``steps`` recorded and ``last_step``; ``seconds`` in all and ``seconds_by_phase``;
        ``costs``, see ``Costs.as_dict``; ``eval_before`` and ``eval_after`` (None until measured);
        ``tokens_per_correct`` of the latest evaluation; ``reward`` as the mean of the first and the last ``window``
        steps; ``last``, the latest value of every metric; ``rollouts`` recorded; ``events`` by kind; ``missing``, a
        sentence for each thing that is not there.

    Raises:
        RunError: the folder is not a run, or a record is damaged.
        StorageError: the disk refused.
    """
    metrics = list(read_metrics(run))
    before, after = before_and_after(read_evaluations(run), metrics)
    phases = seconds_by_phase(metrics)
    rollouts = sum(count_rollouts(run).values())
    method = method_of(run)
    return {
        "run_dir": str(run_path(run)),
        "method": method,
        "steps": len(metrics),
        "last_step": metrics[-1]["step"] if metrics else None,
        "seconds": total_seconds(metrics),
        "seconds_by_phase": phases,
        "costs": costs_of(metrics, before, after, samples=method not in OFFLINE).as_dict(),
        "eval_before": before,
        "eval_after": after,
        "tokens_per_correct": (after or before or {}).get("tokens_per_correct"),
        "reward": _reward(metrics),
        "last": last_values(metrics),
        "rollouts": rollouts,
        "events": dict(sorted(Counter(event["kind"] for event in read_events(run)).items())),
        "missing": _missing(metrics, before, after, has_rollouts=bool(rollouts) or method in OFFLINE),
    }


def method_of(run: Run) -> str:
    """Return the ``method`` of a run; ``online`` where its settings do not say."""
    try:
        found = tomllib.loads(read_text(run_path(run) / "config.toml")).get("method")
    except tomllib.TOMLDecodeError:
        return "online"
    return found if isinstance(found, str) else "online"


def before_and_after(
    evaluations: Sequence[dict[str, Any]], metrics: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the evaluation from before the first recorded step, and the latest one from after it."""
    start = metrics[0]["step"] if metrics else 0
    before = next((evaluation for evaluation in evaluations if evaluation["step"] <= start), None)
    latest = evaluations[-1] if evaluations else None
    return before, None if latest is before else latest


def total_seconds(metrics: Sequence[Mapping[str, Any]]) -> float:
    """Return the wall seconds of all recorded steps."""
    for name in WHOLE_STEP:
        if any(name in row for row in metrics):
            return _total(metrics, name)
    return sum(seconds_by_phase(metrics).values())


def last_values(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the latest measured value of every metric, by name."""
    latest = {name: value for row in metrics for name, value in row.items() if name != "step" and value is not None}
    return dict(sorted(latest.items()))


def _total(metrics: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(sum(row.get(name) or 0.0 for row in metrics))


def _reward(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float | int] | None:
    values = [row["reward/mean"] for row in metrics if row.get("reward/mean") is not None]
    if not values:
        return None
    window = max(1, len(values) // 10)
    return {"first": sum(values[:window]) / window, "last": sum(values[-window:]) / window, "window": window}


def _missing(
    metrics: Sequence[Mapping[str, Any]],
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    *,
    has_rollouts: bool,
) -> list[str]:
    found = {
        "No step is recorded yet.": not metrics,
        "No held-out evaluation is recorded yet.": not before and not after,
        "The starting policy was not evaluated: there is no before.": bool(after) and not before,
        "There is no held-out evaluation after training yet.": bool(before) and not after,
        "No rollouts are recorded.": not has_rollouts,
    }
    return [sentence for sentence, is_missing in found.items() if is_missing]
