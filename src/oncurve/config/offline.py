"""Settings of the offline methods: what completions they learn from."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from oncurve.algo import PreferenceSettings
from oncurve.types import Settings


class DpoSettings(PreferenceSettings):
    """Learning from pairs (method = "dpo"): the loss, and where the pairs come from."""

    batch_size: int = Field(32, ge=1)
    """Pairs of an optimiser step."""

    passes: int = Field(3, ge=1)
    """The run ends after so many passes over the pairs, or after ``steps``, whichever comes first."""

    pairs: Path | None = None
    """A .jsonl or .parquet file of pairs: prompt, chosen, rejected, as text or chat messages."""

    rollouts: Path | None = None
    """A run folder: its recorded completions make the pairs, a right and a wrong one of the same group."""

    max_per_task: int = Field(4, ge=1)
    """Most pairs that one task gives, of those that a run's rollouts would allow; else easy ones outnumber the rest."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.pairs is not None and self.rollouts is not None:
            raise ValueError("dpo.pairs and dpo.rollouts both name a source of pairs: keep one of them")
        return self


class SupervisedSettings(Settings):
    """Learning worked examples: as a run (method = "sft"), or to make a starting model (``oncurve sft``)."""

    batch_size: int = Field(128, ge=1)
    """Examples of an optimiser step."""

    examples: Path | None = None
    """As a run: a .jsonl or .parquet file of prompt and completion, or of conversations. Unset: the worked examples of
    the task source."""

    passes: int = Field(3, ge=1)
    """As a run: it ends after so many passes over the file of examples, or after ``steps``, whichever comes first."""

    steps: int = Field(300, ge=1)
    """Optimiser steps of ``oncurve sft``. A run takes ``steps`` of its own."""

    guess_frac: float = Field(0.0, ge=0, lt=1)
    """``oncurve sft``: share of the examples that guess instead of working the answer out. A model warm-started so has
    a bad habit beside a good one, as after pretraining on text of mixed quality; which of the two pays is for GRPO to
    find out."""

    lr: float = Field(3e-3, gt=0)
    """``oncurve sft``: peak learning rate, reached after a twentieth of the steps; from there it falls linearly to
    zero. A run takes ``learner.lr``."""

    def learner_changes(self) -> dict[str, float | int]:
        """The learner's settings of ``oncurve sft``, where they differ from those of a run."""
        return {"lr": self.lr, "warmup_steps": max(1, self.steps // 20), "decay_steps": self.steps, "beta2": 0.95}
