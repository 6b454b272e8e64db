"""Drawings of the laboratory as data: one description, drawn by plotly on the page and by matplotlib in a picture.

A colour is the name of a CSS variable of the page (``--blue``).
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from oncurve.report.charts import Chart, Curve

COLOURS = ("--blue", "--orange", "--green", "--purple", "--red", "--teal", "--grey")
FLOOR = 1e-6
"""What is smaller is not drawn on a logarithmic axis: least squares is exact to rounding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines:
    """Curves over one axis."""

    key: str
    """Name of its picture, ``KEY.png``."""
    title: str
    reading: str
    x_title: str
    curves: Sequence[Curve]
    is_log: bool = False
    is_wide: bool = False
    height: int = 240

    @property
    def legend(self) -> list[tuple[str, str]]:
        """(label, colour) of what is drawn."""
        return [(curve.label, curve.colour) for curve in self.curves]

    def figure(self) -> dict[str, Any]:
        """For plotly."""
        chart = Chart(title=self.title, reading=self.reading, curves=list(self.curves), is_log=self.is_log)
        figure = chart.figure()
        axis: dict[str, Any] = {"title": {"text": self.x_title}, "hoverformat": "~g", "tickformat": "~g"}
        axis["unifiedhovertitle"] = {"text": f"{html.escape(self.x_title)} %{{x}}"}
        figure["layout"] |= {"xaxis": axis, "height": self.height}
        return figure


@dataclass(frozen=True, kw_only=True, slots=True)
class Heat:
    """A table of similarities as colours, with the greatest of each row marked."""

    key: str
    title: str
    reading: str
    x_title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[float]]
    """One a layer, from layer 0 on."""
    marked: Sequence[str]
    """The column that each row marks."""
    is_wide: bool = False
    height: int = 300

    legend: list[tuple[str, str]] = field(default_factory=lambda: [("best match of a layer", "--red")])

    def figure(self) -> dict[str, Any]:
        """For plotly."""
        layers = list(range(len(self.rows)))
        heat = {
            "type": "heatmap",
            "x": list(self.columns),
            "y": layers,
            "z": [[float(f"{value:.4g}") for value in row] for row in self.rows],
            "colorscale": [[0, "--paper"], [1, "--blue"]],
            "hovertemplate": f"layer %{{y}}, {html.escape(self.x_title)} %{{x}}: %{{z:.3f}}<extra></extra>",
            "colorbar": {"thickness": 10, "outlinewidth": 0},
        }
        marks = {
            "x": list(self.marked),
            "y": layers,
            "mode": "lines+markers",
            "line": {"color": "--red", "width": 1},
            "marker": {"color": "--red", "size": 7},
            "hoverinfo": "skip",
        }
        xaxis = {"type": "category", "title": {"text": self.x_title}, "nticks": 12}
        layout = {"xaxis": xaxis, "yaxis": {"title": {"text": "layer"}, "dtick": 1}, "height": self.height}
        return {"data": [heat, marks], "layout": layout | {"hovermode": "closest"}}


@dataclass(frozen=True, kw_only=True, slots=True)
class BarSeries:
    """One colour of bars, or of marks."""

    label: str
    colour: str
    values: Sequence[float | None]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    """Borders of whiskers, if there are some."""
    is_mark: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """Groups of horizontal bars, the first label on top."""

    key: str
    title: str
    reading: str
    x_title: str
    labels: Sequence[str]
    series: Sequence[BarSeries]
    is_log: bool = True
    """Then what is below ``FLOOR`` has no bar."""
    is_wide: bool = True
    is_stacked: bool = False
    """Each label has a bar in one series only: bars need no place beside each other."""

    @property
    def num_beside(self) -> int:
        """Bars beside each other at one label."""
        return 1 if self.is_stacked else sum(not one.is_mark for one in self.series)

    @property
    def height(self) -> int:
        """In pixels."""
        return 90 + len(self.labels) * (8 + 11 * self.num_beside)

    def drawn(self, one: BarSeries) -> list[float | None]:
        """The values that the axis can show."""
        return [_drawn(value, self.is_log) for value in one.values]

    @property
    def legend(self) -> list[tuple[str, str]]:
        """(label, colour) of what is drawn."""
        return [(one.label, one.colour) for one in self.series]

    def figure(self) -> dict[str, Any]:
        """For plotly."""
        labels = [html.escape(label) for label in self.labels]
        return {
            "data": [self._trace(one, labels) for one in self.series],
            "layout": {
                "xaxis": {
                    "type": "log" if self.is_log else "linear",
                    "title": {"text": self.x_title},
                    "tickformat": "~g",
                    "hoverformat": ".3~g",
                    "showgrid": True,
                }
                | ({"dtick": 1} if self.is_log else {}),
                "yaxis": {"autorange": "reversed", "nticks": 0, "type": "category", "showgrid": False},
                "barmode": "overlay" if self.is_stacked else "group",
                "bargap": 0.25,
                "hovermode": "y unified",
                "height": self.height,
            },
        }

    def _trace(self, one: BarSeries, labels: list[str]) -> dict[str, Any]:
        trace: dict[str, Any] = {
            "y": labels,
            "x": self.drawn(one),
            "name": html.escape(one.label),
            "hovertemplate": "%{x:.3~g}",
        }
        if one.is_mark:
            marker = {"color": one.colour, "size": 9, "symbol": "diamond-open", "line": {"width": 2}}
            return trace | {"type": "scatter", "mode": "markers", "marker": marker}
        trace |= {"type": "bar", "orientation": "h", "marker": {"color": one.colour}}
        if one.low:
            known = [0.0 if value is None else value for value in one.values]
            trace["error_x"] = {
                "type": "data",
                "symmetric": False,
                "array": [high - value for high, value in zip(one.high, known, strict=True)],
                "arrayminus": [value - low for low, value in zip(one.low, known, strict=True)],
                "color": "--ink",
                "thickness": 1,
                "width": 2,
            }
        return trace


Drawing = Lines | Heat | Bars


def curve(
    label: str,
    colour: str,
    places: Sequence[float],
    values: Sequence[float | None],
    *,
    is_log: bool,
    band: Sequence[tuple[float, float]] = (),
) -> Curve:
    """A curve with its band, if there is one; on a logarithmic axis without what is below ``FLOOR``.

    The band is only where the curve is, and its lower border no lower than the axis can show.
    """
    drawn = [_drawn(value, is_log) for value in values]
    least = FLOOR if is_log else float("-inf")
    pairs = zip(drawn, band, strict=True) if band else ()
    borders = [None if value is None else (max(low, least), high) for value, (low, high) in pairs]
    return Curve(
        label=label,
        colour=colour,
        steps=places,
        values=drawn,
        low=[None if pair is None else pair[0] for pair in borders],
        high=[None if pair is None else pair[1] for pair in borders],
    )


def _drawn(value: float | None, is_log: bool) -> float | None:
    return None if value is None or (is_log and value < FLOOR) else value
