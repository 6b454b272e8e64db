"""From ``model.path`` to a directory that can be loaded, or one clear error."""

from pathlib import Path

from oncurve.model.embedded import embedded_directory
from oncurve.model.smollm2 import smollm2_directory
from oncurve.types import ModelError, did_you_mean

SOURCES = ("embedded", "smollm2")
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")


def resolve_directory(path: str) -> Path:
    """The directory behind ``model.path``, with config, weights and tokenizer found in it.

    Raises:
        ModelError: there is no such directory, or one of the three is missing.
    """
    if path == "embedded":
        directory = embedded_directory()
        return _complete(directory, f"It is made by supervised learning: run `oncurve sft --to {directory}`.")
    if path == "smollm2":
        return _complete(smollm2_directory(), "Delete that directory to have it converted again.")
    directory = Path(path).expanduser()
    if not directory.is_dir():
        raise ModelError(_no_directory(path, directory))
    return _complete(directory, "Give the directory that save_pretrained wrote.")


def _no_directory(path: str, directory: Path) -> str:
    siblings = []
    if directory.parent.is_dir():
        siblings = [str(Path(path).parent / each.name) for each in directory.parent.iterdir() if each.is_dir()]
    near = did_you_mean(path, [*SOURCES, *siblings])
    return (
        f"model.path = {path!r} is not a directory.{near} It is {' or '.join(map(repr, SOURCES))}, or a directory with "
        "config.json, weights and a tokenizer. Models are never downloaded: fetch one beforehand and give its path."
    )


def _complete(directory: Path, remedy: str) -> Path:
    if (directory / "adapter_config.json").is_file() and not (directory / "config.json").is_file():
        raise ModelError(
            f"{directory} holds a LoRA adapter without its model. Give the directory of the merged model, "
            "one level above an adapter that oncurve saved."
        )
    for what, names in (("config", ("config.json",)), ("weights", _WEIGHTS), ("tokenizer", _TOKENIZER)):
        if not any((directory / name).is_file() for name in names):
            raise ModelError(f"{directory} has no {what}: none of {', '.join(names)} is there. {remedy}")
    return directory
