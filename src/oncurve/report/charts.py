"""The curves of the report, as data for plotly.

A colour is the name of a CSS variable of the page (``--blue``), so that the page decides light and dark.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from oncurve.report.costs import colour_of, phase_names

MAX_POINTS = 300
"""A longer run is drawn as the means of runs of consecutive steps."""
MAX_CURVES = 12
_COLOURS = ("--blue", "--orange", "--green", "--purple", "--red", "--teal", "--grey")

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One line, and what the caption says of it."""

    label: str
    colour: str
    steps: Sequence[float]
    """Where the values stand: steps, or tokens or seconds so far."""
    values: list[float | None]
    low: list[float | None] = field(default_factory=list)
    high: list[float | None] = field(default_factory=list)
    """Borders of a band around it, if there is one."""

    @property
    def first(self) -> float:
        return next(value for value in self.values if value is not None)

    @property
    def last(self) -> float:
        return next(value for value in reversed(self.values) if value is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """One drawing with its title and how to read it."""

    title: str
    reading: str
    curves: list[Curve]
    style: Literal["lines", "stack"] = "lines"
    unit: Literal["share", "number", "seconds"] = "number"
    is_whole: bool = False
    """Draw shares on the whole axis from 0 to 100 %."""
    is_log: bool = False
    num_left_out: int = 0

    def figure(self) -> dict[str, Any]:
        """Return plotly's ``data`` and the part of ``layout`` that is this chart's own."""
        traces = [trace for curve in self.curves for trace in self._traces(curve)]
        return {"data": traces, "layout": {"yaxis": self._axis()}}

    def _axis(self) -> dict[str, Any]:
        if self.is_log and all(value is None or value > 0 for curve in self.curves for value in curve.values):
            return {"type": "log", "exponentformat": "power"}
        if self.is_whole:
            return {"tickformat": ".0%", "range": [-0.02, 1.02]}
        return {"rangemode": "tozero"} | ({"tickformat": "~%"} if self.unit == "share" else {})

    def _traces(self, curve: Curve) -> list[dict[str, Any]]:
        trace: dict[str, Any] = {
            "x": curve.steps,
            "y": [_short(value) for value in curve.values],
            "name": html.escape(curve.label),
            "mode": "lines+markers" if len(curve.steps) <= 40 else "lines",
            "line": {"color": curve.colour, "width": 1.8},
            "marker": {"color": curve.colour, "size": 5},
            "hovertemplate": "%{y:.2~%}" if self.unit == "share" else "%{y:.4~g}",
        }
        if self.style == "stack":
            bare = {"line": {"color": curve.colour, "width": 0}, "fillcolor": f"{curve.colour}-fill"}
            return [trace | bare | {"stackgroup": "one"}]
        return [*_band(curve), trace]


def charts(metrics: Rows, evaluations: Rows, method: str = "online") -> tuple[list[Chart], list[str]]:
    """Return the charts that the records of a run of this method allow, and the titles of those they do not."""
    rows = thinned(metrics)
    own = {"dpo": _of_pairs, "sft": _of_examples}.get(method, _of_rollouts)
    every = [_held_out(evaluations), *own(rows), *_of_time(rows, metrics)]
    return [chart for chart in every if chart.curves], [chart.title for chart in every if not chart.curves]


def thinned(metrics: Rows) -> Rows:
    """Return at most ``MAX_POINTS`` rows: as they are, or means over equal runs of steps, named by the last of each."""
    size = -(-len(metrics) // MAX_POINTS)
    if size <= 1:
        return metrics
    return [_mean_row(metrics[start : start + size]) for start in range(0, len(metrics), size)]


def _mean_row(rows: Rows) -> dict[str, Any]:
    names = dict.fromkeys(name for row in rows for name in row)
    known = {name: [row[name] for row in rows if row.get(name) is not None] for name in names}
    means = {name: sum(values) / len(values) if values else None for name, values in known.items()}
    return means | {"step": rows[-1]["step"]}


def _held_out(evaluations: Rows) -> Chart:
    ks = {evaluation.get("k") for evaluation in evaluations if evaluation.get("k") is not None}
    pass_at_k = f"pass@{ks.pop()}" if len(ks) == 1 else "pass@k"
    hostile = [{**row, "hostile": (row.get("adversarial") or {}).get("paid_frac")} for row in evaluations]
    found = [
        _curve(evaluations, "greedy", "greedy", "--blue", interval="interval"),
        _curve(evaluations, "pass_at_1", "pass@1", "--orange", interval="pass_at_1_interval"),
        _curve(evaluations, "pass_at_k", pass_at_k, "--green"),
        _curve(hostile, "hostile", "hostile completions paid", "--red"),
    ]
    return Chart(
        title="Held-out accuracy",
        reading="Tasks the policy was never trained on. Bands are the intervals, clustered by prompt.",
        curves=_present(found),
        unit="share",
        is_whole=True,
    )


def _of_rollouts(rows: Rows) -> list[Chart]:
    return [*_of_reward(rows), *_of_policy(rows), *_of_update(rows)]


def _of_pairs(rows: Rows) -> list[Chart]:
    return [
        _chart(rows, "Loss", "Mean over the pairs of a step, before the step.", {"loss/total": "loss"}),
        _chart(
            rows,
            "Preference accuracy",
            "Share of the pairs of a step that the policy has in the right order, measured before it learns from them.",
            {"dpo/accuracy": "right order"},
            unit="share",
            is_whole=True,
        ),
        _chart(
            rows,
            "Log-prob of the pairs",
            "Nats of whole completions. Both may fall while the gap grows: then it moves to completions in no pair.",
            {"dpo/chosen_logprob": "chosen", "dpo/rejected_logprob": "rejected"},
            colours=("--green", "--orange"),
        ),
        _chart(
            rows,
            "Implicit reward",
            "beta times the change of the log-prob since the start; the margin is the difference.",
            {"dpo/margin": "margin", "dpo/chosen_reward": "chosen", "dpo/rejected_reward": "rejected"},
            colours=("--blue", "--green", "--orange"),
        ),
        _drift(rows),
        _gradient_norm(rows),
    ]


def _of_examples(rows: Rows) -> list[Chart]:
    return [
        _chart(rows, "Loss", "Nats per token of the examples of a step, before the step.", {"loss/supervised": "loss"}),
        _drift(rows),
        _gradient_norm(rows),
    ]


def _drift(rows: Rows) -> Chart:
    return _chart(
        rows,
        "Drift from the start",
        "Per token of the given completions: 0 where the policy gives them the probability it started with.",
        {"drift/kl": "drift"},
    )


def _gradient_norm(rows: Rows) -> Chart:
    return _chart(rows, "Gradient norm", "Before clipping.", {"grad/norm": "norm"})


def _of_reward(rows: Rows) -> list[Chart]:
    names = _names(rows, "component/", "/mean")
    return [
        _chart(
            rows,
            "Reward",
            "Mean over scored completions, and the spread within a group: without spread there is no signal.",
            {"reward/mean": "mean", "reward/group_std": "std within a group"},
        ),
        _chart(
            rows,
            "Reward components",
            "Unweighted. A total that rises while the answer component does not is a warning.",
            {name: name.removeprefix("component/").removesuffix("/mean") for name in names},
        ),
        _chart(
            rows,
            "Group composition",
            "Only mixed groups teach. All right and all wrong have advantage 0.",
            {
                "groups/all_right": "all right",
                "groups/mixed": "mixed",
                "groups/all_wrong": "all wrong",
                "groups/no_verdict": "no verdict",
            },
            colours=("--green", "--blue", "--orange", "--grey"),
            style="stack",
            unit="share",
            is_whole=True,
        ),
    ]


def _of_policy(rows: Rows) -> list[Chart]:
    return [
        Chart(
            title="Completion length",
            reading="Tokens: the median, within the band from the 10th to the 90th percentile.",
            curves=_present([_curve(rows, "length/p50", "median", "--blue", low="length/p10", high="length/p90")]),
        ),
        _chart(
            rows,
            "Truncated",
            "Share of completions that ran out of tokens before they ended.",
            {"length/truncated_frac": "truncated"},
            unit="share",
        ),
        _chart(
            rows,
            "Entropy",
            "Nats per token, exact. Falling to 0 means that sampling has nothing left to explore.",
            {"entropy/mean": "entropy"},
        ),
        _chart(
            rows,
            "KL to the reference",
            "How far the policy is from where it started.",
            {"kl/reference": "KL"},
        ),
    ]


def _of_update(rows: Rows) -> list[Chart]:
    return [
        _chart(
            rows,
            "Clipped tokens",
            "Share of tokens whose ratio left the clip range on the side where the gradient stops.",
            {"clip/low": "below", "clip/high": "above"},
            unit="share",
        ),
        _chart(
            rows,
            "Ratio",
            "New probability over old, per token: mean and extremes. On fresh rollouts it starts at 1.",
            {"ratio/max": "max", "ratio/mean": "mean", "ratio/min": "min"},
            colours=("--orange", "--blue", "--green"),
        ),
        _gradient_norm(rows),
        _chart(
            rows,
            "Log-prob gap",
            "Sampler against learner on the same tokens, same weights. Large means that the ratio is wrong.",
            {"gap/max_abs": "largest", "gap/mean_abs": "mean"},
            is_log=True,
        ),
    ]


def _of_time(rows: Rows, metrics: Rows) -> list[Chart]:
    rates = _names(rows, "tokens_per_second/", "")
    return [
        _chart(
            rows,
            "Seconds per step",
            "Wall time by phase.",
            {name: name.removeprefix("seconds/") for name in phase_names(metrics)},
            colours=[colour_of(name.removeprefix("seconds/")) for name in phase_names(metrics)],
            style="stack",
            unit="seconds",
        ),
        _chart(
            rows,
            "Tokens per second",
            "By phase.",
            {name: name.removeprefix("tokens_per_second/") for name in rates},
        ),
    ]


def _chart(
    rows: Rows,
    title: str,
    reading: str,
    labels: Mapping[str, str],
    *,
    colours: Sequence[str] = _COLOURS,
    style: Literal["lines", "stack"] = "lines",
    unit: Literal["share", "number", "seconds"] = "number",
    is_whole: bool = False,
    is_log: bool = False,
) -> Chart:
    found = _present(
        _curve(rows, name, label, colours[index % len(colours)]) for index, (name, label) in enumerate(labels.items())
    )
    return Chart(
        title=title,
        reading=reading,
        curves=found[:MAX_CURVES],
        style=style,
        unit=unit,
        is_whole=is_whole,
        is_log=is_log,
        num_left_out=len(found[MAX_CURVES:]),
    )


def _curve(
    rows: Rows, name: str, label: str, colour: str, *, low: str = "", high: str = "", interval: str = ""
) -> Curve:
    return Curve(
        label=label,
        colour=colour,
        steps=[row["step"] for row in rows],
        values=[row.get(name) for row in rows],
        low=_border(rows, low, interval, 0),
        high=_border(rows, high, interval, 1),
    )


def _border(rows: Rows, name: str, interval: str, side: int) -> list[float | None]:
    if interval:
        return [(row.get(interval) or (None, None))[side] for row in rows]
    return [row.get(name) for row in rows] if name else []


def _present(curves: Iterable[Curve]) -> list[Curve]:
    return [curve for curve in curves if any(value is not None for value in curve.values)]


def _names(rows: Rows, prefix: str, suffix: str) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name.startswith(prefix) and name.endswith(suffix)]


def _band(curve: Curve) -> list[dict[str, Any]]:
    known = [
        (step, low, high)
        for step, low, high in zip(curve.steps, curve.low, curve.high, strict=False)
        if low is not None and high is not None
    ]
    if not known:
        return []
    steps, lows, highs = zip(*known, strict=True)
    edge: dict[str, Any] = {
        "x": steps,
        "mode": "lines",
        "line": {"width": 0, "color": curve.colour},
        "hoverinfo": "skip",
    }
    return [
        edge | {"y": [_short(low) for low in lows]},
        edge | {"y": [_short(high) for high in highs], "fill": "tonexty", "fillcolor": f"{curve.colour}-band"},
    ]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
