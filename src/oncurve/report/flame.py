"""Where the seconds of a step went: a block for the step, its phases in it, their parts in those.

Blocks are as wide as their seconds are long, the longest first; what of a block is not covered by its parts was not
timed any finer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from oncurve.report.costs import BETWEEN, as_time, colour_of, phase_names

STEP = "step"
_NOTHING: Mapping[str, float] = MappingProxyType({})
_BESIDE_COLOUR = "--orange"
_DEPTH_SUFFIX = ("", "", "-fill")
"""Phases stand in their colour, parts in a lighter shade of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Some seconds of a step, within those of its parent."""

    name: str
    """``step``, a phase, or ``phase/part``."""
    parent: str
    seconds: float
    """Of wall time, the mean over the recorded steps."""
    colour: str

    @property
    def label(self) -> str:
        """The last part of the name."""
        return self.name.rpartition("/")[2]

    @property
    def depth(self) -> int:
        """0 for the step, 1 for a phase, 2 for a part."""
        return 0 if not self.parent else 1 + self.name.count("/")


@dataclass(frozen=True, kw_only=True, slots=True)
class Flame:
    """The blocks of a mean step, the step itself first."""

    blocks: tuple[Block, ...]
    num_steps: int
    hidden_verify: float
    """Seconds of verification that went on while sampling did, and are in no block."""

    def sentences(self) -> list[str]:
        """The same for who cannot see the drawing: one line a phase, its parts behind it, the longest first."""
        phases = [block for block in self.blocks if block.parent == STEP]
        return [_sentence(phase, self) for phase in sorted(phases, key=lambda block: -block.seconds)]

    def figure(self) -> dict[str, Any]:
        """Plotly's ``data`` and ``layout`` of an icicle chart."""
        trace = {
            "type": "icicle",
            "ids": [block.name for block in self.blocks],
            "labels": [block.label for block in self.blocks],
            "parents": [block.parent for block in self.blocks],
            "values": self._widths(),
            "customdata": [as_time(block.seconds) for block in self.blocks],
            "branchvalues": "total",
            "tiling": {"orientation": "v", "pad": 1},
            "pathbar": {"visible": False},
            "marker": {
                "colors": [block.colour + _DEPTH_SUFFIX[block.depth] for block in self.blocks],
                "line": {"width": 1, "color": "--paper"},
            },
            "leaf": {"opacity": 1},
            "root": {"color": "--rule"},
            "textinfo": "label+percent root",
            "textfont": {"color": "--ink"},
            "hovertemplate": "%{id}: %{customdata} a step, %{percentRoot:.1%}<extra></extra>",
        }
        return {"data": [trace], "layout": {"height": 200, "hovermode": "closest", "dragmode": False}}

    def _widths(self) -> list[int]:
        """Whole microseconds, no block shorter than what lies in it: plotly draws nothing where that is not exact."""
        widths: dict[str, int] = {}
        for block in reversed(self.blocks):  # parts come after what they are a part of
            inside = sum(widths[part.name] for part in self.blocks if part.parent == block.name)
            widths[block.name] = max(round(1e6 * block.seconds), inside)
        return [widths[block.name] for block in self.blocks]


def flame(metrics: Sequence[Mapping[str, Any]], after: Mapping[str, float] = _NOTHING) -> Flame | None:
    """The mean step of a run; None when no seconds were recorded.

    Examinations and checkpoints are spread over all steps. A phase is at least as long as its parts together.

    Args:
        metrics: the rows of the run.
        after: seconds of the metrics ``BETWEEN`` that were spent after the last row: of the last examination and
            checkpoint.
    """
    num_steps = len(metrics)
    metrics = [*metrics, after] if metrics else metrics
    names = [*phase_names(metrics), *(name for name in BETWEEN if any(row.get(name) for row in metrics))]
    every = [*names, *_part_names(metrics, names)]
    means = {name.removeprefix("seconds/"): _mean(metrics, name, num_steps) for name in every}
    parts = {name: seconds for name, seconds in means.items() if "/" in name and seconds > 0}
    phases = {}
    for name in (found for found in means if "/" not in found):
        seconds = max(means[name], sum(spent for part, spent in parts.items() if part.startswith(f"{name}/")))
        if seconds > 0:
            phases[name] = seconds
    if not phases:
        return None
    blocks = [Block(name=STEP, parent="", seconds=sum(phases.values()), colour="--rule")]
    for phase, seconds in phases.items():
        colour = _BESIDE_COLOUR if f"seconds/{phase}" in BETWEEN else colour_of(phase)
        blocks.append(Block(name=phase, parent=STEP, seconds=seconds, colour=colour))
        blocks += [
            Block(name=part, parent=phase, seconds=spent, colour=colour)
            for part, spent in parts.items()
            if part.startswith(f"{phase}/")
        ]
    hidden = max(0.0, _mean(metrics, "seconds/verify_busy", num_steps) - means.get("verify", 0.0))
    return Flame(blocks=tuple(blocks), num_steps=num_steps, hidden_verify=hidden)


def _part_names(metrics: Sequence[Mapping[str, Any]], phases: Sequence[str]) -> list[str]:
    names = dict.fromkeys(name for row in metrics for name in row if name.count("/") == 2)
    return [name for name in names if name.rpartition("/")[0] in phases]


def _sentence(phase: Block, whole: Flame) -> str:
    share = 100 * phase.seconds / whole.blocks[0].seconds
    parts = sorted((block for block in whole.blocks if block.parent == phase.name), key=lambda block: -block.seconds)
    listed = ", ".join(f"{part.label} {as_time(part.seconds)}" for part in parts)
    return f"{phase.label} {as_time(phase.seconds)}, {share:.1f} %{f' ({listed})' if listed else ''}"


def _mean(metrics: Sequence[Mapping[str, Any]], name: str, num_steps: int) -> float:
    return sum(row.get(name) or 0.0 for row in metrics) / max(1, num_steps)
