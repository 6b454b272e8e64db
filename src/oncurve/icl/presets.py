"""Named settings to start from."""

from collections.abc import Mapping
from typing import Any, Literal

from oncurve.icl.settings import LabSettings

Preset = Literal["ci", "full", "paper"]

_CI: dict[str, Any] = {
    "name": "icl-ci",
    "functions": {"kind": "linear", "dimension": 5},
    "network": {"width": 64, "layers": 4, "heads": 4},
    "steps": 4000,
}
_FULL: dict[str, Any] = {
    "name": "icl-full",
    "functions": {"kind": "linear", "dimension": 8},
    "network": {"width": 128, "layers": 6, "heads": 4},
    "optimizer": {"lr": 1.5e-3, "warmup_steps": 300},
    "steps": 8000,
}
_PAPER: dict[str, Any] = {
    "name": "icl-paper",
    "functions": {"kind": "linear", "dimension": 20},
    "network": {"width": 256, "layers": 12, "heads": 8, "layout": "alternating", "precision": "float32"},
    "optimizer": {"lr": 1e-4, "beta2": 0.999, "warmup_steps": 0, "decay_from": 1.0, "max_grad_norm": 1e6},
    "curriculum": {"start_dimension": 5, "start_points": 11, "dimension_step": 1, "points_step": 2, "every": 2000},
    "steps": 500_000,
    "log_every": 100,
    "eval_every": 10_000,
    "checkpoint_every": 10_000,
    "device": "cuda",
}

PRESETS: Mapping[Preset, Mapping[str, Any]] = {"ci": _CI, "full": _FULL, "paper": _PAPER}
"""ci: minutes on one thread. full: within an hour on two cores. paper: Garg et al. 2022, 7 hours on a large GPU."""


def preset_settings(preset: Preset) -> LabSettings:
    """The settings of a preset, with the default of everything it does not name."""
    return LabSettings.model_validate(PRESETS[preset])
