"""Make a config independent of the folder it is used from, so that a run can be resumed from anywhere."""

from pathlib import Path
from typing import Any, TypeVar

from oncurve.config.run import RunConfig
from oncurve.evaluate.adversarial import BUILT_IN
from oncurve.types import Settings
from oncurve.verify import ComponentSettings
from oncurve.verify.judges import REWARD_MODEL

_S = TypeVar("_S", bound=Settings)


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """The same config with absolute paths of data files, runs, reward functions and model directories."""
    model = config.model
    components = {
        name: component.model_copy(
            update={"verifier": _absolute_function(component.verifier), "options": _absolute_options(component)}
        )
        for name, component in config.reward.components.items()
    }
    evaluation, hostile = config.evaluation, config.evaluation.adversarial
    if hostile not in ("", BUILT_IN):
        evaluation = evaluation.model_copy(update={"adversarial": str(Path(hostile).absolute())})
    model_path = str(Path(model.path).absolute()) if Path(model.path).is_dir() else model.path
    return config.model_copy(
        update={
            "tasks": _absolute_files(config.tasks, "path", "held_out_path"),
            "dpo": _absolute_files(config.dpo, "pairs", "rollouts"),
            "sft": _absolute_files(config.sft, "examples"),
            "reward": config.reward.model_copy(update={"components": components}),
            "evaluation": evaluation,
            "model": model.model_copy(update={"path": model_path}),
        }
    )


def _absolute_files(settings: _S, *names: str) -> _S:
    found = {name: path.absolute() for name in names if (path := getattr(settings, name)) is not None}
    return settings.model_copy(update=found)


def _absolute_options(component: ComponentSettings) -> dict[str, Any]:
    """The options with the whole path of a reward model."""
    if component.verifier != REWARD_MODEL or "path" not in component.options:
        return component.options
    return component.options | {"path": str(Path(component.options["path"]).expanduser().absolute())}


def _absolute_function(verifier: str) -> str:
    """``file.py:function`` with the whole path of the file; the name of a built-in verifier as it is."""
    file, colon, function = verifier.rpartition(":")
    return f"{Path(file).absolute()}:{function}" if colon else verifier
