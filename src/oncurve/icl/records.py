"""Results as files: frozen data, one JSON document each."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from oncurve.report.readers import read_text
from oncurve.report.storage import write_text
from oncurve.types import RunError


class Record(BaseModel):
    """A finished measurement. Numbers are finite; None stands for what was not measured."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    def write(self, path: Path) -> None:
        """Replace the file by this record. Raises StorageError."""
        write_text(path, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the record that a file holds.

        Raises:
            RunError: the file holds something else.
            StorageError: the disk refused.
        """
        try:
            return cls.model_validate_json(read_text(path))
        except ValidationError as error:
            raise RunError(
                f"{path} is not a {cls.__name__} of this version: {error.errors()[0]['msg']} "
                f"at {error.errors()[0]['loc']}. Measure it again."
            ) from error

    @classmethod
    def read_if_there(cls, path: Path) -> Self | None:
        """Return the record, or None when there is no file. Raises as ``read``."""
        return cls.read(path) if path.exists() else None
