"""The settings of one training of the in-context laboratory."""

from typing import Literal, Self

from pydantic import Field, model_validator

from oncurve.icl.functions.settings import FunctionSettings
from oncurve.icl.network import NetworkSettings
from oncurve.types import Settings

MIN_PROMPTS = 2
"""Held-out prompts without which a mean has no interval."""


class OptimizerSettings(Settings):
    """How the weights move. The rate rises linearly, stays, then falls to 0 on a cosine."""

    name: Literal["adamw", "muon"] = "adamw"
    """muon: orthogonalised momentum for the matrices of the blocks, AdamW for everything else."""

    lr: float = Field(2e-3, gt=0)
    """Peak learning rate of AdamW."""

    muon_lr: float = Field(0.02, gt=0)
    """Peak learning rate of Muon."""

    beta1: float = Field(0.9, ge=0, lt=1)
    """Memory of AdamW's mean, and momentum of nothing else."""

    beta2: float = Field(0.99, ge=0, lt=1)
    """Memory of AdamW's second moment."""

    muon_momentum: float = Field(0.95, ge=0, lt=1)
    """Momentum of Muon."""

    weight_decay: float = Field(0.0, ge=0)
    """Decoupled decay of matrices."""

    max_grad_norm: float = Field(1.0, gt=0)
    """Longer gradients are cut to this length."""

    warmup_steps: int = Field(100, ge=0)
    """Steps of the linear rise."""

    decay_from: float = Field(0.5, ge=0, le=1)
    """Share of the steps after which the rate falls; 1 keeps it constant."""


class CurriculumSettings(Settings):
    """Short prompts of few dimensions first. Not needed in the paired layout below about 15 dimensions."""

    start_dimension: int = Field(0, ge=0)
    """Coordinates that are not 0 at the beginning; 0 starts with all."""

    start_points: int = Field(0, ge=0)
    """Points of a prompt at the beginning; 0 starts with all."""

    dimension_step: int = Field(1, ge=1)
    """Coordinates that are added each time."""

    points_step: int = Field(2, ge=1)
    """Points that are added each time."""

    every: int = Field(2000, ge=1)
    """Steps from one time to the next."""


class LabSettings(Settings):
    """A run that trains a transformer on prompts of a function class."""

    name: str = Field("icl", pattern=r"^[\w.-]+$")
    """Beginning of the run folder's name."""

    output: str = "runs"
    """Folder in which the run folder is made."""

    run_dir: str | None = None
    """The run folder itself, instead of the next free one in ``output``."""

    seed: int = Field(0, ge=0)
    """Names the starting weights, every prompt of the training and every held-out prompt."""

    functions: FunctionSettings = FunctionSettings()
    network: NetworkSettings = NetworkSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    curriculum: CurriculumSettings = CurriculumSettings()

    num_points: int = Field(0, ge=0)
    """Points of a prompt; 0 takes 2 d + 1, so that the last one is predicted from 2 d examples."""

    batch_size: int = Field(64, ge=1)
    """Prompts of a step; all of them new."""

    steps: int = Field(4500, ge=1)
    """Optimiser steps."""

    max_seconds: float | None = Field(None, gt=0)
    """Stop with a checkpoint after so many seconds of steps; each continuation has them again."""

    log_every: int = Field(10, ge=1)
    """Steps from one line of metrics to the next."""

    eval_every: int = Field(500, ge=0)
    """Steps from one look at held-out prompts to the next; 0 looks only at the end."""

    eval_prompts: int = Field(1280, ge=MIN_PROMPTS)
    """Held-out prompts of the examination; a look in between takes a fifth of them."""

    checkpoint_every: int = Field(500, ge=1)
    """Steps from one checkpoint to the next."""

    keep_checkpoints: int = Field(2, ge=1)
    """Older checkpoints are removed."""

    threads: int = Field(1, ge=0)
    """Threads of tensor work; 0 takes every core this process may use, and config.toml holds their number. It
    belongs to a run's identity, as it changes the order of sums."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Where tensors are."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        curriculum = self.curriculum
        if curriculum.start_dimension > self.functions.dimension:
            raise ValueError(
                f"curriculum.start_dimension is {curriculum.start_dimension}, more than functions.dimension, "
                f"{self.functions.dimension}"
            )
        if curriculum.start_points > self.points:
            raise ValueError(
                f"curriculum.start_points is {curriculum.start_points}, more than the {self.points} of a prompt"
            )
        return self

    @property
    def points(self) -> int:
        """K, points of a prompt."""
        return self.num_points or 2 * self.functions.dimension + 1

    def stage(self, step: int) -> tuple[int, int]:
        """Active dimensions and points of the prompts of a step, counted from 0."""
        grown = step // self.curriculum.every
        dimension = self.curriculum.start_dimension or self.functions.dimension
        points = self.curriculum.start_points or self.points
        return (
            min(self.functions.dimension, dimension + grown * self.curriculum.dimension_step),
            min(self.points, points + grown * self.curriculum.points_step),
        )
