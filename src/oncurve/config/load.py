"""TOML and command line to a validated RunConfig; every mistake becomes one ConfigError that says what to type."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel

from oncurve.config import words
from oncurve.config.run import RunConfig
from oncurve.config.words import EMBEDDED, nearest_below, read_table, run_table, settings_below, validated

__all__ = ["dump_config", "known_settings", "load_config", "nearest_setting", "override", "read_table", "validated"]


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a run's settings.

    Args:
        path: a TOML file; None takes the embedded default.
        overrides: command-line words such as ``--learner.lr 1e-4`` or ``--seed=3``; they win over the file. A preset
            named among them takes the place of the file's whole [objective]; a file of problems, without ``path``, that
            of the whole embedded default, which is made for another task.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or holds unknown, out-of-range or contradicting settings.
    """
    table = run_table(path, overrides, RunConfig)
    return validated(RunConfig, table, EMBEDDED if path is None else str(path), overrides)


def dump_config(config: RunConfig) -> str:
    """Render every setting, defaults included, as TOML; ``load_config`` of it gives an equal config."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def override(data: dict[str, Any], overrides: Sequence[str], model: type[BaseModel] = RunConfig) -> None:
    """Put settings of ``model`` such as ``--learner.lr 1e-4`` into a table. Raises ConfigError for other words."""
    words.override(data, overrides, model)


def known_settings(model: type[BaseModel] = RunConfig) -> list[str]:
    """Dotted names of every setting below ``model``."""
    return settings_below(model)


def nearest_setting(key: str, model: type[BaseModel] = RunConfig) -> str:
    """Name the setting that was probably meant: under another trainer's name, without its table, or mistyped."""
    return nearest_below(key, model)
