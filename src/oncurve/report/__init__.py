"""Record a run, read it back, and show it to people. Nothing here needs torch."""

from oncurve.report.folder import RunFolder
from oncurve.report.page import render_report
from oncurve.report.readers import (
    count_rollouts,
    read_evaluations,
    read_events,
    read_metrics,
    read_rollouts,
    read_seconds_after,
)
from oncurve.report.rollouts import Rollout
from oncurve.report.summary import summarise

__all__ = [
    "Rollout",
    "RunFolder",
    "count_rollouts",
    "read_evaluations",
    "read_events",
    "read_metrics",
    "read_rollouts",
    "read_seconds_after",
    "render_report",
    "summarise",
]
