"""What was found, in one sentence each with its figures, and whether it agrees with the published result.

Every judgement follows from a stated condition on the measured figures; None means that they do not decide it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from oncurve.icl.baselines import strong_counts
from oncurve.icl.probe import Match, ProbeResult
from oncurve.icl.shift import ShiftResult
from oncurve.icl.sweep import SweepResult, size_name
from oncurve.icl.traces import Estimate, TraceComparison, TraceResult
from oncurve.icl.trend import Trend

GARG = "Garg et al., arXiv:2208.01066"
FU = "Fu et al., arXiv:2310.17086"
NEAR = 1.2
"""A mean error up to this many times that of the best predictor counts as close to it."""
SMALL = 0.1
"""An error up to this, where answering 0 scores 1, counts as robust."""
RISE = 1.02
"""A layer's error may be this many times that of the layer before and still count as not higher."""

_UNLESS = "; decided when every cell of the class is finished"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One sentence."""

    text: str
    condition: str
    """What had to hold for agreement."""
    agrees: bool | None
    source: str

    @property
    def verdict(self) -> str:
        """In words."""
        return {True: "agrees", False: "differs", None: "not decided"}[self.agrees]


def curve_findings(model: Sequence[float], reference: Sequence[float], name: str, dimension: int) -> list[Finding]:
    """Compare E(n) of a network with that of the best predictor: both from n = 0 on."""
    below = fmean(model[:dimension]) / fmean(reference[:dimension])
    last = min(2 * dimension, len(model) - 1)
    ratio = fmean(model) / fmean(reference)
    is_exact = reference[last] < 1e-6
    end = f"E({last}) is {model[last]:.3g}" + ("" if is_exact else f", {name} {reference[last]:.3g}")
    is_close = below <= NEAR and (model[last] <= SMALL / 2 if is_exact else ratio <= NEAR)
    rule = f"E({last}) at most {SMALL / 2:g}" if is_exact else f"at most {NEAR:g} times {name} over all n"
    return [
        Finding(
            text=f"With fewer than d = {dimension} examples the mean error is {below:.3g} times that of {name}, "
            f"over all numbers of examples {ratio:.3g} times; {end}.",
            condition=f"at most {NEAR:g} times {name} for n < d, and {rule}",
            agrees=is_close,
            source=GARG,
        )
    ]


def class_findings(found: Mapping[str, Any], kind: str) -> list[Finding]:
    """Compare a network of sparse functions, trees or two-layer networks with the best known for its class.

    Args:
        found: a document of ``eval/``.
        kind: of the functions.
    """
    ratio, below, reference = found["ratio_reference"], found["ratio_below_d"], found["reference"]
    over = "all numbers of" if (counts := found.get("reference_counts")) is None else _list(counts)
    findings = [
        Finding(
            text=f"Over {over} examples the mean error is {ratio:.3g} times that of {reference}.",
            condition=f"at most {NEAR:g} times",
            agrees=ratio <= NEAR,
            source=GARG,
        )
    ]
    if kind == "sparse":
        sentence = Finding(
            text=f"With fewer than d = {found['dimension']} examples the mean error is {below:.3g} times that of least "
            "squares, which does not know that most weights are 0.",
            condition="below 1",
            agrees=below < 1,
            source=GARG,
        )
        findings.append(sentence)
    return findings


def probe_findings(probe: ProbeResult) -> list[Finding]:
    """What the layers do."""
    errors = probe.mean_layer_errors
    falls = all(later <= RISE * earlier for earlier, later in pairwise(errors))
    steps = " → ".join(f"{error:.3g}" for error in errors)
    return [
        Finding(
            text=f"Read out layer by layer, the mean error goes {steps} from layer 0 to layer {len(errors) - 1}.",
            condition=f"no layer above {RISE:g} times the one before, and the last at most half of the first",
            agrees=falls and errors[-1] <= errors[0] / 2,
            source=FU,
        ),
        _trend_finding("errors", probe.newton.by_errors, probe.descent.by_errors),
        _trend_finding("induced weights", probe.newton.by_weights, probe.descent.by_weights),
    ]


def _trend_finding(measure: str, newton: Match, descent: Match) -> Finding:
    judged = None
    if newton.trend.is_linear is not None and descent.trend.is_linear is not None:
        judged = newton.trend.is_linear and not descent.trend.is_linear
    return Finding(
        text=f"By their {measure}, layers match {_list(newton.matched)} Newton iterations and "
        f"{_list(descent.matched)} steps of GD. Newton: {_reading(newton.trend, 'iterations')}; "
        f"GD: {_reading(descent.trend, 'steps')}.",
        condition="a straight line fits the Newton iterations better than a geometric one (greater R²), "
        "and the other way round for GD",
        agrees=judged,
        source=FU,
    )


def _reading(found: Trend, unit: str) -> str:
    if found.linear is None or found.geometric is None:
        return "too few layers between the ends for a line"
    return (
        f"{found.linear.slope:.2g} {unit} more a layer (linear R² {found.linear.r_squared:.3f}), "
        f"or {2**found.geometric.slope:.3g} times as many a layer (geometric R² {found.geometric.r_squared:.3f})"
    )


def shift_findings(shift: ShiftResult) -> list[Finding]:
    """What changes of the prompts do."""
    found = [_scale_finding(shift), _robust_finding(shift), _orthogonal_finding(shift), _noise_finding(shift)]
    return [one for one in found if one is not None]


def _scale_finding(shift: ShiftResult) -> Finding | None:
    pairs = []
    for factor in ("1/3", "1/2", "2", "3"):
        weights, inputs = shift.find(f"weights × {factor}", "2d"), shift.find(f"inputs × {factor}", "2d")
        if weights is not None and inputs is not None:
            pairs.append((factor, weights.error, inputs.error))
    if not pairs:
        return None
    worse = sum(inputs > weights for _, weights, inputs in pairs)
    shown = ", ".join(f"× {factor}: {weights:.2g} and {inputs:.2g}" for factor, weights, inputs in pairs)
    return Finding(
        text=f"Scaling the inputs hurts more than scaling the weights by the same factor in {worse} of {len(pairs)} "
        f"cases (error at 2d, weights and inputs: {shown}).",
        condition="in every case",
        agrees=worse == len(pairs),
        source=GARG,
    )


def _robust_finding(shift: ShiftResult) -> Finding | None:
    names = ("skewed covariance", "d/2 subspace", "random orthant", "query is an example")
    rows = [row for name in names if (row := shift.find(name, "2d")) is not None]
    plain = shift.find("as in training", "2d")
    if not rows or plain is None:
        return None
    shown = ", ".join(f"{row.name} {row.error:.2g}" for row in rows)
    worst = max(rows, key=lambda row: row.error)
    return Finding(
        text=f"At 2d examples the error is {plain.error:.2g} on prompts as in training, and {shown}; "
        f"{worst.name} is worst.",
        condition=f"all of them at most {SMALL:g}",
        agrees=worst.error <= SMALL,
        source=GARG,
    )


def _orthogonal_finding(shift: ShiftResult) -> Finding | None:
    row = shift.find("query orthogonal to the examples", "d/2")
    if row is None:
        return None
    low, high = row.interval
    return Finding(
        text=f"Asked about a direction that no example shows, the error is {row.error:.3g} "
        f"[{low:.3g}, {high:.3g}], where least squares, which knows that it knows nothing, has "
        f"{row.reference_error:.3g}.",
        condition="within 10 % of least squares",
        agrees=abs(row.error / row.reference_error - 1) <= 0.1,
        source=GARG,
    )


def _noise_finding(shift: ShiftResult) -> Finding | None:
    rows = [row for place in ("d/2", "d", "2d") if (row := shift.find("noisy targets", place)) is not None]
    if not rows:
        return None
    shown = ", ".join(f"{row.error:.2g} and {row.reference_error:.2g} at {row.place}" for row in rows)
    return Finding(
        text=f"With noise of standard deviation √(d/20) in the targets the errors of network and ridge are {shown}.",
        condition="none; the network of the paper was not trained for noise either and followed least squares",
        agrees=None,
        source=GARG,
    )


def sweep_findings(sweep: SweepResult) -> list[Finding]:
    """Whether size helps, and what a network of each class is worth beside the methods made for it."""
    return [
        finding
        for one in sweep.settings.classes
        for finding in (_size_finding(sweep, one.label), _strong_finding(sweep, one.label))
        if finding is not None
    ]


def counts_of(sweep: SweepResult, label: str) -> list[int]:
    """Numbers of examples at which everything of a class is compared."""
    points = next(one.num_points for one in sweep.settings.classes if one.label == label)
    return strong_counts(points, sweep.settings.num_counts)


def _size_finding(sweep: SweepResult, label: str) -> Finding | None:
    counts = counts_of(sweep, label)
    names = [size_name(network) for network in sweep.settings.networks]
    found = [(name, spread) for name in names if (spread := sweep.spread(label, name, counts)) is not None]
    if len(found) < 2:
        return None
    shown = ", ".join(
        f"{name} {one.median:.3f}" + (f" [{one.low:.3f}, {one.high:.3f}]" if one.num_seeds > 1 else "")
        for name, one in found
    )
    medians = [one.median for _, one in found]
    seeds = min(one.num_seeds for _, one in found)
    return Finding(
        text=f"{label}: mean error over {_list(counts)} examples by size: {shown} "
        f"({seeds} seed{'s' if seeds > 1 else ''} at least, {sweep.settings.steps} steps each).",
        condition=f"each larger network has a lower median error{_UNLESS}",
        agrees=all(later < earlier for earlier, later in pairwise(medians)) if sweep.is_whole(label) else None,
        source=GARG,
    )


def _strong_finding(sweep: SweepResult, label: str) -> Finding | None:
    counts = counts_of(sweep, label)
    strong = {one.name: _mean_at(one.errors, counts) for one in sweep.baselines if one.label == label and one.is_strong}
    known = {name: error for name, error in strong.items() if error is not None}
    spreads = [sweep.spread(label, size_name(network), counts) for network in sweep.settings.networks]
    medians = [one.median for one in spreads if one is not None]
    if not known or not medians:
        return None
    best = min(known, key=lambda name: known[name])
    shown = ", ".join(f"{name} {error:.3f}" for name, error in known.items())
    return Finding(
        text=f"{label}: the best network has a mean error of {min(medians):.3f}; {shown}.",
        condition=f"at most {NEAR:g} times the best of them ({best}){_UNLESS}",
        agrees=min(medians) <= NEAR * known[best] if sweep.is_whole(label) else None,
        source=GARG,
    )


def _mean_at(errors: Sequence[float | None], counts: Sequence[int]) -> float | None:
    values = [errors[count] for count in counts]
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def trace_finding(traces: TraceResult) -> Finding:
    """Whether a longer trace comes with a lower error, at fixed difficulty."""
    told = traces.finished or traces.every
    text = _trace_sentence(told)
    aside = f" The {traces.num_truncated} truncated completions are left out." if traces.finished else ""
    return Finding(
        text=text + aside,
        condition="nothing to agree with; the interval says which way it goes in this run",
        agrees=None,
        source="no published figure",
    )


def _trace_sentence(told: TraceComparison) -> str:
    if told.within_spearman is None or told.error_per_doubling is None:
        return "No group has both lengths and errors that differ: nothing can be said of length and error."
    direction = {1: "a higher error", -1: "a lower error", 0: "no error that is clearly higher or lower"}
    pooled = "" if told.pooled_spearman is None else f" Over all completions it is {_signed(told.pooled_spearman)}."
    return (
        f"Within the same task and weights, longer traces come with {direction[told.within_spearman.sign]}: Spearman "
        f"{_interval(told.within_spearman)} over {told.num_telling_groups} groups, and a trace twice as long goes with "
        f"a change of the error by {_interval(told.error_per_doubling)}.{pooled}"
    )


def _interval(one: Estimate) -> str:
    if one.interval is None:
        return f"{_signed(one.value)} (one task: no interval)"
    return f"{_signed(one.value)} [{_signed(one.interval[0])}, {_signed(one.interval[1])}]"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
