"""Sizes of networks against classes of functions: does a larger one learn more, and does it beat what was made for it?

Every cell of the grid (class, network, seed) is a run of the laboratory in a folder of its own; a cell that is finished
is not made again, and one that was interrupted continues from its checkpoint. All cells take the same number of steps
on prompts of the same length, so a larger network gets more computation, not more data.

Source: Garg et al., arXiv:2208.01066, sections 5 and 6.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import torch
from pydantic import Field, model_validator

from oncurve.icl.baselines import Baseline, quick_baselines_for, strong_baselines_for
from oncurve.icl.evaluate import held_out, predictions, squared_errors
from oncurve.icl.functions import FunctionSettings, Prompts, normaliser
from oncurve.icl.network import NetworkSettings
from oncurve.icl.records import Record
from oncurve.icl.run import read_settings
from oncurve.icl.settings import LabSettings, OptimizerSettings
from oncurve.icl.training import Training, train
from oncurve.report.storage import storage_errors
from oncurve.types import RunError, Settings

SWEEP_FILE = "sweep.json"
_CELL_FILE = "cell.json"


class SweepClass(Settings):
    """A class of functions and the length of its prompts."""

    functions: FunctionSettings
    num_points: int = Field(ge=2)
    """K, points a prompt."""
    note: str = ""
    """What the page says of it."""

    @property
    def label(self) -> str:
        """Its name, also that of its folders."""
        one = self.functions
        size = {"sparse": f"s{one.sparsity}", "tree": f"depth{one.tree_depth}", "relu": f"width{one.hidden_width}"}
        return "-".join(filter(None, (one.kind, size.get(one.kind, ""), f"d{one.dimension}", f"k{self.num_points}")))


REDUCED = (
    SweepClass(
        functions=FunctionSettings(kind="sparse", dimension=8, sparsity=2),
        num_points=17,
        note="reduced: the paper has d = 20, s = 3 and prompts of 41 points",
    ),
    SweepClass(
        functions=FunctionSettings(kind="tree", dimension=5, tree_depth=2),
        num_points=25,
        note="reduced: the paper has d = 20, depth 4 and prompts of 101 points",
    ),
    SweepClass(
        functions=FunctionSettings(kind="relu", dimension=5, hidden_width=20),
        num_points=25,
        note="reduced: the paper has d = 20, 100 hidden units and prompts of 101 points",
    ),
)
"""Classes that a CPU learns in minutes."""

SIZES = (
    NetworkSettings(layers=2, width=32, heads=2),
    NetworkSettings(layers=3, width=64, heads=4),
    NetworkSettings(layers=4, width=96, heads=4),
)
"""About 25 thousand, 150 thousand and 450 thousand weights."""


class SweepSettings(Settings):
    """The grid, and how much each cell learns."""

    classes: tuple[SweepClass, ...] = REDUCED
    networks: tuple[NetworkSettings, ...] = SIZES
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of starting weights and prompts; the whole grid is made for the first before the second begins."""

    steps: int = Field(2000, ge=1)
    """Optimiser steps of every cell."""

    batch_size: int = Field(32, ge=1)
    """Prompts a step."""

    lr: float = Field(2e-3, gt=0)
    """Peak learning rate of AdamW."""

    eval_prompts: int = Field(1280, ge=2)
    """Held-out prompts behind the error of a cell and of the quick baselines."""

    baseline_prompts: int = Field(128, ge=2)
    """The first of them, on which the slow baselines are fitted one by one."""

    num_counts: int = Field(5, ge=1)
    """Numbers of examples at which the slow baselines are fitted, evenly spread up to the end of a prompt."""

    network_steps: int = Field(5000, ge=1)
    """Steps of Adam of the two-layer networks that are trained on each prompt."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        if not (self.classes and self.networks and self.seeds):
            raise ValueError("a sweep has at least one class, one network and one seed")
        names = [
            cell_name(one, network, seed) for one in self.classes for network in self.networks for seed in self.seeds
        ]
        if len(set(names)) < len(names):
            raise ValueError("two cells of the sweep have the same name: vary class, layers, width or seed")
        return self


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

    def of(self, label: str, network: str) -> list[Cell]:
        """The finished cells of a class and a size."""
        return [cell for cell in self.cells if cell.label == label and cell.network == network]

    def spread(self, label: str, network: str, counts: Sequence[int]) -> Spread | None:
        """Median, least and greatest over seeds of the mean error at some numbers of examples; None without cells."""
        means = [statistics.fmean(cell.errors[n] for n in counts) for cell in self.of(label, network)]
        if not means:
            return None
        return Spread(median=statistics.median(means), low=min(means), high=max(means), num_seeds=len(means))


def run_sweep(
    folder: Path,
    settings: SweepSettings | None = None,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    on_cell: Callable[[Cell], None] = lambda _: None,
) -> SweepResult:
    """Make the cells of the grid that are missing, measure the baselines, and write ``sweep.json``.

    Args:
        folder: made if needed; holds a folder for each cell.
        settings: the grid. With other steps, batches or rates than the cells that are there, it needs another folder.
        should_stop: asked after every step; the interrupted cell continues next time.
        on_cell: told of every cell made in this sitting.

    Returns:
        What is finished; ``num_missing`` is 0 unless it was stopped.

    Raises:
        RunError: a cell was made with other settings.
        StorageError: the disk refused.
    """
    chosen = settings or SweepSettings()
    with storage_errors(folder, "create"):
        folder.mkdir(parents=True, exist_ok=True)
    cells: list[Cell] = []
    for lab in cell_settings(folder, chosen):
        is_new = not (Path(lab.run_dir or "") / _CELL_FILE).exists()
        cell = _make_cell(lab, should_stop)
        if cell is None:
            break
        cells.append(cell)
        if is_new:
            on_cell(cell)
        _write(folder, chosen, cells)
    return _write(folder, chosen, cells)


def cell_settings(folder: Path, settings: SweepSettings) -> list[LabSettings]:
    """Return the settings of all runs of the grid, seed by seed, small networks first."""
    return [
        LabSettings(
            name="cell",
            run_dir=str(folder / cell_name(one, network, seed)),
            seed=seed,
            functions=one.functions,
            network=network,
            optimizer=OptimizerSettings(lr=settings.lr),
            num_points=one.num_points,
            batch_size=settings.batch_size,
            steps=settings.steps,
            log_every=50,
            eval_every=0,
            eval_prompts=settings.eval_prompts,
            checkpoint_every=max(1, settings.steps // 4),
            keep_checkpoints=1,
        )
        for seed in settings.seeds
        for network in settings.networks
        for one in settings.classes
    ]


def cell_name(one: SweepClass, network: NetworkSettings, seed: int) -> str:
    """Name a cell's folder."""
    return f"{one.label}-{size_name(network)}-seed{seed}"


def size_name(network: NetworkSettings) -> str:
    """Name a size by layers and width."""
    return f"L{network.layers}c{network.width}"


def strong_counts(num_points: int, num_counts: int) -> list[int]:
    """Return numbers of examples for the slow baselines, evenly spread, the last one K - 1."""
    return sorted({round((num_points - 1) * (index + 1) / num_counts) for index in range(num_counts)} - {0})


def _make_cell(lab: LabSettings, should_stop: Callable[[], bool]) -> Cell | None:
    """Return a cell, trained now if it is not yet; None when stopped before its end."""
    path = Path(lab.run_dir or "")
    if (path / "config.toml").exists():
        _require_same(path, lab)
        if (found := Cell.read_if_there(path / _CELL_FILE)) is not None:
            return found
        training = Training.resume(path)
    else:
        training = Training.create(lab, {"torch": torch.__version__})
    started, is_whole = time.process_time(), training.step == 0
    with training:
        for _ in train(training, should_stop):
            pass
        if not training.is_finished:
            return None
        cell = _measure_cell(training, time.process_time() - started if is_whole else None)
    cell.write(path / _CELL_FILE)
    return cell


def _require_same(path: Path, wanted: LabSettings) -> None:
    found = read_settings(path).model_dump(exclude={"run_dir"})
    mine = wanted.model_dump(exclude={"run_dir"})
    if differing := sorted(name for name in mine if found[name] != mine[name]):
        raise RunError(
            f"{path} was made with other settings ({', '.join(differing)}). Name another folder for this sweep, "
            "or give it the settings of that one."
        )


def _measure_cell(training: Training, cpu_seconds: float | None) -> Cell:
    lab, network = training.settings, training.regressor
    prompts = held_out(lab, lab.eval_prompts)
    errors = squared_errors(lab, predictions(network, prompts), prompts).mean(0)
    return Cell(
        label=SweepClass(functions=lab.functions, num_points=lab.points).label,
        network=size_name(lab.network),
        num_weights=sum(weights.numel() for weights in network.parameters() if weights.requires_grad),
        seed=lab.seed,
        steps=lab.steps,
        errors=tuple(errors.tolist()),
        cpu_seconds=cpu_seconds,
    )


def _write(folder: Path, settings: SweepSettings, cells: Sequence[Cell]) -> SweepResult:
    done = {cell.label for cell in cells}
    curves = [curve for one in settings.classes if one.label in done for curve in _baselines(folder, settings, one)]
    result = SweepResult(settings=settings, cells=tuple(cells), baselines=tuple(curves))
    result.write(folder / SWEEP_FILE)
    return result


class _Curves(Record):
    """The baselines of one class, kept in a file since some take minutes."""

    seed: int
    eval_prompts: int
    baseline_prompts: int
    num_counts: int
    network_steps: int = 5000
    curves: tuple[BaselineCurve, ...]


def _baselines(folder: Path, settings: SweepSettings, one: SweepClass) -> tuple[BaselineCurve, ...]:
    path = folder / f"baselines-{one.label}.json"
    wanted = {
        "seed": settings.seeds[0],
        "eval_prompts": settings.eval_prompts,
        "baseline_prompts": settings.baseline_prompts,
        "num_counts": settings.num_counts,
        "network_steps": settings.network_steps,
    }
    found = _Curves.read_if_there(path)
    if found is None or found.model_dump(exclude={"curves"}) != wanted:
        found = _Curves(curves=_measure_baselines(settings, one), **wanted)
        found.write(path)
    return found.curves


def _measure_baselines(settings: SweepSettings, one: SweepClass) -> tuple[BaselineCurve, ...]:
    lab = LabSettings(functions=one.functions, num_points=one.num_points, seed=settings.seeds[0])
    prompts = held_out(lab, settings.eval_prompts)
    some = held_out(lab, min(settings.baseline_prompts, settings.eval_prompts))
    counts = strong_counts(one.num_points, settings.num_counts)
    strong = strong_baselines_for(one.functions, counts, network_steps=settings.network_steps)
    return (
        *(_curve(one, baseline, prompts, is_strong=False) for baseline in quick_baselines_for(one.functions)),
        *(_curve(one, baseline, some, is_strong=True) for baseline in strong),
    )


def _curve(one: SweepClass, baseline: Baseline, prompts: Prompts, *, is_strong: bool) -> BaselineCurve:
    errors = (baseline.predict(prompts.inputs, prompts.targets) - prompts.clean).double().square().mean(0)
    scaled = (errors / normaliser(one.functions)).tolist()
    return BaselineCurve(
        label=one.label,
        name=baseline.name,
        is_strong=is_strong,
        errors=tuple(None if error != error else error for error in scaled),
    )
