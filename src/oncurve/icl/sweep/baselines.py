"""The baselines of a sweep, measured once for each class of functions and kept in a file."""

from pathlib import Path

from oncurve.icl.baselines import Baseline, quick_baselines_for, strong_baselines_for, strong_counts
from oncurve.icl.evaluate import held_out
from oncurve.icl.functions import Prompts, normaliser
from oncurve.icl.records import Record
from oncurve.icl.settings import LabSettings
from oncurve.icl.sweep.grid import SweepClass, SweepSettings
from oncurve.icl.sweep.result import BaselineCurve


class _Curves(Record):
    """The baselines of one class, kept in a file since some take minutes."""

    seed: int
    eval_prompts: int
    baseline_prompts: int
    num_counts: int
    network_steps: int = 5000
    curves: tuple[BaselineCurve, ...]


def class_baselines(folder: Path, settings: SweepSettings, one: SweepClass) -> tuple[BaselineCurve, ...]:
    """Return the curves of a class: those of the folder if they were measured with the same settings, else new ones.

    Raises:
        RunError, StorageError: the file cannot be read or written.
    """
    path = folder / f"baselines-{one.label}.json"
    wanted = {
        "seed": settings.seeds[0],
        "eval_prompts": settings.eval_prompts,
        "baseline_prompts": settings.baseline_prompts,
        "num_counts": settings.num_counts,
        "network_steps": settings.network_steps,
    }
    found = _Curves.read_if_there(path)
    if found is None or found.model_dump(exclude={"curves"}) != wanted:
        found = _Curves(curves=_measure_baselines(settings, one), **wanted)
        found.write(path)
    return found.curves


def _measure_baselines(settings: SweepSettings, one: SweepClass) -> tuple[BaselineCurve, ...]:
    lab = LabSettings(functions=one.functions, num_points=one.num_points, seed=settings.seeds[0])
    prompts = held_out(lab, settings.eval_prompts)
    some = held_out(lab, min(settings.baseline_prompts, settings.eval_prompts))
    counts = strong_counts(one.num_points, settings.num_counts)
    strong = strong_baselines_for(one.functions, counts, network_steps=settings.network_steps)
    return (
        *(_curve(one, baseline, prompts, is_strong=False) for baseline in quick_baselines_for(one.functions)),
        *(_curve(one, baseline, some, is_strong=True) for baseline in strong),
    )


def _curve(one: SweepClass, baseline: Baseline, prompts: Prompts, *, is_strong: bool) -> BaselineCurve:
    errors = (baseline.predict(prompts.inputs, prompts.targets) - prompts.clean).double().square().mean(0)
    scaled = (errors / normaliser(one.functions)).tolist()
    return BaselineCurve(
        label=one.label,
        name=baseline.name,
        is_strong=is_strong,
        errors=tuple(None if error != error else error for error in scaled),
    )
