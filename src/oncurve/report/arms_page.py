"""The page of a comparison of arms: one HTML file that opens from disk, without a network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from oncurve.report.arms import (
    READING,
    ArmsComparison,
    CurvePoint,
    arm_rows,
    comparison_title,
    lead_sentences,
    phases_of,
    write_arms,
)
from oncurve.report.charts import Chart, Curve
from oncurve.report.costs import as_time, colour_of, cost_cells, cost_facts, cost_headings, cost_segments
from oncurve.report.markup import content_policy, page_environment, page_scripts, style
from oncurve.report.storage import write_text

_COLOURS = ("--blue", "--orange", "--green", "--purple", "--red", "--teal", "--grey")


def render_arms(comparison: ArmsComparison, folder: Path) -> Path:
    """Write ``comparison.html``, ``comparison.json`` and ``comparison.md`` into a folder.

    Args:
        comparison: finished.
        folder: made if needed; files of these names in it are replaced.

    Returns:
        The page.

    Raises:
        StorageError: the disk refused.
    """
    write_arms(comparison, folder)
    page = folder / "comparison.html"
    write_text(page, page_environment().get_template("arms.html.j2").render(_context(comparison)))
    return page


def accuracy_charts(comparison: ArmsComparison) -> list[tuple[Chart, dict[str, Any]]]:
    """Accuracy against sampled tokens and against seconds, each with what its horizontal axis is."""
    return [
        (
            _chart(comparison, "Held-out accuracy by sampled tokens", "", lambda point: point.tokens),
            _axis("sampled tokens", "%{x:.3s} tokens"),
        ),
        (
            _chart(
                comparison,
                "Held-out accuracy by seconds",
                " An offline arm spends the first of them sampling its data.",
                lambda point: point.seconds,
            ),
            _axis("seconds of training", "%{x:.3s} s"),
        ),
    ]


def _context(comparison: ArmsComparison) -> dict[str, Any]:
    drawn = accuracy_charts(comparison)
    scripts = page_scripts()
    longest = max(arm.costs.total for arm in comparison.arms)
    return {
        "comparison": comparison,
        "names": [arm.name for arm in comparison.arms],
        "title": comparison_title(comparison),
        "leads": lead_sentences(comparison),
        "rows": arm_rows(comparison),
        "reading": READING,
        "charts": [chart for chart, _ in drawn],
        "figures": [_figure(chart, axis) for chart, axis in drawn],
        "phases": [(phase, colour_of(phase)) for phase in phases_of(comparison)],
        "headings": cost_headings(),
        "costs": [
            {
                "name": arm.name,
                "total": as_time(arm.costs.total),
                "segments": cost_segments(arm.costs, longest),
                "rows": cost_cells(arm.costs),
                "facts": cost_facts(arm.costs),
            }
            for arm in comparison.arms
        ],
        "scripts": scripts,
        "policy": content_policy(scripts),
        "style": style(),
    }


def _figure(chart: Chart, axis: dict[str, Any]) -> dict[str, Any]:
    figure = chart.figure()
    figure["layout"]["xaxis"] = axis
    return figure


def _chart(comparison: ArmsComparison, title: str, more: str, place: Callable[[CurvePoint], float]) -> Chart:
    return Chart(
        title=title,
        reading=f"Greedy, mean over the seeds; the band goes from the worst seed to the best.{more}",
        curves=[
            Curve(
                label=arm.name,
                colour=_COLOURS[index % len(_COLOURS)],
                steps=[place(point) for point in arm.curve],
                values=[point.mean for point in arm.curve],
                low=[point.low for point in arm.curve],
                high=[point.high for point in arm.curve],
            )
            for index, arm in enumerate(comparison.arms)
        ],
        unit="share",
    )


def _axis(title: str, hover: str) -> dict[str, Any]:
    return {"title": {"text": title}, "tickformat": "~s", "hoverformat": "~s", "unifiedhovertitle": {"text": hover}}
