"""The folder of a run of the laboratory: settings in, settings and network out.

::

    config.toml    the settings                  metrics.jsonl   a line every few steps
    formula.txt    the loss, spelled out         checkpoints/    step_N.pt
    environment.json                             eval/           step_N.json, held-out prompts
"""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import tomli_w
import torch
from pydantic import ValidationError

from oncurve.icl.functions import FunctionSettings, normaliser
from oncurve.icl.network import Regressor, settle_precision
from oncurve.icl.records import Record
from oncurve.icl.settings import LabSettings
from oncurve.icl.training_checkpoint import list_checkpoints, load_checkpoint
from oncurve.report import RunFolder
from oncurve.report.readers import run_path
from oncurve.types import RunError, derive_seed

_R = TypeVar("_R", bound=Record)


def new_regressor(settings: LabSettings) -> Regressor:
    """The network of a run before its first step: the same weights each time, on the run's device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("icl", "weights", settings.seed) % 2**63)
        device = torch.device(settings.device)
        return Regressor(settings.network, settings.functions.dimension, settings.points, device)


def generator(settings: LabSettings, *purpose: str | int) -> torch.Generator:
    """Random numbers that belong to a purpose, such as ("train", step): the same each time."""
    seed = derive_seed("icl", settings.seed, *purpose) % 2**63
    return torch.Generator(device=settings.device).manual_seed(seed)


def formula(settings: LabSettings) -> str:
    """The loss of a run with its numbers put in."""
    divisor = normaliser(settings.functions)
    noise = f" + N(0, {settings.functions.noise_std:g}^2)" if settings.functions.noise_std else ""
    return (
        f"loss = mean over {settings.batch_size} prompts and n = 0..{settings.points - 1} of "
        f"(prediction_n - y_n)^2 / {divisor:g}\n"
        f"prediction_n sees (x_0, y_0), ..., (x_n-1, y_n-1), x_n in the {settings.network.layout} layout\n"
        f"y = f(x){noise}, x ~ N(0, I_{settings.functions.dimension}), "
        f"f: a new {settings.functions.kind} function for every prompt\n"
    )


def settled(settings: LabSettings, num_threads: int) -> LabSettings:
    """The same settings with what ``threads = 0`` and ``precision = "auto"`` mean here written out.

    Args:
        settings: of a new run.
        num_threads: threads of tensor work; they also decide how much bfloat16 gains.
    """
    network = settle_precision(settings.network, torch.device(settings.device))
    return settings.model_copy(update={"network": network, "threads": num_threads})


def settled_as(settings: LabSettings, recorded: LabSettings) -> LabSettings:
    """The same settings with what they leave to the machine as an earlier run settled it."""
    network = settings.network
    if network.precision == "auto":
        network = network.model_copy(update={"precision": recorded.network.precision})
    return settings.model_copy(update={"network": network, "threads": settings.threads or recorded.threads})


def dump_settings(settings: LabSettings) -> str:
    """Every setting as TOML."""
    return tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True))


def read_settings(path: Path) -> LabSettings:
    """The settings of a run folder.

    Raises:
        RunError: there is no run of the laboratory in it.
    """
    run_path(path, made_by="oncurve icl train")
    try:
        return LabSettings.model_validate(tomllib.loads(RunFolder.open(path).config_toml))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise RunError(
            f"{path} is not a run of the in-context laboratory, its config.toml holds other settings. "
            "Name a folder that `oncurve icl train` made."
        ) from error


def load_run(path: Path) -> tuple[LabSettings, Regressor, int]:
    """The settings of a run, its network after the last checkpoint on the CPU, ready to predict, and its steps so far.

    Raises:
        RunError: there is no such run, or it has no checkpoint yet.
    """
    settings = read_settings(path).model_copy(update={"device": "cpu"})
    found = list_checkpoints(path / "checkpoints")
    if not found:
        raise RunError(f"{path} has no checkpoint yet: let it train for {settings.checkpoint_every} steps at least")
    regressor = new_regressor(settings)
    state = load_checkpoint(found[-1])
    regressor.load_state_dict(state["weights"])
    return settings, regressor.eval().requires_grad_(False), int(state["step"])


def measure_run(run: Path, file: str, measure: Callable[[FunctionSettings, Regressor], _R]) -> _R:
    """Measure the network of a run and write the result into its folder, under a name.

    Args:
        run: a folder that `oncurve icl train` made.
        file: name of the result in it.
        measure: takes the functions that the network was trained on, and the network.

    Raises:
        RunError, StorageError: the run cannot be read, or the result not be written.
    """
    settings, network, _ = load_run(run)
    result = measure(settings.functions, network)
    result.write(run / file)
    return result
