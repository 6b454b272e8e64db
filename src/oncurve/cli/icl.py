"""The commands of the in-context laboratory."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from oncurve.cli.interrupt import STOPPED
from oncurve.cli.words import split_words

Words = Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON object on stdout.")]
LinearRun = Annotated[Path, Parameter(help="The run folder, of linear functions.")]

icl = App(
    name="icl",
    help="The in-context laboratory: train a transformer to regress from examples, and see which algorithm it found.",
    help_epilogue="Settings can follow train, sweep, probe and shift: oncurve icl train --optimizer.lr 1e-3 --seed 3",
)


@icl.command
def train(*words: Words, preset: Literal["ci", "full", "paper"] = "ci", as_json: Json = False) -> None:
    """Train on new functions at every step: [CONFIG.toml] [--preset ci] [--setting value ...].

    A file changes the preset, settings behind the command change both: --functions.dimension 8 --steps 6000

    Parameters
    ----------
    preset:
        ci: d = 5 in minutes on one thread. full: d = 8, within an hour on two cores. paper: Garg et al., for a GPU.
    """
    from oncurve.cli.icl_run import train_lab

    path, overrides = split_words(words)
    finish_run(train_lab(path, preset, overrides), as_json)


@icl.command
def resume(run: Path, *, as_json: Json = False) -> None:
    """Continue the training in a folder from its last checkpoint; the result equals an uninterrupted one."""
    from oncurve.cli.icl_run import resume_lab

    finish_run(resume_lab(run), as_json)


@icl.command(name="eval")
def evaluate(run: Path, *, prompts: int | None = None, as_json: Json = False) -> None:
    """Measure E(n), the error after n examples, on held-out prompts, beside least squares and other predictors.

    Parameters
    ----------
    run:
        The run folder; its last checkpoint is examined, and eval/step_N.json and .csv are written.
    prompts:
        Held-out prompts, at least 2; without it, as many as the run's eval_prompts.
    """
    from oncurve.cli.icl_run import eval_lab

    finish(eval_lab(run, prompts), as_json)


@icl.command
def probe(run: LinearRun, *words: Words, as_json: Json = False) -> None:
    """Read a prediction out of every layer and match it with iterates of Newton and gradient descent.

    Writes probe.json. Its settings can follow: --fit_prompts 4096 --held_out_prompts 1024
    """
    from oncurve.cli.icl_measure import probe_lab

    _show(probe_lab(run, words), as_json)


@icl.command
def shift(run: LinearRun, *words: Words, as_json: Json = False) -> None:
    """Measure prompts unlike those of training: scaled weights and inputs, subspaces, skewed inputs, noise, queries.

    Writes shift.json. Its settings can follow: --num_prompts 1024 --resamples 1000
    """
    from oncurve.cli.icl_measure import shift_lab

    _show(shift_lab(run, words), as_json)


@icl.command
def sweep(*words: Words, to: Path = Path("runs/icl-sweep"), as_json: Json = False) -> None:
    """Train sizes of network on sparse functions, trees and two-layer networks: [CONFIG.toml] [--setting value ...].

    Cells that are there already are kept, so the same command goes on after an interruption. Settings, for
    example: --steps 2000 --seeds "[0, 1, 2]"

    Parameters
    ----------
    to:
        Folder of the sweep, with a run folder for each cell and sweep.json.
    """
    from oncurve.cli.icl_measure import sweep_lab

    path, overrides = split_words(words)
    found = sweep_lab(path, overrides, to)
    _show(found, as_json)
    if not found["is_finished"]:
        sys.exit(STOPPED)


@icl.command
def report(run: Path, *, sweep: Path | None = None, rl_run: Path | None = None, as_json: Json = False) -> None:
    """Write report.html for a run of the laboratory, with everything that was measured of it.

    Parameters
    ----------
    run:
        The run folder.
    sweep:
        Folder of `oncurve icl sweep`, for the part on sizes.
    rl_run:
        Folder of `oncurve train`: the length of its completions beside their error.
    """
    from oncurve.icl.report import render_lab_report

    finish({"report": str(render_lab_report(run, sweep=sweep, rl_run=rl_run))}, as_json)


def _show(result: dict[str, Any], as_json: bool) -> None:
    """The JSON object, or what was found, a sentence each."""
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
        return
    for found in result["findings"]:
        print(f"{found['verdict']:<12} {found['text']}\n{'':<12} {found['source']}: {found['condition']}\n")
    print(f"written: {result['written']}")


def finish_run(result: dict[str, Any], as_json: bool) -> None:
    """Show a training; exit code 130 when it was stopped before its end."""
    finish(result, as_json)
    if not result["is_finished"]:
        sys.exit(STOPPED)


def finish(result: dict[str, Any], as_json: bool) -> None:
    """The JSON object whole, or its figures a line each with four digits."""
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
        return
    for name, value in result.items():
        print(f"{name}: {_short(value)}")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_short, value))}]"
    return value if isinstance(value, str) else json.dumps(value)
