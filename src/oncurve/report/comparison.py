"""Several objectives on the same stored rollout: the finished comparison as data, as a table, and as a page.

Shares are fractions, intervals 95 %, losses and gradients those of one optimiser step on all the groups.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich.markup import escape
from rich.table import Table

from oncurve.report.storage import plain, storage_errors, write_text

_DASH = "–"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

REASONS = {
    "equal_group": "equal group",
    "no_verdict": "no verdict",
    "truncated": "truncated, masked",
    "not_selected": "not selected",
    "clipped": "clipped",
    "correction": "correction weight 0",
    "divergence": "beyond max_divergence",
    "filter": "token filter",
    "no_advantage": "advantage exactly 0",
    "other": "other",
}
"""What takes a token's policy gradient away, by its name in the data."""

AFTERWARDS = (
    "The policy gradient of a token is zero where the policy term of the loss does not depend on its log-prob; a KL or "
    "an entropy term may still act on it. Losses of different objectives are in different units: compare gradients. "
    "After one step: AdamW with fresh moments for every objective, so the first step moves each weight by about the "
    "learning rate whatever the length of the gradient, and objectives differ by direction only. p: exact sign test "
    "on the tasks that differ."
)
"""How to read the figures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """The same held-out tasks answered by two policies."""

    difference: float
    """Greedy accuracy of this one minus that of the other."""
    p: float
    """Exact two-sided sign test on the tasks that differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEffect:
    """Held-out greedy accuracy after one optimiser step."""

    greedy: float
    interval: tuple[float, float]
    change: Change
    """Against the weights before the step."""
    against_first: Change | None
    """Against the first objective of the comparison; None for that one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectiveReading:
    """What one objective makes of the rollout."""

    name: str
    formula: str
    gradient: str
    """What its gradient is, in sentences."""
    loss: float
    policy: float
    """The policy term of the loss."""
    kl: float | None
    """The KL term before its coefficient; None without one in the loss."""
    grad_norm: float
    """Before clipping."""
    num_groups: int
    """Groups in the step and its denominators."""
    shares: Mapping[str, float]
    """Of all sampled tokens: ``nonzero`` and the names of ``REASONS``; the sum is 1."""
    effect: StepEffect | None
    """None when no tasks were asked."""
    notes: tuple[str, ...] = ()
    """What is to be known of this one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Before:
    """The weights that all objectives start from, on the held-out tasks."""

    num_tasks: int
    greedy: float
    interval: tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenComparison:
    """Several objectives on the rollout of one step, from the weights that sampled it."""

    run: str
    step: int
    weights: str
    """Where the weights come from."""
    num_groups: int
    num_set_aside: int
    """Groups of the step that the run's resampling left out; no objective sees them."""
    num_completions: int
    num_tokens: int
    gap: float | None
    """Mean |recorded - recomputed| log-prob in nats a token: rounding, when weights and rollout belong together."""
    lr: float
    """Of the one step."""
    before: Before | None
    objectives: tuple[ObjectiveReading, ...]
    cosines: tuple[tuple[float | None, ...], ...]
    """Between the gradients of each two objectives; None where one is 0."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as ``comparison.json`` holds it."""
        found: dict[str, Any] = plain(asdict(self), "comparison")
        return found


def comparison_tables(comparison: FrozenComparison) -> list[Table]:
    """The figures for a terminal: one column an objective, then the cosines."""
    figures = Table(title=_title(comparison), title_justify="left", title_style="bold")
    figures.add_column("")
    for name in _names(comparison):
        figures.add_column(name, justify="right", overflow="fold")
    for label, cells in figure_rows(comparison):
        figures.add_row(label, *cells)
    cosines = Table(title="cosine between gradients", title_justify="left", title_style="bold")
    for heading in ("", *_names(comparison)):
        cosines.add_column(heading, justify="right" if heading else "left", overflow="fold")
    for name, row in zip(_names(comparison), comparison.cosines, strict=True):
        cosines.add_row(name, *map(_cosine, row))
    return [figures, cosines]


def comparison_text(comparison: FrozenComparison) -> str:
    """What stands below the tables: notes, how to read them, and each formula with its gradient."""
    notes = [f"{one.name}: {note}" for one in comparison.objectives for note in one.notes]
    formulas = [f"=== {one.name}\n{one.formula}\n\ngradient\n{one.gradient}" for one in comparison.objectives]
    return "\n\n".join([*notes, AFTERWARDS, *formulas])


def figure_rows(comparison: FrozenComparison) -> list[tuple[str, list[str]]]:
    """The figures as text, one row a measure and one cell an objective. Reasons that take nothing are left out."""
    objectives = comparison.objectives
    rows = [
        ("loss", [_number(one.loss) for one in objectives]),
        ("  KL term", [_number(one.kl) for one in objectives]),
        ("gradient norm", [_number(one.grad_norm) for one in objectives]),
        ("groups in the step", [str(one.num_groups) for one in objectives]),
        ("tokens with a policy gradient", [_share(one.shares["nonzero"]) for one in objectives]),
        *((f"  zero: {label}", _shares(objectives, reason)) for reason, label in REASONS.items()),
    ]
    shown = [(label, cells) for label, cells in rows if set(cells) - {_DASH}]
    return shown + _effect_rows(comparison)


def render_comparison(comparison: FrozenComparison, folder: Path) -> Path:
    """Write ``comparison.html``, which opens from disk without a network, and ``comparison.json`` into a folder.

    Args:
        comparison: finished.
        folder: made if needed; files of these names in it are replaced.

    Returns:
        The page.

    Raises:
        StorageError: the disk refused.
    """
    with storage_errors(folder, "create"):
        folder.mkdir(parents=True, exist_ok=True)
    document = json.dumps(comparison.as_dict(), ensure_ascii=False, allow_nan=False, indent=2)
    write_text(folder / "comparison.json", f"{document}\n")
    page = folder / "comparison.html"
    write_text(page, _environment().get_template("comparison.html.j2").render(_context(comparison)))
    return page


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("oncurve.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"cosine": _cosine, "percent": partial(_percent, digits=2)}
    return environment


def _context(comparison: FrozenComparison) -> dict[str, Any]:
    style = (Path(__file__).parent / "templates" / "report.css").read_text(encoding="utf-8")
    return {
        "comparison": comparison,
        "title": _title(comparison),
        "rows": figure_rows(comparison),
        "reasons": REASONS,
        "afterwards": AFTERWARDS,
        "policy": _POLICY,
        "style": Markup(style),  # noqa: S704 - our own file
    }


def _title(comparison: FrozenComparison) -> str:
    aside = f" ({comparison.num_set_aside} more were set aside)" if comparison.num_set_aside else ""
    gap = "" if comparison.gap is None else f"; log-prob gap {comparison.gap:.1e}"
    return (
        f"{comparison.run}, step {comparison.step}: {comparison.num_groups} groups{aside}, "
        f"{comparison.num_completions} completions, {comparison.num_tokens} tokens\n"
        f"weights: {comparison.weights}{gap}"
    )


def _names(comparison: FrozenComparison) -> list[str]:
    return [escape(one.name) for one in comparison.objectives]


def _shares(objectives: Sequence[ObjectiveReading], reason: str) -> list[str]:
    """A row of shares; all dashes where the reason takes nothing from any of them."""
    shares = [one.shares[reason] for one in objectives]
    return [_share(share) for share in shares] if any(shares) else [_DASH for _ in shares]


def _effect_rows(comparison: FrozenComparison) -> list[tuple[str, list[str]]]:
    before = comparison.before
    effects = [one.effect for one in comparison.objectives]
    if before is None or None in effects:
        return []
    known = [effect for effect in effects if effect is not None]
    low, high = before.interval
    return [
        (
            f"greedy after one step, lr {comparison.lr:.2g}, {before.num_tasks} tasks",
            [f"{_share(effect.greedy)} {_interval(effect.interval)}" for effect in known],
        ),
        (f"  change, before {_share(before.greedy)} {_interval((low, high))}", [_change(one.change) for one in known]),
        (f"  against {comparison.objectives[0].name}", [_change(effect.against_first) for effect in known]),
    ]


def _change(change: Change | None) -> str:
    if change is None:
        return _DASH
    points = f"{100 * change.difference:+.1f}".replace("-", "−")
    return f"{points} (p {change.p:.2g})"


def _interval(interval: tuple[float, float]) -> str:
    return f"[{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"


def _share(value: float) -> str:
    return f"{_percent(value, digits=1)} %"


def _percent(value: float, *, digits: int) -> str:
    """A share in percent; what is not 0 never reads as 0, and what is not all never as 100."""
    shown = f"{100 * value:.{digits}f}"
    least = 10**-digits
    if value > 0 and float(shown) == 0:
        return f"<{least:g}"
    return f">{100 - least:g}" if value < 1 and float(shown) == 100 else shown


def _number(value: float | None) -> str:
    return _DASH if value is None else f"{value:.4g}".replace("-", "−")


def _cosine(value: float | None) -> str:
    return _DASH if value is None else f"{value:.4f}".replace("-", "−")
