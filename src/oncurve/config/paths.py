"""Make a config independent of the folder it is used from, so that a run can be resumed from anywhere."""

from pathlib import Path

from oncurve.config.run import RunConfig


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """The same config with absolute paths of task files, reward functions and model directories."""
    tasks, model = config.tasks, config.model
    files = {name: path.absolute() for name in ("path", "held_out_path") if (path := getattr(tasks, name)) is not None}
    components = {
        name: component.model_copy(update={"verifier": _absolute_function(component.verifier)})
        for name, component in config.reward.components.items()
    }
    model_path = str(Path(model.path).absolute()) if Path(model.path).is_dir() else model.path
    return config.model_copy(
        update={
            "tasks": tasks.model_copy(update=files),
            "reward": config.reward.model_copy(update={"components": components}),
            "model": model.model_copy(update={"path": model_path}),
        }
    )


def _absolute_function(verifier: str) -> str:
    """``file.py:function`` with the whole path of the file; the name of a built-in verifier as it is."""
    file, colon, function = verifier.rpartition(":")
    return f"{Path(file).absolute()}:{function}" if colon else verifier
