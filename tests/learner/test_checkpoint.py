"""Checkpoints are whole or not there: real processes, real kills, real full disks."""

import itertools
import multiprocessing  # what is tested is what a killed process leaves behind
import os
import random
import resource
import subprocess  # mount
import time
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from oncurve.learner import latest_checkpoint, list_checkpoints, load_state, save_checkpoint
from oncurve.model import Policy, fresh_embedded_policy
from oncurve.types import RunError, StorageError
from tests.learner.build import tiny_policy

IS_ROOT = os.geteuid() == 0
PROCESSES = multiprocessing.get_context("forkserver")  # imports torch once, then each child starts at once
PROCESSES.set_forkserver_preload(["oncurve.learner", "oncurve.model"])


def small_policy() -> Policy:
    return fresh_embedded_policy(0, width=32, num_layers=1, num_heads=1)


def save_until_killed(folder: Path, first: int, progress: Connection) -> None:
    torch.set_num_threads(1)
    policy = small_policy()
    for step in itertools.count(first):
        save_checkpoint(folder, step, policy, {"step": step, "x": torch.full((20000,), step)}, keep_last=2)
        progress.send(step)


def save_with_small_files(folder: Path, limit_bytes: int, message: Connection) -> None:
    torch.set_num_threads(1)
    policy = small_policy()
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
    try:
        save_checkpoint(folder, 2, policy, {"step": 2, "x": torch.zeros(200_000)})
    except StorageError as error:
        message.send(str(error))


def test_a_checkpoint_is_a_model_directory_and_a_state(tmp_path: Path):
    policy = tiny_policy()
    state = {"cursor": 7, "tensor": torch.arange(3), "nested": {"list": [1.5, None, "x", True], "pair": (1, 2)}}
    path = save_checkpoint(tmp_path / "checkpoints", 50, policy, state)
    assert path == tmp_path / "checkpoints" / "step_000050"
    loaded = load_state(path)
    assert torch.equal(loaded.pop("tensor"), state.pop("tensor"))
    assert loaded == state
    model = AutoModelForCausalLM.from_pretrained(path)
    for name, parameter in policy.model.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name))


def test_the_latest_is_the_highest_step_that_is_whole(tmp_path: Path):
    policy = tiny_policy()
    assert latest_checkpoint(tmp_path / "absent") is None
    for step in (9, 1_000_000, 20):
        save_checkpoint(tmp_path, step, policy, {"step": step})
    (tmp_path / "step_2000000").mkdir()  # no state file
    (tmp_path / "notes").mkdir()
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step_000009", "step_000020", "step_1000000"]
    assert latest_checkpoint(tmp_path) == tmp_path / "step_1000000"


def test_a_step_saved_again_is_replaced(tmp_path: Path):
    policy = tiny_policy()
    save_checkpoint(tmp_path, 1, policy, {"value": 1})
    save_checkpoint(tmp_path, 1, policy, {"value": 2})
    assert load_state(tmp_path / "step_000001") == {"value": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001"]


def test_leftovers_are_ignored_and_removed_by_the_next_save(tmp_path: Path):
    leftover = tmp_path / ".tmp-step_000099-1"
    leftover.mkdir()
    (leftover / "state.pt").write_bytes(b"half")
    assert latest_checkpoint(tmp_path) is None
    save_checkpoint(tmp_path, 1, tiny_policy(), {})
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001"]


def test_only_the_last_ones_are_kept(tmp_path: Path):
    for step in (1, 2, 3, 10):
        save_checkpoint(tmp_path, step, tiny_policy(), {}, keep_last=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000003", "step_000010"]


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize("value", [Colour.RED, {1, 2}, object(), Path("x")], ids=["enum", "set", "object", "path"])
def test_a_state_that_could_not_be_read_back_is_refused_before_anything_is_written(tmp_path: Path, value: object):
    with pytest.raises(ValueError, match=r"state\['a'\]\[1\] is a .*a checkpoint cannot hold"):
        save_checkpoint(tmp_path, 1, tiny_policy(), {"a": [0, value]})
    assert list(tmp_path.iterdir()) == []


def test_senseless_numbers_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="step must be >= 0"):
        save_checkpoint(tmp_path, -1, tiny_policy(), {})
    with pytest.raises(ValueError, match="keep_last >= 1"):
        save_checkpoint(tmp_path, 1, tiny_policy(), {}, keep_last=0)


def test_a_damaged_state_is_one_clear_error(tmp_path: Path):
    path = save_checkpoint(tmp_path, 1, tiny_policy(), {"tensor": torch.zeros(1000)})
    whole = (path / "state.pt").read_bytes()
    for damaged in (b"", b"not a zip file", whole[: len(whole) // 2]):
        (path / "state.pt").write_bytes(damaged)
        with pytest.raises(RunError, match=r"cannot read the checkpoint .*step_000001/state\.pt.*Remove the folder"):
            load_state(path)


def test_code_in_a_state_file_is_not_executed(tmp_path: Path):
    torch.save({"x": Path("/")}, tmp_path / "state.pt")  # unpickling it calls a class
    with pytest.raises(RunError, match="cannot read"):
        load_state(tmp_path)


def test_killing_the_writer_at_any_instant_leaves_a_checkpoint_that_loads(tmp_path: Path):
    chance = random.Random(0)
    step = 0
    for _ in range(8):
        here, there = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=save_until_killed, args=(tmp_path, step + 1, there))
        process.start()
        here.recv()
        time.sleep(chance.uniform(0, 0.1))
        process.kill()
        process.join()
        assert process.exitcode == -9
        latest = latest_checkpoint(tmp_path)
        state = load_state(latest)
        assert state["step"] > step
        step = state["step"]
        assert latest.name == f"step_{step:06d}"
        assert torch.equal(state["x"], torch.full((20000,), step))
        AutoModelForCausalLM.from_pretrained(latest)


@pytest.mark.parametrize("limit_kilobytes", [1, 40, 150])
def test_a_file_size_limit_is_one_clear_error_and_spares_the_last_checkpoint(tmp_path: Path, limit_kilobytes: int):
    save_checkpoint(tmp_path, 1, small_policy(), {"step": 1})
    here, there = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=save_with_small_files, args=(tmp_path, limit_kilobytes * 1024, there))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert here.recv().startswith(f"cannot write a checkpoint to {tmp_path}: a file would be larger than")
    assert load_state(latest_checkpoint(tmp_path)) == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001"]


@pytest.mark.skipif(not IS_ROOT, reason="mounting a small file system needs root")
@pytest.mark.parametrize("kilobytes", [8, 200, 500, 900])
def test_a_full_disk_is_one_clear_error_and_spares_the_last_checkpoint(tmp_path: Path, kilobytes: int):
    policy = small_policy()
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], capture_output=True).returncode:
        pytest.skip("this machine does not permit mounts")
    try:
        save_checkpoint(mount, 1, policy, {"step": 1})
        filler = mount / "filler"
        free = os.statvfs(mount)
        filler.write_bytes(b"x" * (free.f_bavail * free.f_frsize - kilobytes * 1024))
        with pytest.raises(
            StorageError, match=r"cannot write a checkpoint to .*small: the disk is full.*oncurve resume"
        ):
            save_checkpoint(mount, 2, policy, {"step": 2, "x": torch.zeros(400_000)})
        assert load_state(latest_checkpoint(mount)) == {"step": 1}
        assert sorted(path.name for path in mount.iterdir()) == ["filler", "step_000001"]
        filler.unlink()
        save_checkpoint(mount, 2, policy, {"step": 2})
        assert latest_checkpoint(mount).name == "step_000002"
    finally:
        subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.skipif(not IS_ROOT, reason="remounting needs root")
def test_a_read_only_disk_is_one_clear_error(tmp_path: Path):
    policy = tiny_policy()
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount)], capture_output=True).returncode:
        pytest.skip("this machine does not permit mounts")
    try:
        save_checkpoint(mount, 1, policy, {"step": 1})
        subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
        with pytest.raises(StorageError, match="the file system is read-only"):
            save_checkpoint(mount, 2, policy, {"step": 2})
        assert load_state(latest_checkpoint(mount)) == {"step": 1}
    finally:
        subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.skipif(IS_ROOT, reason="root may write everywhere")
def test_a_folder_without_permission_is_one_clear_error(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="writing there is not permitted"):
        save_checkpoint(tmp_path / "checkpoints", 1, tiny_policy(), {})


def test_a_file_where_the_folder_should_be_is_one_clear_error(tmp_path: Path):
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(StorageError, match="cannot write a checkpoint"):
        save_checkpoint(tmp_path / "checkpoints", 1, tiny_policy(), {})
