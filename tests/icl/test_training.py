"""Training: the schedule, the curriculum, that it learns, and that a killed one continues to the same bits."""

import math
import multiprocessing  # what is tested is what a killed process leaves behind
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from oncurve.icl.evaluate import held_out
from oncurve.icl.functions import sample
from oncurve.icl.run import generator, load_run, new_regressor, read_settings, settled, settled_as
from oncurve.icl.settings import CurriculumSettings, LabSettings, OptimizerSettings
from oncurve.icl.training import Measured, Training, train
from oncurve.icl.training_checkpoint import list_checkpoints, load_checkpoint, save_checkpoint
from oncurve.icl.training_optimizer import Optimizer, rate
from oncurve.report import read_metrics
from oncurve.report.progress import Saved
from oncurve.types import ConfigError, NumericsError, RunError
from tests.icl.conftest import TINY
from tests.icl.killed_training import train_until

PROCESSES = multiprocessing.get_context("forkserver")  # imports torch once, then each child starts at once
PROCESSES.set_forkserver_preload(["tests.icl.killed_training"])


def run(settings: LabSettings) -> list[Measured | Saved]:
    with Training.create(settings, {}) as training:
        return list(train(training))


def everything(path: Path) -> dict[str, Any]:
    """All that a training leaves behind, without what a clock measured."""
    state = load_checkpoint(list_checkpoints(path / "checkpoints")[-1])
    rows = [{k: v for k, v in row.items() if not k.startswith("seconds/")} for row in read_metrics(path)]
    return {"metrics": rows, "state": {k: v for k, v in state.items() if "seconds" not in k}}


def assert_same(left: Any, right: Any, where: str = "") -> None:
    if isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key, value in left.items():
            assert_same(value, right[key], f"{where}/{key}")
    elif isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    else:
        assert left == right, where


def test_the_rate_rises_stays_and_falls():
    settings = OptimizerSettings(warmup_steps=4, decay_from=0.5)
    rates = [rate(settings, step, 20) for step in range(20)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[9] == 1.0
    assert rates[15] == pytest.approx(0.5)  # half of the second half: (1 + cos(pi/2)) / 2
    assert rates[19] == pytest.approx((1 + math.cos(0.9 * math.pi)) / 2)


def test_a_rate_without_rise_and_fall_is_constant():
    settings = OptimizerSettings(warmup_steps=0, decay_from=1.0)
    assert {rate(settings, step, 20) for step in range(20)} == {1.0}


def test_the_curriculum_adds_dimensions_and_points():
    curriculum = CurriculumSettings(start_dimension=5, start_points=11, every=2000)
    settings = LabSettings.model_validate(
        {"functions": {"dimension": 8}, "num_points": 16, "curriculum": curriculum.model_dump()}
    )
    assert [settings.stage(step) for step in (0, 1999, 2000, 4000, 6000, 90_000)] == [
        (5, 11),
        (5, 11),
        (6, 13),
        (7, 15),
        (8, 16),
        (8, 16),
    ]
    assert LabSettings().stage(0) == (5, 11)


def test_a_training_follows_its_curriculum(tiny, monkeypatch):
    seen = []

    def watched(functions, num_prompts, points, source, **options):
        seen.append((options["active_dimension"], points))
        return sample(functions, num_prompts, points, source, **options)

    monkeypatch.setattr("oncurve.icl.training.sample", watched)
    curriculum = CurriculumSettings(start_dimension=1, start_points=2, points_step=3, every=3)
    run(tiny.model_copy(update={"curriculum": curriculum}))
    assert seen == [(1, 2)] * 3 + [(2, 5)] * 5


def test_a_run_leaves_settings_metrics_and_checkpoints(tiny):
    events = run(tiny)
    path = Path(tiny.run_dir)
    assert read_settings(path) == settled(tiny, 1)
    rows = list(read_metrics(path))
    assert [row["step"] for row in rows] == [3, 4, 6, 8]  # every third, every fourth look, the last
    assert ["eval/mean" in row for row in rows] == [False, True, False, True]
    assert [event.step for event in events if isinstance(event, Saved)] == [3, 6, 8]
    assert [path.name for path in list_checkpoints(path / "checkpoints")] == ["step_000006.pt", "step_000008.pt"]
    assert rows[-1]["seconds/cpu"] > 0


def test_it_learns(tmp_path):
    settings = LabSettings.model_validate(
        TINY
        | {"run_dir": str(tmp_path / "run"), "functions": {"dimension": 1}, "num_points": 5, "batch_size": 32}
        | {"steps": 200, "eval_every": 100, "optimizer": {"warmup_steps": 20, "lr": 4e-3}}
    )
    run(settings)
    looks = [row["eval/last"] for row in read_metrics(settings.run_dir) if "eval/last" in row]
    assert looks[1] < 0.5  # answering 0 costs 1
    assert looks[1] < looks[0]


def test_a_loaded_run_predicts_what_was_trained(tiny):
    with Training.create(tiny, {}) as training:
        list(train(training))
        prompts = held_out(tiny, 5)
        expected = training.regressor.predict(prompts.inputs, prompts.targets)
    settings, regressor, step = load_run(Path(tiny.run_dir))
    assert (settings, step) == (settled(tiny, 1), 8)
    torch.testing.assert_close(regressor.predict(prompts.inputs, prompts.targets), expected.detach())
    assert not any(weight.requires_grad for weight in regressor.parameters())


def test_what_was_left_to_the_machine_is_settled_once(tiny, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0}, raising=False)  # one core of however many
    wide = tiny.network.model_copy(update={"width": 128})
    with Training.create(tiny.model_copy(update={"network": wide, "threads": 0, "steps": 1}), {}) as training:
        list(train(training))
    recorded = read_settings(Path(tiny.run_dir))
    assert recorded.threads == torch.get_num_threads() == 1
    assert recorded.network.precision in ("float32", "bfloat16")
    # Another machine comes to the opposite: what examines and continues the run asks it no more.
    is_rounded = recorded.network.precision == "bfloat16"
    monkeypatch.setattr("oncurve.icl.network.has_fast_bfloat16", lambda _device: not is_rounded)
    assert load_run(Path(tiny.run_dir))[1].settings == recorded.network
    with Training.resume(Path(tiny.run_dir)) as training:
        assert training.regressor.settings == recorded.network
    assert settled_as(tiny.model_copy(update={"network": wide, "threads": 0, "steps": 1}), recorded) == recorded


def test_held_out_prompts_do_not_depend_on_how_many_there_are(tiny):
    few, many = held_out(tiny, 3), held_out(tiny, 300)
    assert torch.equal(few.inputs, many.inputs[:3])
    assert len(many.inputs) == 300
    assert not torch.equal(many.inputs[:1], many.inputs[256:257])


def test_seeds_name_weights_and_prompts(tiny):
    other = tiny.model_copy(update={"seed": 1})
    first, second = new_regressor(tiny), new_regressor(other)
    assert torch.equal(first.read_in.weight, new_regressor(tiny).read_in.weight)
    assert not torch.equal(first.read_in.weight, second.read_in.weight)
    draws = [torch.rand(1, generator=generator(s, "train", step)) for s in (tiny, other) for step in (0, 1)]
    assert len({draw.item() for draw in draws}) == 4


def test_making_a_network_leaves_the_global_generator_alone(tiny):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    new_regressor(tiny)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, Any]:
    """What a training leaves that nobody interrupts."""
    path = tmp_path_factory.mktemp("whole") / "run"
    run(LabSettings.model_validate(TINY | {"run_dir": str(path)}))
    return everything(path)


@pytest.mark.parametrize("stop_at", [1, 3, 5])
def test_a_stopped_training_continues_to_the_same_bits(stop_at, tiny, whole):
    path = Path(tiny.run_dir)
    with Training.create(tiny, {}) as training:
        list(train(training, should_stop=lambda: training.step >= stop_at))
        assert training.step == stop_at
    with Training.resume(path) as training:
        assert training.step == stop_at
        list(train(training))
    assert_same(everything(path), whole)


@pytest.mark.parametrize(
    ("place", "count", "done"),
    [
        ("oncurve.icl.training:Training.advance", 2, 0),  # before any checkpoint
        ("oncurve.icl.training_checkpoint:torch.save", 2, 3),  # metrics are ahead of the checkpoint
        ("oncurve.report.storage:sync_path", 8, 3),  # the first checkpoint has its name, the folder is not on the disk
        ("oncurve.report.storage:sync_path", 9, 3),  # the second one is written and has no name
    ],
)
def test_a_killed_training_continues_to_the_same_bits(place, count, done, tiny, whole):
    process = PROCESSES.Process(target=train_until, args=(place, count, tiny))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with Training.resume(Path(tiny.run_dir)) as training:
        assert training.step == done
        list(train(training))
    assert_same(everything(Path(tiny.run_dir)), whole)


def test_a_finished_training_resumes_to_itself(tiny, whole):
    run(tiny)
    with Training.resume(Path(tiny.run_dir)) as training:
        assert list(train(training)) == []
    assert_same(everything(Path(tiny.run_dir)), whole)


def test_muon_moves_matrices_of_the_blocks_and_resumes_to_the_same_bits(tiny, tmp_path):
    settings = tiny.model_copy(update={"optimizer": OptimizerSettings(name="muon", warmup_steps=2)})
    regressor = new_regressor(settings)
    parts = Optimizer(regressor, settings.optimizer).state_dict()
    assert len(parts["1"]["param_groups"][0]["params"]) == 8  # four matrices in each of two blocks
    assert len(Optimizer(regressor, OptimizerSettings()).state_dict()) == 1
    run(settings)
    with Training.create(settings.model_copy(update={"run_dir": str(tmp_path / "other")}), {}) as training:
        list(train(training, should_stop=lambda: training.step >= 4))
    with Training.resume(tmp_path / "other") as training:
        list(train(training))
    assert_same(everything(tmp_path / "other"), everything(Path(tiny.run_dir)))


def test_muon_is_refused_where_torch_has_none(tiny, monkeypatch):
    monkeypatch.delattr("torch.optim.Muon")
    with pytest.raises(ConfigError, match="muon, which torch has from"):
        Optimizer(new_regressor(tiny), OptimizerSettings(name="muon"))


def test_the_gradient_is_cut(tiny):
    regressor = new_regressor(tiny)
    before = regressor.read_out.bias.detach().clone()
    prompts = held_out(tiny, 2)
    (1e6 * regressor.predict(prompts.inputs, prompts.targets).sum()).backward()
    norm = Optimizer(regressor, OptimizerSettings(max_grad_norm=0.5, lr=0.1)).step(0.5)
    assert norm > 1e6
    assert (regressor.read_out.bias - before).item() == pytest.approx(-0.05, rel=1e-3)  # Adam's first step is the rate
    assert regressor.read_out.bias.grad is None


def test_weight_decay_is_for_matrices(tiny):
    regressor = new_regressor(tiny)
    for weight in regressor.parameters():
        weight.grad = torch.zeros_like(weight)
    matrix, norm = regressor.read_in.weight.detach().clone(), regressor.backbone.h[0].ln_1.weight.detach().clone()
    Optimizer(regressor, OptimizerSettings(weight_decay=0.5, lr=0.1)).step(1.0)
    torch.testing.assert_close(regressor.read_in.weight.detach(), 0.95 * matrix)
    assert torch.equal(regressor.backbone.h[0].ln_1.weight.detach(), norm)


def test_a_time_budget_stops_with_a_checkpoint(tiny):
    events = run(tiny.model_copy(update={"max_seconds": 1e-9}))
    assert [type(event) for event in events] == [Saved]
    assert events[0].step == 1


def test_a_time_budget_counts_the_seconds_of_one_sitting(tiny, whole):
    with Training.create(tiny.model_copy(update={"max_seconds": 500}), {}) as training:
        list(train(training, should_stop=lambda: training.step >= 2))
        training.seconds = 1000.0  # as if each step had taken long
        training.save()
    with Training.resume(Path(tiny.run_dir)) as training:
        assert training.seconds == 1000.0
        list(train(training))
        assert training.is_finished
    assert_same(everything(Path(tiny.run_dir)), whole)


def break_after(training: Training, step: int) -> Callable[[], bool]:
    """Make the network answer NaN once so many steps are done; stop two steps later."""

    def look() -> bool:
        if training.step == step:
            with torch.no_grad():
                training.regressor.read_out.bias.fill_(torch.nan)
        return training.step == step + 2

    return look


def test_a_loss_that_is_not_finite_stops_the_training(tiny):
    with Training.create(tiny, {}) as training:
        with torch.no_grad():
            training.regressor.read_out.bias.fill_(torch.nan)
        message = r"not finite in step 1\. Train anew with a lower optimizer\.lr .* There is no checkpoint yet\."
        with pytest.raises(NumericsError, match=message):
            list(train(training))


@pytest.mark.parametrize(
    "checkpoint_every",
    [
        pytest.param(3, id="a checkpoint is due"),  # at steps 3 and 6, and no line of metrics before step 8
        pytest.param(4, id="stopped"),  # at step 4; step 7 is where somebody stops it
    ],
)
def test_weights_that_are_not_finite_are_never_saved(checkpoint_every, tiny):
    change = {"log_every": 8, "eval_every": 0, "checkpoint_every": checkpoint_every, "keep_checkpoints": 1}
    settings, message = tiny.model_copy(update=change), "loss or its gradient is not finite in step 6"
    with Training.create(settings, {}) as training, pytest.raises(NumericsError, match=message) as broken:
        list(train(training, break_after(training, 5)))
    (kept,) = list_checkpoints(Path(tiny.run_dir) / "checkpoints")
    assert str(kept) in str(broken.value)
    assert all(weight.isfinite().all() for weight in load_checkpoint(kept)["weights"].values())


def test_a_step_that_ends_beyond_float32_is_not_saved(tiny):
    huge = tiny.model_copy(update={"optimizer": OptimizerSettings(lr=3e38, warmup_steps=0), "log_every": 8})
    with Training.create(huge, {}) as training, pytest.raises(NumericsError, match=r"weights .* after step 1\. Train"):
        list(train(training, should_stop=lambda: True))
    assert list_checkpoints(Path(tiny.run_dir) / "checkpoints") == []


def test_one_process_writes(tiny):
    with Training.create(tiny, {}), pytest.raises(RunError, match="another process is writing"):
        Training.resume(Path(tiny.run_dir))


def test_other_folders_are_refused(tmp_path, tiny):
    with pytest.raises(RunError, match="is not a run folder"):
        load_run(tmp_path)
    (tmp_path / "config.toml").write_text("steps = 3\nmethod = 'grpo'\n")
    with pytest.raises(RunError, match="is not a run of the in-context laboratory"):
        Training.resume(tmp_path)
    Training.create(tiny, {}).folder.unlock()
    with pytest.raises(RunError, match="has no checkpoint yet: let it train for 3 steps"):
        load_run(Path(tiny.run_dir))


def test_a_damaged_checkpoint_is_one_clear_error(tmp_path):
    path = save_checkpoint(tmp_path, 7, {"x": torch.zeros(1000)}, keep=1)
    whole = path.read_bytes()
    for damaged in (b"", b"not a zip file", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=r"cannot read the checkpoint .*step_000007\.pt: it is damaged"):
            load_checkpoint(path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device")
def test_a_device_that_is_not_there_is_refused_before_a_folder_is_made(tiny):
    with pytest.raises(ConfigError, match="device is cuda, but torch sees no such device"):
        Training.create(tiny.model_copy(update={"device": "cuda"}), {})
    assert not Path(tiny.run_dir).exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"curriculum": {"start_dimension": 6}}, r"start_dimension is 6, more than functions\.dimension, 5"),
        ({"curriculum": {"start_points": 12}}, r"start_points is 12, more than the 11 of a prompt"),
    ],
    ids=["dimension", "points"],
)
def test_a_curriculum_that_starts_beyond_its_end_is_refused(change, message):
    with pytest.raises(ValidationError, match=message):
        LabSettings.model_validate(change)
