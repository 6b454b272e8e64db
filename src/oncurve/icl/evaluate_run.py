"""Examine the network of a run on held-out prompts, beside what a statistician would predict from the same examples.

Shapes: P prompts, K points.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import bootstrap
from torch import Tensor

from oncurve.icl.baselines import Baseline, quick_baselines_for, reference_of, strong_counts
from oncurve.icl.evaluate import held_out, predictions, squared_errors
from oncurve.icl.functions import Prompts
from oncurve.icl.intervals import mean_intervals
from oncurve.icl.network import Regressor
from oncurve.icl.run import load_run
from oncurve.icl.settings import MIN_PROMPTS, LabSettings
from oncurve.report import RunFolder
from oncurve.report.storage import write_text
from oncurve.types import ConfigError, derive_seed

MODEL = "model"
LEAST_SQUARES = "least squares"
_RESAMPLES = 1000
_SLOW_PROMPTS = 64
"""Most prompts on which a reference without a formula is fitted, one by one."""
_SLOW_COUNTS = 5
"""Numbers of examples at which it is."""

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """E(n) of one predictor."""

    name: str
    counts: tuple[int, ...]
    """The numbers n of examples: 0..K-1, fewer for a predictor that is fitted prompt by prompt."""
    errors: tuple[float, ...]
    """Mean over prompts of the squared distance to f(x_n), over the normaliser; one for each of ``counts``."""
    medians: tuple[float, ...]
    """The same with the median, which a heavy tail does not move: least squares on noisy targets has one near n = d."""
    interval_90: tuple[Interval, ...]
    """Of ``errors``, from resampled prompts."""
    interval_95: tuple[Interval, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Examination:
    """What a network and its baselines make of the same held-out prompts. None where a prompt is too short."""

    step: int
    """Optimiser steps behind the network."""
    num_prompts: int
    dimension: int
    reference: str
    """The best predictor known for the class: of linear functions the best there is, least squares, with noise ridge
    at its Bayes penalty; else the Lasso, boosted trees on signs, or a two-layer network trained by Adam."""
    e_2d: float | None
    """E(2d) of the network."""
    ratio_mean: float
    """Mean of E(n) over n = 0..2d of the network, over that of least squares."""
    ratio_mean_interval: Interval
    """Its 95 % interval, from resampled prompts."""
    ratio_below_d: float
    """The same over n = 0..d-1, where no predictor can be exact."""
    ratio_reference: float
    """Mean of E(n) of the network over that of ``reference``, over ``reference_counts`` and on the same prompts."""
    reference_counts: tuple[int, ...]
    """0..2d for linear functions, five numbers of examples up to the last for others."""
    averaging_ratio: float | None
    """E(2d) of averaging over that of the network: how many times the network is better."""
    curves: tuple[Curve, ...]
    """The network first."""

    def summary(self) -> dict[str, Any]:
        """Every number but the curves."""
        return {name: value for name, value in asdict(self).items() if name != "curves"}


def examine_run(run: Path, num_prompts: int | None = None) -> Examination:
    """Examine the last checkpoint of a run; writes ``eval/step_N.json`` and ``eval/step_N.csv`` into its folder.

    Args:
        run: a folder that `oncurve icl train` made.
        num_prompts: held-out prompts, at least 2; None takes ``eval_prompts`` of the run.

    Raises:
        ConfigError: fewer prompts.
        RunError: there is no such run, or it has no checkpoint yet.
        StorageError: the disk refused.
    """
    if num_prompts is not None and num_prompts < MIN_PROMPTS:
        raise ConfigError(
            f"an examination of {num_prompts} held-out prompts has no interval: take {MIN_PROMPTS} at least, "
            "or leave the number out for the run's eval_prompts"
        )
    settings, regressor, step = load_run(run)
    found = examine(settings, regressor, step, settings.eval_prompts if num_prompts is None else num_prompts)
    RunFolder.open(run).append_evaluation(step, asdict(found))
    write_text(run / "eval" / f"step_{step}.csv", curves_csv(found))
    return found


def examine(settings: LabSettings, regressor: Regressor, step: int, num_prompts: int) -> Examination:
    """Measure a network on held-out prompts, the baselines with a formula on the same, the slow one on the first."""
    prompts = held_out(settings, num_prompts)
    errors = {MODEL: squared_errors(settings, predictions(regressor.predict, prompts), prompts)}
    errors |= {one.name: _baseline_errors(settings, one, prompts) for one in quick_baselines_for(settings.functions)}
    dimension = settings.functions.dimension
    upto_2d, at_2d = slice(0, 2 * dimension + 1), 2 * dimension
    model, squares, averaging = errors[MODEL], errors[LEAST_SQUARES], errors["averaging"]
    has_2d = settings.points > at_2d
    seed = derive_seed("icl", settings.seed, "bootstrap")
    curves = [_curve(name, range(settings.points), values, seed) for name, values in errors.items()]
    reference, counts, best = _reference(settings, prompts, errors)
    if reference not in errors:
        curves.append(_curve(reference, counts, best, seed))
    return Examination(
        step=step,
        num_prompts=num_prompts,
        dimension=dimension,
        reference=reference,
        e_2d=_mean(model[:, at_2d]) if has_2d else None,
        ratio_mean=_ratio(model[:, upto_2d], squares[:, upto_2d]),
        ratio_mean_interval=_ratio_interval(model[:, upto_2d], squares[:, upto_2d], seed),
        ratio_below_d=_ratio(model[:, :dimension], squares[:, :dimension]),
        ratio_reference=_ratio(model[: len(best), list(counts)], best),
        reference_counts=tuple(counts),
        averaging_ratio=_ratio(averaging[:, at_2d], model[:, at_2d]) if has_2d else None,
        curves=tuple(curves),
    )


def _reference(
    settings: LabSettings, prompts: Prompts, known: Mapping[str, Tensor]
) -> tuple[str, Sequence[int], Tensor]:
    """The reference, the numbers of examples C at which it is compared, and its errors there, [P, C] or fewer rows."""
    slow_counts = strong_counts(settings.points, _SLOW_COUNTS) or [0]
    reference = reference_of(settings.functions, slow_counts, seed=settings.seed)
    if reference.name in known:
        counts = range(min(settings.points, 2 * settings.functions.dimension + 1))
        return reference.name, counts, known[reference.name][:, : len(counts)]
    return (
        reference.name,
        slow_counts,
        _baseline_errors(settings, reference, prompts.first(_SLOW_PROMPTS))[:, slow_counts],
    )


def curves_csv(found: Examination) -> str:
    """All curves as a table: one row a predictor and number of examples."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["predictor", "examples", "error", "median", "low_90", "high_90", "low_95", "high_95"])
    for curve in found.curves:
        rows = zip(curve.counts, curve.errors, curve.medians, curve.interval_90, curve.interval_95, strict=True)
        for examples, error, median, inner, outer in rows:
            table.writerow([curve.name, examples, error, median, *inner, *outer])
    return text.getvalue()


def _baseline_errors(settings: LabSettings, baseline: Baseline, prompts: Prompts) -> Tensor:
    return squared_errors(settings, baseline.predict(prompts.inputs, prompts.targets), prompts)


def _curve(name: str, counts: Sequence[int], errors: Tensor, seed: int) -> Curve:
    values = errors.numpy()
    inner, outer = mean_intervals(values, [0.9, 0.95], resamples=_RESAMPLES, seed=seed)
    return Curve(
        name=name,
        counts=tuple(counts),
        errors=tuple(values.mean(axis=0).tolist()),
        medians=tuple(np.median(values, axis=0).tolist()),
        interval_90=tuple(map(tuple, inner.T.tolist())),
        interval_95=tuple(map(tuple, outer.T.tolist())),
    )


def _ratio_interval(model: Tensor, other: Tensor, seed: int) -> Interval:
    found = bootstrap(
        (model.mean(1).numpy(), other.mean(1).numpy()),
        lambda mine, theirs, axis: mine.mean(axis=axis) / theirs.mean(axis=axis),
        paired=True,
        n_resamples=_RESAMPLES,
        method="percentile",
        rng=seed,
    ).confidence_interval
    return float(found.low), float(found.high)


def _ratio(numerator: Tensor, denominator: Tensor) -> float:
    return _mean(numerator) / _mean(denominator)


def _mean(errors: Tensor) -> float:
    return float(errors.mean())
