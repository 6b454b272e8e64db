"""Trainings of seconds."""

from pathlib import Path

import pytest

from oncurve.icl.settings import LabSettings

TINY = {
    "functions": {"dimension": 2},
    "network": {"width": 32, "layers": 2, "heads": 2},
    "batch_size": 16,
    "steps": 8,
    "log_every": 3,
    "eval_every": 4,
    "eval_prompts": 40,
    "checkpoint_every": 3,
    "optimizer": {"warmup_steps": 2},
}


@pytest.fixture
def tiny(tmp_path: Path) -> LabSettings:
    """Eight steps with checkpoints, metrics and looks that fall on different steps."""
    return LabSettings.model_validate(TINY | {"run_dir": str(tmp_path / "run")})
