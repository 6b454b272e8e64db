"""Which drawings the results of a run allow."""

from collections.abc import Mapping, Sequence
from typing import Any

from oncurve.icl.probe import Match, Matching, ProbeResult
from oncurve.icl.report.drawings import COLOURS, Bars, BarSeries, Drawing, Heat, Lines, curve
from oncurve.icl.report.findings import counts_of
from oncurve.icl.shift import ShiftResult
from oncurve.icl.sweep import SweepResult, size_name
from oncurve.icl.traces import TraceComparison, TraceResult
from oncurve.report.charts import Curve

_MOST_LAYERS = 7
_PLACE_COLOURS = {"d/2": "--teal", "d": "--orange", "2d": "--blue"}


def learning_drawing(metrics: Sequence[Mapping[str, Any]]) -> list[Drawing]:
    """The learning curve: training loss and held-out error by step."""
    found = []
    for name, label, colour in (("loss", "training loss", "--grey"), ("eval/mean", "held-out error, all n", "--blue")):
        rows = [row for row in metrics if row.get(name) is not None]
        if rows:
            places = [row["step"] for row in rows]
            found.append(curve(label, colour, places, [row[name] for row in rows], is_log=True))
    reading = "Mean over all numbers of examples; answering 0 has an error of 1."
    lines = Lines(key="learning", title="Learning curve", reading=reading, x_title="step", curves=found, is_log=True)
    return [lines] if found else []


def curve_drawings(found: Mapping[str, Any]) -> list[Drawing]:
    """E(n) of the network beside the baselines, from a document of ``eval/``."""
    model, *others = found["curves"]
    places = list(range(len(model["errors"])))
    network = curve("network", "--blue", places, model["errors"], is_log=True, band=model["interval_90"])
    shades = [colour for colour in COLOURS if colour != "--blue"]
    baselines = [
        curve(one["name"], shades[index % len(shades)], one.get("counts", places), one["errors"], is_log=True)
        for index, one in enumerate(others)
    ]
    return [
        Lines(
            key="errors",
            title="Error by number of examples",
            reading=f"E(n), d = {found['dimension']}: squared error on the next point after n examples; answering 0 "
            "scores 1. The band is the 90 % interval over prompts. Below one millionth nothing is drawn.",
            x_title="examples",
            curves=[network, *baselines],
            is_log=True,
            is_wide=True,
            height=330,
        )
    ]


def probe_drawings(found: ProbeResult) -> list[Drawing]:
    """E(n) of the layers, error by layer and iteration, and the heat maps by errors and by weights."""
    return [_layers_by_count(found), _by_depth(found), *_heats(found)]


def _layers_by_count(found: ProbeResult) -> Lines:
    num = len(found.layer_errors)
    shown = sorted({round(index * (num - 1) / (min(num, _MOST_LAYERS) - 1)) for index in range(min(num, _MOST_LAYERS))})
    places = list(range(len(found.model_errors)))
    return Lines(
        key="layers",
        title="Error by number of examples, layer by layer",
        reading="A linear read-out is fitted to each layer; layer 0 is what was read in.",
        x_title="examples",
        curves=[
            curve(f"layer {layer}", COLOURS[index], places, found.layer_errors[layer], is_log=True)
            for index, layer in enumerate(shown)
        ],
        is_log=True,
    )


def _by_depth(found: ProbeResult) -> Lines:
    def one(label: str, colour: str, places: Sequence[int], errors: Sequence[Sequence[float]]) -> Curve:
        return curve(label, colour, places, [sum(row) / len(row) for row in errors], is_log=True)

    layers = list(range(len(found.layer_errors)))
    return Lines(
        key="depth",
        title="Error by layer, and by iteration",
        reading="Mean over all numbers of examples. One step to the right is a layer of the network, an iteration of "
        "Newton, or a step of gradient descent (eta = 1 / largest eigenvalue).",
        x_title="layer or iteration",
        curves=[
            one("network, read out", "--blue", layers, found.layer_errors),
            one("Newton", "--orange", found.newton.iterations, found.newton.errors),
            _within(one("gradient descent", "--green", found.descent.iterations, found.descent.errors), 40),
        ],
        is_log=True,
    )


def _within(one: Curve, last: int) -> Curve:
    kept = [(step, value) for step, value in zip(one.steps, one.values, strict=True) if step <= last]
    return Curve(label=one.label, colour=one.colour, steps=[step for step, _ in kept], values=[v for _, v in kept])


def _heats(found: ProbeResult) -> list[Heat]:
    steps = "steps, each column about 1.41 times"
    counts = ", ".join(map(str, found.weight_counts))
    by_errors = (
        "Cosine between the errors of a layer and of an iterate along a prompt (SimE), mean over prompts. What tells "
        "algorithms apart is how the best match moves from layer to layer, not which cosine is higher."
    )
    by_weights = (
        "Cosine between the weights of an iterate and those of the linear function nearest to what a layer answers to "
        f"fresh queries (SimW), mean over prompts and {counts} examples."
    )
    newton, descent = found.newton, found.descent
    return [
        _heat(
            "errors-newton", "Errors: layers and Newton iterations", by_errors, "iterations", newton, newton.by_errors
        ),
        _heat(
            "errors-descent",
            "Errors: layers and steps of gradient descent",
            by_errors,
            steps,
            descent,
            descent.by_errors,
        ),
        _heat(
            "weights-newton",
            "Weights: layers and Newton iterations",
            by_weights,
            "iterations",
            newton,
            newton.by_weights,
        ),
        _heat(
            "weights-descent",
            "Weights: layers and steps of gradient descent",
            by_weights,
            steps,
            descent,
            descent.by_weights,
        ),
    ]


def _heat(key: str, title: str, reading: str, x_title: str, found: Matching, match: Match) -> Heat:
    return Heat(
        key=f"similarity-{key}",
        title=title,
        reading=reading,
        x_title=x_title,
        columns=[str(number) for number in found.iterations],
        rows=match.similarities,
        marked=[str(number) for number in match.matched],
    )


def shift_drawings(found: ShiftResult) -> list[Drawing]:
    """All cases, at 2d examples with the paper's figures, and at d/2 and d."""
    return [_shift_bars(found, place) for place in ("2d", "d", "d/2") if any(row.place == place for row in found.rows)]


def _shift_bars(found: ShiftResult, place: str) -> Bars:
    rows = [row for row in found.rows if row.place == place]
    series = [
        BarSeries(
            label="network",
            colour=_PLACE_COLOURS[place],
            values=[row.error for row in rows],
            low=[row.interval[0] for row in rows],
            high=[row.interval[1] for row in rows],
        )
    ]
    references = [row.reference_error for row in rows]
    if any(error > 1e-6 for error in references):
        best = BarSeries(label="least squares, or ridge for noise", colour="--grey", values=references)
        series.append(best)
    if any(row.paper is not None for row in rows):
        marks = BarSeries(label="paper", colour="--red", values=[row.paper for row in rows], is_mark=True)
        series.append(marks)
    return Bars(
        key=f"shift-{place.replace('/', '-over-')}",
        title=f"Shifted prompts, {place} = {rows[0].count} examples",
        reading="Error by the scale of the shifted targets: answering 0 scores 1 in every case. Whiskers are 90 % "
        "intervals over prompts. Where least squares is exact it has no bar.",
        x_title="error",
        labels=[row.name for row in rows],
        series=series,
    )


def sweep_drawings(found: SweepResult) -> list[Drawing]:
    """For each class the error of every size beside the baselines, over the same numbers of examples."""
    return [
        _sweep_bars(found, one.label)
        for one in found.settings.classes
        if any(c.label == one.label for c in found.cells)
    ]


def _sweep_bars(found: SweepResult, label: str) -> Bars:
    counts = counts_of(found, label)
    sizes = [size_name(network) for network in found.settings.networks]
    spreads = {f"network {name}": spread for name in sizes if (spread := found.spread(label, name, counts))}
    baselines = {
        one.name: sum(known) / len(known)
        for one in found.baselines
        if one.label == label and len(known := [e for n in counts if (e := one.errors[n]) is not None]) == len(counts)
    }
    note = next(one.note for one in found.settings.classes if one.label == label)
    blanks: list[float | None] = [None for _ in spreads]
    return Bars(
        key=f"sweep-{label}",
        title=label,
        reading=f"Mean error over {', '.join(map(str, counts))} examples, answering 0 scores 1; median over seeds, "
        f"whiskers from the least to the greatest. {note[:1].upper()}{note[1:]}.",
        x_title="error",
        labels=[*spreads, *baselines],
        series=[
            BarSeries(
                label="networks",
                colour="--blue",
                values=[*(one.median for one in spreads.values()), *(None for _ in baselines)],
                low=[*(one.low for one in spreads.values()), *(0.0 for _ in baselines)],
                high=[*(one.high for one in spreads.values()), *(0.0 for _ in baselines)],
            ),
            BarSeries(label="baselines", colour="--grey", values=[*blanks, *baselines.values()]),
        ],
        is_log=False,
        is_wide=False,
        is_stacked=True,
    )


def trace_drawings(traces: TraceResult, probe: ProbeResult | None) -> list[Drawing]:
    """Visible tokens against error of the run, beside layers against error of the laboratory."""
    told = traces.finished or traces.every
    found: list[Drawing] = [_length_bins(told), _over_training(traces)]
    if probe is not None:
        found.insert(1, _layers_against_error(probe))
    return found


def _length_bins(told: TraceComparison) -> Lines:
    places = [part.mean_tokens for part in told.bins]
    known = all(part.error.interval is not None for part in told.bins)
    intervals = [part.error.interval or (0.0, 0.0) for part in told.bins]
    return Lines(
        key="traces",
        title="Visible tokens and error, same task and weights",
        reading=f"Each group of completions is cut into {len(told.bins)} parts by length; every group is moved to the "
        "mean error, so that hard tasks do not look like long traces. Bands: 95 %, tasks resampled.",
        x_title="mean sampled tokens",
        curves=[
            Curve(
                label="task error",
                colour="--orange",
                steps=places,
                values=[part.error.value for part in told.bins],
                low=[low for low, _ in intervals] if known else [],
                high=[high for _, high in intervals] if known else [],
            )
        ],
    )


def _layers_against_error(probe: ProbeResult) -> Lines:
    layers = list(range(len(probe.layer_errors)))
    last = min(2 * probe.dimension, len(probe.model_errors) - 1)
    marks = ((probe.dimension, "--orange"), (last, "--blue"))
    return Lines(
        key="layers-error",
        title="Layers and error, no visible token",
        reading="The laboratory: the weights stand still and nothing is written; what grows is the computation inside.",
        x_title="layer",
        curves=[
            curve(f"after {count} examples", colour, layers, [row[count] for row in probe.layer_errors], is_log=False)
            for count, colour in marks
        ],
    )


def _over_training(traces: TraceResult) -> Lines:
    steps = [part.last_step for part in traces.training]
    longest = max(part.mean_tokens for part in traces.training)
    return Lines(
        key="traces-training",
        title="Length and error while the policy trains",
        reading=f"Tokens as a share of their greatest mean, {longest:.3g}. Both may fall or rise together; here the "
        "weights change, so this says nothing of what a longer trace does.",
        x_title="step",
        curves=[
            Curve(
                label="tokens, of the greatest",
                colour="--teal",
                steps=steps,
                values=[part.mean_tokens / longest for part in traces.training],
            ),
            Curve(
                label="task error",
                colour="--orange",
                steps=steps,
                values=[part.mean_error for part in traces.training],
            ),
        ],
    )
