"""Small real runs: the embedded model, a few completions a step."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from oncurve.config import RunConfig, load_config

SMALL = (
    *("--threads", "1", "--steps", "4", "--checkpoint_every", "2"),
    *("--tasks.num_held_out", "16", "--evaluation.num_tasks", "16", "--evaluation.every", "3"),
    *("--evaluation.num_samples", "2", "--evaluation.k", "2"),
    *("--rollout.num_prompts", "3", "--rollout.group_size", "4", "--rollout.sampling.max_tokens", "40"),
)
"""Every phase of a run in a second or two."""


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small_config(tmp_path: Path) -> Callable[..., RunConfig]:
    """A config for a small run in ``tmp_path/run``, with further command-line words."""

    def build(*words: str) -> RunConfig:
        return load_config(None, [*SMALL, "--run_dir", str(tmp_path / "run"), *words])

    return build
