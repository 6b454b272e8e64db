"""From their file to our config, its formula, and the account of every key."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from oncurve.algo import describe_objective
from oncurve.config.migrate.catalogue import Catalogue, load_catalogue
from oncurve.config.migrate.ledger import Entry, Ledger
from oncurve.config.migrate.page import acting_defaults, write_report, write_toml
from oncurve.config.migrate.reading import read_overrides_or_values, read_values
from oncurve.config.migrate.trl import read_trl
from oncurve.config.migrate.verl import read_verl
from oncurve.config.run import RunConfig
from oncurve.report.readers import flattened
from oncurve.types import ConfigError

Trainer = Literal["trl", "verl"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Migration:
    """What became of their file."""

    toml: str
    """Our config, with reasons as comments."""
    config: RunConfig
    formula: str
    """What their settings minimise, as read."""
    entries: tuple[Entry, ...]
    """Every key of the file, then the defaults that the rules have read."""

    def report(self) -> str:
        """For people: the formula, then every key."""
        return write_report(self.entries, self.formula)

    def as_dict(self) -> dict[str, Any]:
        """For programs. Each key of the file stands in exactly one of ``mapped``, ``same`` and ``unmapped``."""
        given = [entry for entry in self.entries if entry.is_given]
        return {
            "config": self.toml,
            "formula": self.formula,
            "mapped": [entry.as_dict() for entry in given if entry.fate == "mapped"],
            "same": [entry.as_dict() for entry in given if entry.fate == "same"],
            "unmapped": [entry.as_dict() for entry in given if entry.fate == "absent"],
            "defaults_applied": [entry.as_dict() for entry in acting_defaults(self.entries)],
        }


def import_config(trainer: Trainer, path: Path, *, processes: int = 1) -> Migration:
    """Read the configuration of another trainer.

    Args:
        trainer: ``trl`` (a GRPOConfig as YAML or JSON, or the YAML of its script) or ``verl`` (YAML, Hydra overrides
            one a line, or a shell script with them).
        path: their file.
        processes: of their run; TRL's batch size is that of one of them.

    Raises:
        ConfigError: the file cannot be read, a value is not one that they would take, or the whole is refused here.
    """
    if processes < 1:
        raise ConfigError(f"--processes must be at least 1, got {processes}")
    catalogue = load_catalogue(trainer)
    given = read_values(path) if trainer == "trl" else read_overrides_or_values(path)
    _require_theirs(given, catalogue, trainer, path)
    book = Ledger(given, catalogue, str(path))
    if trainer == "trl":
        read_trl(book, processes)
    else:
        read_verl(book)
    entries = tuple(book.close())
    head = [f"Read from {path.name}, of {catalogue.trainer}, by oncurve import.", *filter(None, [book.remarks.get("")])]
    toml = write_toml(book.settings, book.remarks, head)
    config = _validated(toml, book, path)
    return Migration(toml=toml, config=config, formula=_formula(config, catalogue.trainer), entries=entries)


def _require_theirs(given: Mapping[str, Any], catalogue: Catalogue, trainer: Trainer, path: Path) -> None:
    """Refuse a file that is the other trainer's: more of its keys are known there than here."""
    other: Trainer = "verl" if trainer == "trl" else "trl"
    elsewhere, keys = load_catalogue(other), list(flattened(given))
    known, theirs = sum(map(catalogue.knows, keys)), sum(map(elsewhere.knows, keys))
    if known < theirs:
        raise ConfigError(
            f"{path}: {known} of its {len(keys)} keys are settings of {catalogue.trainer}, and {theirs} are of "
            f"{elsewhere.trainer}. Did you mean `oncurve import {other} {path}`?"
        )


def _formula(config: RunConfig, trainer: str) -> str:
    sampling = config.rollout.sampling
    formula = describe_objective(
        config.objective,
        group_size=config.rollout.group_size,
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
    )
    return f"{trainer}, as read\n\n{formula}"


def _validated(toml: str, book: Ledger, path: Path) -> RunConfig:
    try:
        return RunConfig.model_validate(tomllib.loads(toml))
    except ValidationError as error:
        lines = [_refusal(".".join(map(str, one["loc"])), one["msg"], book.settings_by_key()) for one in error.errors()]
        raise ConfigError(f"{path} cannot be a config here:\n" + "\n".join(lines)) from None


def _refusal(setting: str, message: str, by_key: Mapping[str, Mapping[str, Any]]) -> str:
    keys = [key for key, settings in by_key.items() if any(f"{name}.".startswith(f"{setting}.") for name in settings)]
    source = f" (from {', '.join(keys)})" if keys else ""
    return f"{setting or 'settings'}{source}: {message.removeprefix('Value error, ')}"
