"""Model directories that several tests read and none changes."""

from pathlib import Path

import pytest
import torch

from tests.model.directories import save_llama


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def llama_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("models") / "tiny-llama")
