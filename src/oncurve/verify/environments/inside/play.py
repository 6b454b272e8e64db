"""Carry the calls of episodes out, each on an environment of its own.

An environment is a function of its start and the calls so far, so an episode is played from its start whenever it
goes on: between two turns of a model there is no process, file or connection that could be left behind.

    {"file", "class", "limits", "start", "calls": [[name, arguments], ...]}  ►  {"answers": [[text, is_error]], "state"}
"""

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

_loaded: dict[str, Any] = {}
_root: list[Path] = []


class Environment(Protocol):
    """A small world with tools."""

    def reset(self, start: Mapping[str, Any]) -> None:
        """Put the world into its starting state."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Carry one call out and return what the model reads. Raises ValueError: the model's mistake, told to it."""

    def state(self) -> Any:
        """All of the world as plain data, equal for equal worlds."""


def serve(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Play episodes in this process, in a directory that ends with it."""
    if not _root:
        _root.append(_module_of(str(Path(__file__).with_name("private.py"))).private_root())
    return [_play(episode, _root[0]) for episode in episodes]


def _play(episode: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Play one episode from its start, in a directory of its own, which is removed again."""
    directory = Path(tempfile.mkdtemp(prefix="episode-", dir=root))
    try:
        world: Environment = getattr(_module_of(episode["file"]), episode["class"])(directory, episode["limits"])
        world.reset(episode["start"])
        answers = [_answer(world, name, arguments, episode["limits"]) for name, arguments in episode["calls"]]
        return {"answers": answers, "state": world.state()}
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _answer(world: Environment, name: str, arguments: Mapping[str, Any], limits: Mapping[str, Any]) -> list[Any]:
    try:
        text, is_error = world.call(name, arguments), False
    except ValueError as error:
        text, is_error = f"error: {error}", True
    most = limits["answer_chars"]
    return [text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)", is_error]


def _module_of(file: str) -> Any:
    """A module by its path: nothing of the package is in reach of this process."""
    if file not in _loaded:
        spec = importlib.util.spec_from_file_location(f"environment_{Path(file).stem}", file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module.__name__] = module
        spec.loader.exec_module(module)
        _loaded[file] = module
    return _loaded[file]
