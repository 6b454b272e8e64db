"""Make the cells of a sweep: each is a run of the laboratory in a folder of its own.

A cell that is finished is not made again, and one that was interrupted continues from its checkpoint. All cells take
the same number of steps on prompts of the same length, so a larger network gets more computation, not more data.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from oncurve.icl.evaluate import held_out, predictions, squared_errors
from oncurve.icl.run import read_settings, settled_as
from oncurve.icl.settings import LabSettings
from oncurve.icl.sweep.baselines import class_baselines
from oncurve.icl.sweep.grid import SweepClass, SweepSettings, cell_settings, size_name
from oncurve.icl.sweep.result import Cell, SweepResult
from oncurve.icl.training import Training, train
from oncurve.report.storage import storage_errors
from oncurve.types import RunError

SWEEP_FILE = "sweep.json"
_CELL_FILE = "cell.json"


def run_sweep(
    folder: Path,
    settings: SweepSettings | None = None,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    on_cell: Callable[[Cell], None] = lambda _: None,
) -> SweepResult:
    """Make the cells of the grid that are missing, measure the baselines, and write ``sweep.json``.

    Args:
        folder: made if needed; holds a folder for each cell.
        settings: the grid. With other steps, batches or rates than the cells that are there, it needs another folder.
        should_stop: asked after every step; the interrupted cell continues next time.
        on_cell: told of every cell made in this sitting.

    Returns:
        What is finished; ``num_missing`` is 0 unless it was stopped.

    Raises:
        RunError: a cell was made with other settings.
        StorageError: the disk refused.
    """
    chosen = settings or SweepSettings()
    with storage_errors(folder, "create"):
        folder.mkdir(parents=True, exist_ok=True)
    cells: list[Cell] = []
    for lab in cell_settings(folder, chosen):
        is_new = not (Path(lab.run_dir or "") / _CELL_FILE).exists()
        cell = _make_cell(lab, should_stop)
        if cell is None:
            break
        cells.append(cell)
        if is_new:
            on_cell(cell)
        _write(folder, chosen, cells)
    return _write(folder, chosen, cells)


def _make_cell(lab: LabSettings, should_stop: Callable[[], bool]) -> Cell | None:
    """Return a cell, trained now if it is not yet; None when stopped before its end."""
    path = Path(lab.run_dir or "")
    if (path / "config.toml").exists():
        _require_same(path, lab)
        if (found := Cell.read_if_there(path / _CELL_FILE)) is not None:
            return found
        training = Training.resume(path)
    else:
        training = Training.create(lab, {"torch": torch.__version__})
    started, is_whole = time.process_time(), training.step == 0
    with training:
        for _ in train(training, should_stop):
            pass
        if not training.is_finished:
            return None
        cell = _measure_cell(training, time.process_time() - started if is_whole else None)
    cell.write(path / _CELL_FILE)
    return cell


def _require_same(path: Path, wanted: LabSettings) -> None:
    recorded = read_settings(path)
    found = recorded.model_dump(exclude={"run_dir"})
    mine = settled_as(wanted, recorded).model_dump(exclude={"run_dir"})
    if differing := sorted(name for name in mine if found[name] != mine[name]):
        raise RunError(
            f"{path} was made with other settings ({', '.join(differing)}). Name another folder for this sweep, "
            "or give it the settings of that one."
        )


def _measure_cell(training: Training, cpu_seconds: float | None) -> Cell:
    lab, network = training.settings, training.regressor
    prompts = held_out(lab, lab.eval_prompts)
    errors = squared_errors(lab, predictions(network.predict, prompts), prompts).mean(0)
    return Cell(
        label=SweepClass(functions=lab.functions, num_points=lab.points).label,
        network=size_name(lab.network),
        num_weights=sum(weights.numel() for weights in network.parameters() if weights.requires_grad),
        seed=lab.seed,
        steps=lab.steps,
        errors=tuple(errors.tolist()),
        cpu_seconds=cpu_seconds,
    )


def _write(folder: Path, settings: SweepSettings, cells: Sequence[Cell]) -> SweepResult:
    done = {cell.label for cell in cells}
    curves = [
        curve for one in settings.classes if one.label in done for curve in class_baselines(folder, settings, one)
    ]
    result = SweepResult(settings=settings, cells=tuple(cells), baselines=tuple(curves))
    result.write(folder / SWEEP_FILE)
    return result
