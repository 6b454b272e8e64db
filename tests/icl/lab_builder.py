"""A small run of the laboratory with everything that can be measured of it."""

from pathlib import Path

from oncurve.icl.evaluate_run import examine_run
from oncurve.icl.functions import FunctionSettings
from oncurve.icl.network import NetworkSettings
from oncurve.icl.probe import ProbeSettings, run_probe
from oncurve.icl.settings import LabSettings
from oncurve.icl.shift import ShiftSettings, run_shift
from oncurve.icl.sweep import SweepClass, SweepSettings, run_sweep
from oncurve.icl.training import Training, train

SMALL = NetworkSettings(layers=2, width=16, heads=2)
SWEEP = SweepSettings(
    classes=(
        SweepClass(functions=FunctionSettings(kind="sparse", dimension=3, sparsity=1), num_points=5, note="tiny"),
        SweepClass(functions=FunctionSettings(kind="tree", dimension=2, tree_depth=1), num_points=5),
        SweepClass(functions=FunctionSettings(kind="relu", dimension=2, hidden_width=3), num_points=5),
    ),
    networks=(SMALL.model_copy(update={"layers": 1}), SMALL),
    seeds=(0, 1),
    steps=3,
    batch_size=4,
    eval_prompts=16,
    baseline_prompts=4,
    num_counts=2,
    network_steps=20,
)


def train_lab(path: Path, steps: int = 60, **functions) -> Path:
    settings = LabSettings(
        run_dir=str(path),
        functions=FunctionSettings(**{"dimension": 3, **functions}),
        network=SMALL,
        batch_size=16,
        steps=steps,
        eval_every=20,
        eval_prompts=20,
    )
    with Training.create(settings, {}) as training:
        for _ in train(training):
            pass
    return path


def build_lab(path: Path) -> Path:
    train_lab(path)
    examine_run(path, 40)
    run_probe(
        path,
        ProbeSettings(fit_prompts=200, held_out_prompts=64, weight_prompts=8, newton_iterations=8, descent_doublings=4),
    )
    run_shift(path, ShiftSettings(num_prompts=32, resamples=50))
    return path


def build_sweep(path: Path) -> Path:
    run_sweep(path, SWEEP)
    return path
