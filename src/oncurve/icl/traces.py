"""Does a longer visible trace come with a lower task error? For the rollouts of a run, at fixed difficulty.

Hard tasks get long traces and many errors, and a policy changes while it trains. Both would tie length to error
without either causing the other. So completions are compared with those of their own group only: the same task, asked
of the same weights. What is left is association; a policy may still write more on attempts that go wrong.

Error is 1 for a wrong answer and 0 for a right one; completions without a verdict are left out and counted. Length is
the number of tokens that the policy sampled. Groups of one task are not independent, so intervals resample tasks.

Shapes: N completions, C tasks (clusters), R bootstrap draws.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.stats import rankdata

from oncurve.icl.records import Record
from oncurve.report import Rollout
from oncurve.types import FinishReason, Settings, Status

Floats = NDArray[np.float64]
_LEVEL = 0.95


class TraceSettings(Settings):
    """How traces are compared."""

    num_bins: int = Field(4, ge=2, le=20)
    """Parts into which each group is cut by length, shortest first."""

    resamples: int = Field(2000, ge=100)
    """Bootstrap draws of tasks behind each interval."""

    seed: int = Field(0, ge=0)
    """Of the draws."""


class Estimate(Record):
    """A figure with its 95 % interval, which is None when fewer than two tasks say anything."""

    value: float
    interval: tuple[float, float] | None

    @property
    def sign(self) -> int:
        """1 or -1 when the interval lies on one side of 0, else 0."""
        if self.interval is None or self.interval[0] <= 0 <= self.interval[1]:
            return 0
        return 1 if self.value > 0 else -1


class LengthBin(Record):
    """Completions of the same rank by length within their groups."""

    num_completions: int
    mean_tokens: float
    error: Estimate
    """Mean error, each group moved to the mean error of all, so that its difficulty does not count."""


class TraceComparison(Record):
    """Length against error over some completions."""

    num_completions: int
    num_groups: int
    num_telling_groups: int
    """Groups in which both length and error differ: the only ones that say something of the two."""
    num_tasks: int
    mean_tokens: float
    mean_error: float
    bins: tuple[LengthBin, ...]
    within_spearman: Estimate | None
    """Mean over telling groups of Spearman's correlation of length and error; None without any."""
    error_per_doubling: Estimate | None
    """Change of the error where a trace is twice as long as another of its group; None without telling groups."""
    pooled_spearman: float | None
    """Over all completions as if they were alike: what difficulty and training add to it is in it."""


class TrainingPart(Record):
    """Consecutive steps."""

    first_step: int
    last_step: int
    mean_tokens: float
    mean_error: float


class TraceResult(Record):
    """The traces of a run."""

    run: str
    settings: TraceSettings
    num_without_verdict: int
    num_truncated: int
    every: TraceComparison
    finished: TraceComparison | None
    """Without completions that ran out of tokens: they are longest and wrong by construction. None when all did."""
    training: tuple[TrainingPart, ...]
    """The run in up to ten parts: length and error of a policy that changes."""


def compare_traces(rollouts: Iterable[Rollout], settings: TraceSettings | None = None, *, run: str = "") -> TraceResult:
    """Compare length and error of recorded completions.

    Args:
        rollouts: as ``oncurve.report.read_rollouts`` yields them.
        settings: how.
        run: name for the page.

    Raises:
        ValueError: no completion has a verdict.
    """
    chosen = settings or TraceSettings()
    seen = list(rollouts)
    rows = [_Row.of(rollout) for rollout in seen if rollout.status is not Status.NO_VERDICT]
    if not rows:
        raise ValueError("no completion of this run has a verdict: there is no error to compare lengths with")
    finished = [row for row in rows if not row.is_truncated]
    return TraceResult(
        run=run,
        settings=chosen,
        num_without_verdict=len(seen) - len(rows),
        num_truncated=len(rows) - len(finished),
        every=_compare(rows, chosen),
        finished=_compare(finished, chosen) if finished else None,
        training=_parts(rows),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    step: int
    group: tuple[int, int]
    task_id: str
    tokens: int
    error: float
    is_truncated: bool

    @classmethod
    def of(cls, rollout: Rollout) -> "_Row":
        return cls(
            step=rollout.step,
            group=(rollout.step, rollout.group),
            task_id=rollout.task_id,
            tokens=len(rollout.token_ids),
            error=0.0 if rollout.status is Status.CORRECT else 1.0,
            is_truncated=rollout.finish_reason is FinishReason.LENGTH,
        )


@dataclass(frozen=True, slots=True)
class _Members:
    """The completions of one group."""

    task_id: str
    tokens: Floats
    error: Floats

    @property
    def is_telling(self) -> bool:
        return bool(np.ptp(self.tokens) > 0 and np.ptp(self.error) > 0)


def _compare(rows: Sequence[_Row], settings: TraceSettings) -> TraceComparison:
    tokens, error = (np.array([getattr(row, name) for row in rows], float) for name in ("tokens", "error"))
    groups = _groups(rows)
    telling = [members for members in groups if members.is_telling]
    return TraceComparison(
        num_completions=len(rows),
        num_groups=len(groups),
        num_telling_groups=len(telling),
        num_tasks=len({row.task_id for row in rows}),
        mean_tokens=float(tokens.mean()),
        mean_error=float(error.mean()),
        bins=_bins([members for members in groups if len(members.tokens) > 1], float(error.mean()), settings),
        within_spearman=_clustered(telling, _rank_terms, settings) if telling else None,
        error_per_doubling=_clustered(telling, _slope_terms, settings) if telling else None,
        pooled_spearman=_correlation(rankdata(tokens), rankdata(error)),
    )


def _groups(rows: Sequence[_Row]) -> list[_Members]:
    found: dict[tuple[int, int], list[_Row]] = defaultdict(list)
    for row in rows:
        found[row.group].append(row)
    return [
        _Members(
            members[0].task_id,
            np.array([row.tokens for row in members], float),
            np.array([row.error for row in members], float),
        )
        for members in found.values()
    ]


Terms = Callable[[_Members], tuple[float, float]]
"""What a group adds to the numerator and to the denominator of a figure."""


def _clustered(groups: Sequence[_Members], terms: Terms, settings: TraceSettings) -> Estimate:
    """Sum of numerators by sum of denominators, with a bootstrap over tasks."""
    by_task: dict[str, Floats] = defaultdict(lambda: np.zeros(2))
    for members in groups:
        by_task[members.task_id] = by_task[members.task_id] + np.array(terms(members))
    sums = np.array(list(by_task.values()))  # [C, 2]
    above, below = sums.sum(0)
    return Estimate(value=float(above / below), interval=_interval(sums, settings))


def _interval(sums: Floats, settings: TraceSettings) -> tuple[float, float] | None:
    if len(sums) < 2:
        return None
    dice = np.random.default_rng(settings.seed)
    weights = dice.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=settings.resamples)  # [R, C]
    above, below = (weights @ sums).T
    drawn = above[below > 0] / below[below > 0]
    low, high = np.quantile(drawn, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(low), float(high)


def _rank_terms(members: _Members) -> tuple[float, float]:
    return _correlation(rankdata(members.tokens), rankdata(members.error)) or 0.0, 1.0


def _slope_terms(members: _Members) -> tuple[float, float]:
    length = np.log2(members.tokens)
    length = length - length.mean()
    return float(length @ members.error), float(length @ length)


def _bins(groups: Sequence[_Members], mean_error: float, settings: TraceSettings) -> tuple[LengthBin, ...]:
    """Cut each group by the rank of length; ties share their mean rank."""
    num = settings.num_bins
    places = [
        np.minimum(((rankdata(members.tokens) - 0.5) / len(members.tokens) * num).astype(int), num - 1)
        for members in groups
    ]
    found = []
    for place in range(num):
        inside = [
            _Members(members.task_id, members.tokens[own == place], members.error[own == place] - members.error.mean())
            for members, own in zip(groups, places, strict=True)
            if (own == place).any()
        ]
        if inside:
            found.append(_bin(inside, mean_error, settings))
    return tuple(found)


def _bin(inside: Sequence[_Members], mean_error: float, settings: TraceSettings) -> LengthBin:
    change = _clustered(inside, lambda members: (float(members.error.sum()), float(len(members.error))), settings)
    moved = None if change.interval is None else (mean_error + change.interval[0], mean_error + change.interval[1])
    tokens = np.concatenate([members.tokens for members in inside])
    return LengthBin(
        num_completions=len(tokens),
        mean_tokens=float(tokens.mean()),
        error=Estimate(value=mean_error + change.value, interval=moved),
    )


def _parts(rows: Sequence[_Row], most: int = 10) -> tuple[TrainingPart, ...]:
    steps = sorted({row.step for row in rows})
    borders = np.linspace(0, len(steps), min(most, len(steps)) + 1).astype(int)
    parts = []
    for start, end in pairwise(borders):
        own = [row for row in rows if steps[start] <= row.step <= steps[end - 1]]
        parts.append(
            TrainingPart(
                first_step=steps[start],
                last_step=steps[end - 1],
                mean_tokens=float(np.mean([row.tokens for row in own])),
                mean_error=float(np.mean([row.error for row in own])),
            )
        )
    return tuple(parts)


def _correlation(first: Floats, second: Floats) -> float | None:
    """Pearson's correlation; None when one of the two does not vary."""
    mine, theirs = first - first.mean(), second - second.mean()
    length = float(np.linalg.norm(mine) * np.linalg.norm(theirs))
    return None if length == 0 else float(mine @ theirs) / length
