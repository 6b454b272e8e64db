"""What a run cost, phase by phase: in all, a step, and for each right answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PHASES = {
    "rollout": "--blue",
    "verify": "--green",
    "reference": "--purple",
    "critic": "--orange",
    "update": "--teal",
}
"""The phases of a step in the order of a step, each with its colour."""
OTHER_COLOUR = "--grey"
WHOLE_STEP = ("seconds/step", "seconds/total")
"""Metrics that span all phases of a step; they are no phase themselves."""
BESIDE = ("seconds/verify_busy",)
"""Metrics of what goes on at the same time as a phase."""
BETWEEN = ("seconds/record", "seconds/evaluation", "seconds/checkpoint")
"""Metrics of what a run does between the phases of its steps; the costs of learning leave them out."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Wall seconds and tokens of the recorded steps. Loading, examinations and checkpoints are not among them."""

    steps: int
    seconds: Mapping[str, float]
    """By phase, in the order of a step; one that was never measured is not there."""
    rollout_tokens: int
    """Completion tokens sampled to learn from."""
    trained_tokens: int
    """Completion tokens that went through the optimiser steps of the policy."""
    correct: int | None
    """Right ones among the sampled completions; None where nothing was sampled or that was not recorded."""
    held_out_correct: int | None = None
    """Held-out tasks that the latest examination found right, asked greedily."""
    held_out_gained: int | None = None
    """That many more than before the first step; may be negative."""
    peak_bytes: int | None = None
    """Most memory the process held, examinations included."""

    @property
    def total(self) -> float:
        """Seconds of all phases."""
        return sum(self.seconds.values())

    @property
    def tokens_per_correct(self) -> float | None:
        """Tokens sampled for each right completion among them."""
        return self.rollout_tokens / self.correct if self.correct else None

    @property
    def seconds_per_gained(self) -> float | None:
        """Seconds for each held-out task that was won; None when there are none."""
        gained = self.held_out_gained
        return self.total / gained if gained is not None and gained > 0 else None

    def rows(self) -> list["PhaseCost"]:
        """One row a phase, and the total last."""
        total = self.total
        parts = [self._row(name, spent, spent / total if total else 0.0) for name, spent in self.seconds.items()]
        return [*parts, self._row("total", total, 1.0)] if parts else []

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "steps": self.steps,
            "seconds": self.total,
            "phases": {
                row.phase: {
                    "seconds": row.seconds,
                    "share": row.share,
                    "per_step": row.per_step,
                    "per_correct": row.per_correct,
                    "per_held_out_correct": row.per_held_out_correct,
                }
                for row in self.rows()
                if row.phase in self.seconds
            },
            "rollout_tokens": self.rollout_tokens,
            "trained_tokens": self.trained_tokens,
            "correct": self.correct,
            "tokens_per_correct": self.tokens_per_correct,
            "held_out_correct": self.held_out_correct,
            "held_out_gained": self.held_out_gained,
            "seconds_per_gained": self.seconds_per_gained,
            "peak_bytes": self.peak_bytes,
        }

    def _row(self, phase: str, seconds: float, share: float) -> "PhaseCost":
        return PhaseCost(
            phase=phase,
            seconds=seconds,
            share=share,
            per_step=seconds / self.steps if self.steps else None,
            per_correct=seconds / self.correct if self.correct else None,
            per_held_out_correct=seconds / self.held_out_correct if self.held_out_correct else None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseCost:
    """One row of the account, in seconds; None where there is nothing to divide by."""

    phase: str
    seconds: float
    share: float
    """Of all seconds."""
    per_step: float | None
    per_correct: float | None
    """For each right completion among those sampled to learn from."""
    per_held_out_correct: float | None
    """For each held-out task that the latest examination found right."""


def costs_of(
    metrics: Rows,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    *,
    samples: bool = True,
) -> Costs:
    """Account for the recorded steps of a run.

    Args:
        metrics: its rows.
        before: the evaluation from before the first step.
        after: the latest one from after it.
        samples: False for a run on given completions, whose tokens were not sampled by it.
    """
    tokens = _sum(metrics, "tokens/completion")
    is_counted = samples and any("completions/correct" in row for row in metrics)
    start, end = _num_correct(before), _num_correct(after)
    return Costs(
        steps=len(metrics),
        seconds=_in_order(seconds_by_phase(metrics)),
        rollout_tokens=round(tokens) if samples else 0,
        trained_tokens=round(_sum(metrics, "tokens/trained") if samples else tokens),
        correct=round(_sum(metrics, "completions/correct")) if is_counted else None,
        held_out_correct=end if end is not None else start,
        held_out_gained=None if start is None or end is None else end - start,
        peak_bytes=_most(row.get("memory/peak_bytes") for row in metrics),
    )


def with_collection(collection: Costs, own: Costs) -> Costs:
    """The costs of learning from completions that another process sampled before: both together.

    Steps are those of the learning; memory is the larger of the two, which do not run at the same time.
    """
    names = [*collection.seconds, *own.seconds]
    return Costs(
        steps=own.steps,
        seconds=_in_order({name: collection.seconds.get(name, 0.0) + own.seconds.get(name, 0.0) for name in names}),
        rollout_tokens=collection.rollout_tokens + own.rollout_tokens,
        trained_tokens=collection.trained_tokens + own.trained_tokens,
        correct=collection.correct,
        held_out_correct=own.held_out_correct,
        held_out_gained=own.held_out_gained,
        peak_bytes=_most((collection.peak_bytes, own.peak_bytes)),
    )


def seconds_by_phase(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the wall seconds of the run by phase: the sums of the metrics ``seconds/<phase>``."""
    return {name.removeprefix("seconds/"): _sum(metrics, name) for name in phase_names(metrics)}


def phase_names(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the metrics ``seconds/<phase>``, in the order in which they were first recorded.

    Those named ``seconds/<phase>/<part>`` lie within a phase, those of ``BESIDE`` and ``BETWEEN`` outside of them all.
    """
    names = dict.fromkeys(name for row in metrics for name in row if name.startswith("seconds/"))
    return [name for name in names if name not in (*WHOLE_STEP, *BESIDE, *BETWEEN) and name.count("/") == 1]


def mean_costs(runs: Sequence[Costs]) -> Costs:
    """The mean over runs of the same kind, counts rounded; a figure that one of them lacks is None. Memory: the most.

    Args:
        runs: at least one.
    """
    names = _in_order({name: 0.0 for run in runs for name in run.seconds})
    return Costs(
        steps=_mean([run.steps for run in runs]) or 0,
        seconds={name: sum(run.seconds.get(name, 0.0) for run in runs) / len(runs) for name in names},
        rollout_tokens=_mean([run.rollout_tokens for run in runs]) or 0,
        trained_tokens=_mean([run.trained_tokens for run in runs]) or 0,
        correct=_mean([run.correct for run in runs]),
        held_out_correct=_mean([run.held_out_correct for run in runs]),
        held_out_gained=_mean([run.held_out_gained for run in runs]),
        peak_bytes=_most(run.peak_bytes for run in runs),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """One phase in a stacked bar."""

    colour: str
    percent: float
    """Of the width of the whole drawing."""
    title: str


def cost_headings() -> tuple[str, ...]:
    """What the cells of ``cost_cells`` are."""
    return ("seconds", "share", "per step", "per right completion", "per right held-out task")


def cost_cells(costs: Costs) -> list[tuple[str, list[str]]]:
    """The account as text, one row a phase; what has no value is a dash."""
    return [
        (
            row.phase,
            [
                as_time(row.seconds),
                f"{100 * row.share:.1f} %",
                as_time(row.per_step),
                as_time(row.per_correct),
                as_time(row.per_held_out_correct),
            ],
        )
        for row in costs.rows()
    ]


def cost_segments(costs: Costs, longest: float | None = None) -> list[Segment]:
    """A stacked bar of the phases.

    Args:
        costs: of one run, or the mean over several.
        longest: seconds of the longest bar in the same drawing; None fills the width.
    """
    whole = longest or costs.total
    return [
        Segment(colour=colour_of(name), percent=round(100 * spent / whole, 3), title=f"{name} {as_time(spent)}")
        for name, spent in costs.seconds.items()
        if whole > 0
    ]


def cost_facts(costs: Costs) -> list[tuple[str, str]]:
    """What stands beside the account: tokens, memory and the price of a right answer. Only what is known."""
    facts = {
        "tokens sampled": f"{costs.rollout_tokens:,}",
        "tokens trained": f"{costs.trained_tokens:,}",
        "tokens sampled per right completion": as_count(costs.tokens_per_correct),
        "held-out tasks won": None if costs.held_out_gained is None else f"{costs.held_out_gained:+d}",
        "seconds per held-out task won": as_count(costs.seconds_per_gained),
        "peak memory": as_memory(costs.peak_bytes),
    }
    return [(label, text) for label, text in facts.items() if text is not None]


def as_time(seconds: float | None) -> str:
    """Seconds to three digits, small ones as milliseconds; a dash for None."""
    if seconds is None:
        return "–"
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    return f"{seconds:.3g} s" if seconds >= 1 or seconds == 0 else f"{1000 * seconds:.3g} ms"


def as_count(value: float | None) -> str | None:
    """A mean number to three digits."""
    if value is None:
        return None
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def as_memory(size: int | None) -> str | None:
    """Bytes as MiB or GiB."""
    if size is None:
        return None
    return f"{size / 1024**3:.2f} GiB" if size >= 1024**3 else f"{size / 1024**2:.0f} MiB"


def colour_of(phase: str) -> str:
    """The colour of a phase, as the name of a CSS variable."""
    return PHASES.get(phase, OTHER_COLOUR)


def _in_order(seconds: Mapping[str, float]) -> dict[str, float]:
    known = [name for name in PHASES if name in seconds]
    return {name: seconds[name] for name in (*known, *(name for name in seconds if name not in PHASES))}


def _num_correct(evaluation: Mapping[str, Any] | None) -> int | None:
    found = evaluation or {}
    greedy, count = found.get("greedy"), found.get("num_tasks")
    return None if greedy is None or count is None else round(greedy * count)


def _sum(metrics: Rows, name: str) -> float:
    return sum(row.get(name) or 0.0 for row in metrics)


def _mean(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return round(sum(known) / len(known)) if len(known) == len(counts) else None


def _most(sizes: Iterable[float | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return round(max(known)) if known else None
