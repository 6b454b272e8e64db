"""Several ways of learning on the same task, model, budget and seeds: the finished comparison as data and as text.

Shares are fractions, intervals 95 %. An arm is one way of learning; it has one run for each seed.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from oncurve.report.costs import PHASES, Costs, as_count, as_memory, as_time
from oncurve.report.storage import plain, storage_errors, write_text

_DASH = "–"


@dataclass(frozen=True, kw_only=True, slots=True)
class Paired:
    """Two policies, or the means over the seeds of two arms, on the same held-out tasks."""

    difference: float
    """Mean over the tasks of this one minus the other."""
    p: float
    """Exact two-sided sign-flip test over the tasks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accuracy:
    """Held-out accuracy of an arm at one point of its runs."""

    mean: float
    interval: tuple[float, float]
    """Clustered by task, the seeds pooled: the error of having asked these tasks only, not that of other seeds."""
    seeds: tuple[float, ...]
    """Of each seed's run."""
    against_first: Paired | None
    """Against the first arm at the same point; None for that one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """Greedy accuracy at one examination, over the seeds."""

    tokens: float
    """Completion tokens sampled until then, mean over the seeds."""
    seconds: float
    """Wall seconds of all phases until then, mean over the seeds."""
    mean: float
    low: float
    """Of the worst seed."""
    high: float
    """Of the best seed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmResult:
    """What one arm is, what it cost and how good it became."""

    name: str
    data: str
    """What it learns from."""
    is_online: bool
    baseline: str
    """What a reward is compared with, or the critic that says so."""
    constraint: str
    """The reference, or what holds the policy in its place."""
    trained_parameters: int
    critic_parameters: int
    """0 without a critic."""
    costs: Costs
    """Mean over the seeds, the collection of an offline arm included; memory: the most of any seed."""
    start: float
    """Greedy accuracy of the starting model."""
    greedy: Accuracy
    """At equal tokens: after the whole budget."""
    pass_at_1: Accuracy
    """At equal tokens, sampled."""
    in_time: Accuracy
    """At equal time: greedy, at the last examination within the seconds of the shortest arm of the same seed."""
    curve: tuple[CurvePoint, ...]
    formula: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lead:
    """Which arm is ahead at one point, and whether the tasks tell it from the next one."""

    best: str
    second: str
    paired: Paired
    """The best against the second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmsComparison:
    """The whole comparison."""

    name: str
    tokens: int
    """Budget of each run in sampled completion tokens."""
    seeds: tuple[int, ...]
    num_tasks: int
    """Held-out tasks, the same for all runs."""
    num_samples: int
    """Completions of each for pass@1."""
    shortest_seconds: float
    """Mean over the seeds of the seconds of the shortest arm: the time at which arms are compared at equal time."""
    at_equal_tokens: Lead
    at_equal_time: Lead
    arms: tuple[ArmResult, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as ``comparison.json`` holds it."""
        found: dict[str, Any] = plain(asdict(self), "comparison")
        for arm, one in zip(found["arms"], self.arms, strict=True):
            arm["costs"] = plain(one.costs.as_dict(), "costs")
        return found


READING = (
    "Brackets: 95 % intervals, clustered by task, the seeds pooled. In parentheses: exact sign-flip test on the means "
    "over the seeds, task by task. Both say what other tasks would change, not what other seeds would; the seeds "
    "stand beside them. No p is corrected for the number of arms. Seconds and tokens are means over the seeds, those "
    "of an offline arm with the sampling of its data; loading and examinations are not among them. Peak memory is "
    "that of the process, examinations included."
)
"""How to read the figures."""


def lead_sentences(comparison: ArmsComparison) -> tuple[str, str]:
    """Which arm won at equal tokens and which at equal time, and how sure that is."""
    tokens = f"At equal tokens ({comparison.tokens:,} sampled)"
    seconds = f"At equal time ({as_time(comparison.shortest_seconds)} of training)"
    return (
        _lead_sentence(tokens, comparison, comparison.at_equal_tokens, lambda arm: arm.greedy),
        _lead_sentence(seconds, comparison, comparison.at_equal_time, lambda arm: arm.in_time),
    )


def arm_rows(comparison: ArmsComparison) -> list[tuple[str, list[str]]]:
    """The figures as text: one row a measure, one cell an arm. Measures that no arm has are left out."""
    arms = comparison.arms
    measures: list[tuple[str, Callable[[ArmResult], str]]] = [
        ("greedy, equal tokens", lambda arm: _accuracy(arm.greedy)),
        ("  each seed", lambda arm: _seeds(arm.greedy)),
        (f"  against {arms[0].name}", lambda arm: _paired(arm.greedy.against_first)),
        ("pass@1, equal tokens", lambda arm: _accuracy(arm.pass_at_1)),
        (f"  against {arms[0].name}", lambda arm: _paired(arm.pass_at_1.against_first)),
        (f"greedy, equal time ({as_time(comparison.shortest_seconds)})", lambda arm: _accuracy(arm.in_time)),
        ("  each seed", lambda arm: _seeds(arm.in_time)),
        (f"  against {arms[0].name}", lambda arm: _paired(arm.in_time.against_first)),
        ("greedy before training", lambda arm: _percent(arm.start)),
        ("learns from", lambda arm: arm.data),
        ("online", lambda arm: "yes" if arm.is_online else "no"),
        ("baseline or critic", lambda arm: arm.baseline),
        ("held by", lambda arm: arm.constraint),
        ("trained parameters", lambda arm: f"{arm.trained_parameters:,}"),
        ("  of the critic, besides", lambda arm: f"{arm.critic_parameters:,}" if arm.critic_parameters else _DASH),
        ("peak memory", lambda arm: as_memory(arm.costs.peak_bytes) or _DASH),
        ("tokens sampled", lambda arm: f"{arm.costs.rollout_tokens:,}"),
        ("tokens trained", lambda arm: f"{arm.costs.trained_tokens:,}"),
        ("seconds", lambda arm: as_time(arm.costs.total)),
        *((f"  {phase}", _phase_cell(phase)) for phase in phases_of(comparison)),
        ("seconds per step", lambda arm: as_time(_per(arm.costs.total, arm.costs.steps))),
        ("seconds per right completion", lambda arm: as_time(_per(arm.costs.total, arm.costs.correct))),
        ("seconds per held-out task won", lambda arm: as_time(arm.costs.seconds_per_gained)),
        ("tokens sampled per right completion", lambda arm: as_count(arm.costs.tokens_per_correct) or _DASH),
    ]
    rows = [(label, [cell(arm) for arm in arms]) for label, cell in measures]
    return [(label, cells) for label, cells in rows if set(cells) != {_DASH}]


def arms_table(comparison: ArmsComparison) -> Table:
    """The figures for a terminal."""
    table = Table(title=comparison_title(comparison), title_justify="left", title_style="bold", show_lines=False)
    table.add_column("")
    for arm in comparison.arms:
        table.add_column(escape(arm.name), justify="right", overflow="fold")
    for label, cells in arm_rows(comparison):
        table.add_row(escape(label), *map(escape, cells))
    return table


def arms_markdown(comparison: ArmsComparison) -> str:
    """The comparison as a Markdown page: who won, the table, how to read it, the formulas."""
    head = ["", *(arm.name for arm in comparison.arms)]
    rows = [
        [label.strip() if not label.startswith(" ") else f"· {label.strip()}", *cells]
        for label, cells in arm_rows(comparison)
    ]
    table = [_markdown_row(head), _markdown_row(["---"] * len(head)), *map(_markdown_row, rows)]
    formulas = [f"## {arm.name}\n\n```\n{arm.formula.rstrip()}\n```" for arm in comparison.arms]
    leads = "\n".join(f"- {sentence}" for sentence in lead_sentences(comparison))
    title = f"# {comparison.name}\n\n{comparison_title(comparison)}"
    return "\n\n".join([title, leads, "\n".join(table), READING, *formulas]) + "\n"


def write_arms(comparison: ArmsComparison, folder: Path) -> None:
    """Write ``comparison.json`` and ``comparison.md`` into a folder, which is made if needed. Raises StorageError."""
    with storage_errors(folder, "create"):
        folder.mkdir(parents=True, exist_ok=True)
    document = json.dumps(comparison.as_dict(), ensure_ascii=False, allow_nan=False, indent=2)
    write_text(folder / "comparison.json", f"{document}\n")
    write_text(folder / "comparison.md", arms_markdown(comparison))


def _lead_sentence(
    where: str, comparison: ArmsComparison, lead: Lead, accuracy: Callable[[ArmResult], Accuracy]
) -> str:
    found = {arm.name: accuracy(arm).mean for arm in comparison.arms}
    difference, p = lead.paired.difference, lead.paired.p
    if difference == 0:
        return f"{where}: {lead.best} and {lead.second} share the lead with {_percent(found[lead.best])}."
    sure = (
        f"p {p:.2g}: other tasks would hardly turn that"
        if p < 0.05
        else f"p {p:.2g}: these tasks do not tell the two apart"
    )
    verb = "won" if p < 0.05 else "is ahead"
    return (
        f"{where}: {lead.best} {verb} with {_percent(found[lead.best])}, {_points(difference)} points on "
        f"{lead.second} with {_percent(found[lead.second])} ({sure})."
    )


def comparison_title(comparison: ArmsComparison) -> str:
    """How many arms, seeds, tokens and tasks."""
    seeds = "1 seed" if len(comparison.seeds) == 1 else f"{len(comparison.seeds)} seeds"
    return (
        f"{len(comparison.arms)} arms, {seeds} each, {comparison.tokens:,} sampled tokens a run, "
        f"{comparison.num_tasks} held-out tasks"
    )


def phases_of(comparison: ArmsComparison) -> list[str]:
    """The phases that any arm has, in the order of a step."""
    found = dict.fromkeys(phase for arm in comparison.arms for phase in arm.costs.seconds)
    return [*(phase for phase in PHASES if phase in found), *(phase for phase in found if phase not in PHASES)]


def _phase_cell(phase: str) -> Callable[[ArmResult], str]:
    return lambda arm: as_time(arm.costs.seconds.get(phase))


def _per(value: float, count: int | None) -> float | None:
    return value / count if count else None


def _accuracy(accuracy: Accuracy) -> str:
    low, high = accuracy.interval
    return f"{_percent(accuracy.mean)} [{100 * low:.1f}, {100 * high:.1f}]"


def _seeds(accuracy: Accuracy) -> str:
    return " ".join(f"{100 * seed:.1f}" for seed in accuracy.seeds)


def _paired(paired: Paired | None) -> str:
    return _DASH if paired is None else f"{_points(paired.difference)} (p {paired.p:.2g})"


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f}".replace("-", "−")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
