"""The disk of a real run fills up: one clear error, and after space is freed the run goes on as if nothing had been."""

from pathlib import Path

import pytest

from oncurve.config import load_config
from oncurve.train import Session, train
from oncurve.types import StorageError
from tests.disks import FILLER, fill, small_disk
from tests.train.conftest import SMALL
from tests.train.test_resume import assert_equal, everything


def test_a_run_on_a_disk_that_fills_up_says_so_and_resumes(tmp_path: Path):
    with Session.create(load_config(None, [*SMALL, "--run_dir", str(tmp_path / "whole")])) as session:
        list(train(session))
    with small_disk(tmp_path / "disk", "64m") as disk:
        run_dir = disk / "run"
        with pytest.raises(StorageError) as failure:
            run_until_full(run_dir, disk)
        assert str(run_dir) in str(failure.value)
        assert "No space left on device. Free space there" in str(failure.value)
        assert "oncurve resume" in str(failure.value)
        (disk / FILLER).unlink()
        with Session.resume(run_dir) as session:
            list(train(session))
        assert_equal(everything(run_dir), everything(tmp_path / "whole"))


def run_until_full(run_dir: Path, disk: Path) -> None:
    """Train, and fill the disk when a checkpoint is there and the next step is about to record its rollout."""
    with Session.create(load_config(None, [*SMALL, "--run_dir", str(run_dir)])) as session:
        for _ in train(session):
            if session.step == 3:
                fill(disk)
