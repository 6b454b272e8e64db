"""Prompts unlike those of training: how far the error of a network grows, and that of the best linear predictor.

Every case is measured at chosen numbers of examples n, on prompts of n + 1 points whose last one is the query. Errors
are against targets without noise, divided by the normaliser of the class, and by s^2 where a case scales inputs or
weights by s: answering 0 scores the same under every shift, 1 for weights of standard deviation 1.

Shapes: B prompts, K points, d dimensions.

Source: Garg et al., arXiv:2208.01066, section 4 and appendix B.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor

from oncurve.icl import transforms
from oncurve.icl.baselines import bayes_penalty, fit_least_squares, fit_ridge
from oncurve.icl.evaluate import predictions
from oncurve.icl.functions import FunctionSettings, InputTransform, Prompts, normaliser, require_linear, sample
from oncurve.icl.intervals import mean_intervals
from oncurve.icl.records import Record
from oncurve.icl.run import measure_run
from oncurve.icl.similarity import Predict
from oncurve.types import Settings, derive_seed

SHIFT_FILE = "shift.json"
PAPER = "Garg et al., arXiv:2208.01066: d = 20, 12 layers, width 256, 500k steps"
"""Where the figures of the paper come from."""
_LEVEL = 0.9


class ShiftSettings(Settings):
    """How much is measured."""

    num_prompts: int = Field(1024, ge=8)
    """Prompts of each case at each number of examples."""

    resamples: int = Field(1000, ge=50)
    """Bootstrap draws behind each 90 % interval."""

    seed: int = Field(0, ge=0)
    """Of the prompts; all cases at one number of examples share it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One way in which prompts differ from those of training."""

    name: str
    family: str
    """What is varied: cases of one family differ in strength."""
    transform: InputTransform | None = None
    weight_scale: float = 1.0
    noise_std: float = 0.0
    """Added to that of training."""
    scale: float = 1.0
    """The shift multiplies targets by this."""
    is_below_d: bool = False
    """Makes sense with fewer examples than dimensions only."""
    paper: Mapping[str, float] = field(default_factory=dict)
    """The paper's error at ``d/2``, ``d`` and ``2d`` examples, where it gives one."""


class Measured(Record):
    """One case at one number of examples."""

    name: str
    family: str
    count: int
    place: str
    """The number of examples in units of d: d/2, d or 2d."""
    error: float
    """Of the network."""
    interval: tuple[float, float]
    """90 %, from resampled prompts."""
    reference_name: str
    reference_error: float
    """Of the best linear predictor that knows the shift in noise and weight scale."""
    paper: float | None
    """The paper's figure for its own, far larger network."""


class ShiftResult(Record):
    """All cases."""

    settings: ShiftSettings
    dimension: int
    paper_source: str
    rows: tuple[Measured, ...]

    def find(self, name: str, place: str) -> Measured | None:
        """Return the row of a case at ``d/2``, ``d`` or ``2d``."""
        return next((row for row in self.rows if row.name == name and row.place == place), None)


def run_shift(run: Path, settings: ShiftSettings | None = None) -> ShiftResult:
    """Measure the network of a run under all shifts and write ``shift.json`` into its folder.

    Raises as ``measure_run`` and ``shift``.
    """
    chosen = settings or ShiftSettings()
    return measure_run(
        run, SHIFT_FILE, lambda functions, network: shift(network.predict, functions, network.max_points, chosen)
    )


def shift(predict: Predict, functions: FunctionSettings, max_points: int, settings: ShiftSettings) -> ShiftResult:
    """Measure a predictor under all shifts.

    Args:
        predict: the network, [B, K, d], [B, K] -> [B, K].
        functions: what it was trained on, linear or sparse.
        max_points: longest prompt that it takes.
        settings: how much is measured.

    Raises:
        ValueError: the class of functions is not linear.
    """
    require_linear(functions, "the shifts are of")
    places = _places(functions.dimension, max_points)
    rows = [
        _measure(predict, case, functions, place, count, settings)
        for case in cases(functions)
        for place, count in places.items()
        if count < functions.dimension or not case.is_below_d
    ]
    return ShiftResult(settings=settings, dimension=functions.dimension, paper_source=PAPER, rows=tuple(rows))


def cases(functions: FunctionSettings) -> list[Case]:
    """Return all shifts, the unshifted prompts first, with the paper's figures."""
    return [
        Case(name="as in training", family="none", paper={"d": 0.02, "2d": 0.0006}),
        *(_weight_case(scale, paper) for scale, paper in ((1 / 3, 0.0012), (0.5, 0.0008), (2, 0.0016), (3, 0.0278))),
        *(_input_case(scale, paper) for scale, paper in ((1 / 3, 0.30), (0.5, 0.013), (2, 0.043), (3, 0.58))),
        *(_query_case(scale) for scale in (1 / 16, 0.5, 2.0, 4.0)),
        *(
            Case(name=name, family=family, transform=change, paper=paper)
            for name, family, change, paper in (
                ("skewed covariance", "inputs", transforms.skew, dict[str, float]()),
                ("d/2 subspace", "inputs", transforms.in_subspace, {"d/2": 0.036, "d": 0.0014, "2d": 0.00057}),
                ("random orthant", "inputs", transforms.in_random_orthant, {"d": 0.062, "2d": 0.004}),
                (
                    "query is an example",
                    "query",
                    transforms.query_is_an_example,
                    {"d/2": 0.001, "d": 0.001, "2d": 5e-4},
                ),
            )
        ),
        Case(
            name="query orthogonal to the examples",
            family="query",
            transform=transforms.query_orthogonal,
            is_below_d=True,
            paper={"d/2": 1.0},
        ),
        Case(
            name="noisy targets", family="noise", noise_std=functions.weight_std * (normaliser(functions) / 20) ** 0.5
        ),
    ]


def _weight_case(scale: float, paper: float) -> Case:
    return Case(
        name=f"weights × {Fraction(scale).limit_denominator(64)}",
        family="weight scale",
        weight_scale=scale,
        scale=scale,
        paper={"2d": paper},
    )


def _input_case(scale: float, paper: float) -> Case:
    name = f"inputs × {Fraction(scale).limit_denominator(64)}"
    return Case(
        name=name, family="input scale", transform=transforms.scale_inputs(scale), scale=scale, paper={"2d": paper}
    )


def _query_case(scale: float) -> Case:
    name = f"query × {Fraction(scale).limit_denominator(64)}"
    return Case(name=name, family="query scale", transform=transforms.scale_query(scale), scale=scale)


def _measure(
    predict: Predict, case: Case, functions: FunctionSettings, place: str, count: int, settings: ShiftSettings
) -> Measured:
    noise_std = (functions.noise_std**2 + case.noise_std**2) ** 0.5
    shifted = functions.model_copy(update={"noise_std": noise_std})
    generator = torch.Generator().manual_seed(derive_seed("icl shift", settings.seed, count) % 2**63)
    prompts = sample(
        shifted,
        settings.num_prompts,
        count + 1,
        generator,
        input_transform=case.transform,
        weight_scale=case.weight_scale,
    )
    penalty = bayes_penalty(noise_std, functions.weight_std * case.weight_scale)
    scale = normaliser(functions) * case.scale**2
    errors = (predictions(predict, prompts) - prompts.clean)[:, -1].double().square() / scale
    best = (_best_answers(prompts, penalty) - prompts.clean[:, -1]).double().square() / scale
    return Measured(
        name=case.name,
        family=case.family,
        count=count,
        place=place,
        error=float(errors.mean()),
        interval=_interval(errors, settings),
        reference_name="ridge" if penalty else "least squares",
        reference_error=float(best.mean()),
        paper=case.paper.get(place),
    )


def _interval(errors: Tensor, settings: ShiftSettings) -> tuple[float, float]:
    ((low, high),) = mean_intervals(errors.numpy(), [_LEVEL], resamples=settings.resamples, seed=settings.seed)
    return float(low), float(high)


def _best_answers(prompts: Prompts, penalty: float) -> Tensor:
    """What the best linear predictor says of the last points, from those before: [B] float64."""
    points, values = prompts.inputs[:, :-1], prompts.targets[:, :-1]
    weights = fit_ridge(points, values, penalty) if penalty else fit_least_squares(points, values)
    return (weights * prompts.inputs[:, -1]).sum(-1)


def _places(dimension: int, max_points: int) -> dict[str, int]:
    """The numbers of examples that fit into a prompt with its query."""
    wanted = {"d/2": dimension // 2, "d": dimension, "2d": 2 * dimension}
    return {place: count for place, count in wanted.items() if 1 <= count < max_points}
