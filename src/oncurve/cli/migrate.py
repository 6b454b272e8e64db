"""The import command: read another trainer's file, write ours."""

from pathlib import Path
from typing import Literal

from oncurve.config.migrate import Migration, import_config
from oncurve.types import ConfigError, StorageError


def import_file(trainer: Literal["trl", "verl"], file: Path, *, to: Path | None, processes: int) -> Migration:
    """Read their file and, with ``to``, write our TOML there.

    Raises:
        ConfigError: see ``import_config``; or ``to`` exists already.
        StorageError: ``to`` cannot be written.
    """
    if to is not None and to.exists():
        raise ConfigError(f"{to} exists already, and it may hold changes of yours. Give --to another name.")
    found = import_config(trainer, file, processes=processes)
    if to is not None:
        try:
            to.write_text(found.toml, encoding="utf-8")
        except OSError as error:
            raise StorageError(f"cannot write {to}: {error}") from None
    return found
