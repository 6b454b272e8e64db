"""Commands of the in-context laboratory that train and examine."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oncurve.cli.interrupt import Interrupt
from oncurve.cli.view import RunView, figures
from oncurve.config.load import override, read_table, validated
from oncurve.icl.evaluate_run import Examination, examine_run
from oncurve.icl.presets import PRESETS, Preset
from oncurve.icl.settings import LabSettings
from oncurve.icl.training import Measured, Training, train
from oncurve.model.threads import use_threads
from oncurve.train.environment import describe_environment

_SHOWN = (("loss", "loss", ".4f"), ("held out", "eval/mean", ".4f"), ("last point", "eval/last", ".4f"))


def lab_settings(path: Path | None, preset: Preset, overrides: Sequence[str]) -> LabSettings:
    """A preset, changed by a file, changed by words such as ``--functions.dimension 8``.

    Raises:
        ConfigError: one line for each setting that is unknown, out of range or contradicts another.
    """
    table = _merged(PRESETS[preset], {} if path is None else read_table(path, "icl train"))
    override(table, overrides, LabSettings)
    return validated(LabSettings, table, f"preset {preset}" if path is None else str(path), overrides)


def train_lab(path: Path | None, preset: Preset, overrides: Sequence[str]) -> dict[str, Any]:
    """Start a run of the laboratory and follow it to its end."""
    settings = lab_settings(path, preset, overrides)
    environment = describe_environment(
        num_threads=use_threads(settings.threads), weights=f"drawn from seed {settings.seed}"
    )
    with Training.create(settings, environment) as training:
        return _follow(training)


def resume_lab(run: Path) -> dict[str, Any]:
    """Continue a run of the laboratory and follow it to its end."""
    with Training.resume(run) as training:
        return _follow(training)


def _follow(training: Training) -> dict[str, Any]:
    path = training.folder.path
    goes_on = f"continue with: oncurve icl resume {path}"
    with RunView(training.settings.steps, training.step) as view, Interrupt(goes_on) as is_interrupted:
        view.line(f"run folder {path}\n\n{training.folder.formula}")
        for event in train(training, should_stop=is_interrupted):
            if isinstance(event, Measured):
                view.step(event.step, figures(event.metrics, _SHOWN))
        if not training.is_finished:
            view.line(f"stopped after {training.step} steps; {goes_on}")
            return _result(training, None)
        view.line("examining held-out prompts")
        return _result(training, examine_run(path))


def eval_lab(run: Path, num_prompts: int | None) -> dict[str, Any]:
    """Examine the last checkpoint of a run."""
    return {"run_dir": str(run), **examine_run(run, num_prompts).summary()}


def _result(training: Training, found: Examination | None) -> dict[str, Any]:
    return {
        "run_dir": str(training.folder.path),
        "steps": training.step,
        "is_finished": training.is_finished,
        "seconds": round(training.seconds, 3),
        "cpu_seconds": round(training.cpu_seconds, 3),
        **(found.summary() if found else {}),
        "next": f"oncurve icl {'report' if training.is_finished else 'resume'} {training.folder.path}",
    }


def _merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of nested tables, with what ``change`` names taken from it."""
    merged = {name: dict(value) if isinstance(value, Mapping) else value for name, value in base.items()}
    for name, value in change.items():
        inner = merged.get(name)
        merged[name] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return merged
