"""What a sweep found: its cells, the baselines of each class, and figures over the seeds.

K points a prompt.
"""

import statistics
from collections.abc import Sequence

from oncurve.icl.records import Record
from oncurve.icl.sweep.grid import SweepSettings


class Cell(Record):
    """One trained network."""

    label: str
    """Of the class."""
    network: str
    """Of the size, as ``size_name`` gives it."""
    num_weights: int
    """Trained ones."""
    seed: int
    steps: int
    errors: tuple[float, ...]
    """[K] E(n) on held-out prompts."""
    cpu_seconds: float | None
    """None when it was trained in several sittings."""


class BaselineCurve(Record):
    """One baseline on the held-out prompts of one class and the first seed."""

    label: str
    name: str
    is_strong: bool
    """Made for this class."""
    errors: tuple[float | None, ...]
    """[K] E(n); None where it was not fitted."""


class Spread(Record):
    """A figure over the seeds."""

    median: float
    low: float
    high: float
    num_seeds: int


class SweepResult(Record):
    """The cells that are finished, and the baselines."""

    settings: SweepSettings
    cells: tuple[Cell, ...]
    baselines: tuple[BaselineCurve, ...]

    @property
    def num_missing(self) -> int:
        """Cells that are still to be made."""
        chosen = self.settings
        return len(chosen.classes) * len(chosen.networks) * len(chosen.seeds) - len(self.cells)

    def is_whole(self, label: str) -> bool:
        """Whether every cell of a class is finished."""
        wanted = len(self.settings.networks) * len(self.settings.seeds)
        return sum(cell.label == label for cell in self.cells) == wanted

    def of(self, label: str, network: str) -> list[Cell]:
        """The finished cells of a class and a size."""
        return [cell for cell in self.cells if cell.label == label and cell.network == network]

    def spread(self, label: str, network: str, counts: Sequence[int]) -> Spread | None:
        """Median, least and greatest over seeds of the mean error at some numbers of examples; None without cells."""
        means = [statistics.fmean(cell.errors[n] for n in counts) for cell in self.of(label, network)]
        if not means:
            return None
        return Spread(median=statistics.median(means), low=min(means), high=max(means), num_seeds=len(means))
