"""The grid of a sweep: classes of functions, sizes of networks, seeds, and what each cell is trained with."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from oncurve.icl.functions import FunctionSettings
from oncurve.icl.network import NetworkSettings
from oncurve.icl.settings import LabSettings, OptimizerSettings
from oncurve.types import Settings


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
