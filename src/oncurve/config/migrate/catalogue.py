"""What is known about the keys of another trainer: defaults, and what those without a counterpart do there."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any

from oncurve.types import did_you_mean


@dataclass(frozen=True, kw_only=True, slots=True)
class Remark:
    """One sentence for keys that decide nothing here."""

    keys: tuple[str, ...]
    """Names, or patterns with ``*``."""
    there: str
    """What it does there: a verb and its object."""
    here: str
    """What happens here."""
    only: tuple[Any, ...] = ()
    """Values that ask for what happens here, beside null, which asks for nothing."""

    def is_only_behaviour(self, value: Any) -> bool:
        return value is None or any(type(value) is type(known) and value == known for known in self.only)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The keys of one trainer."""

    trainer: str
    """Its name and version."""
    defaults: Mapping[str, Any]
    """Of the keys that decide something here."""
    remarks: tuple[Remark, ...]
    """On the others."""

    def find(self, key: str) -> Remark | None:
        """The remark on a key: by its name, else by the first pattern that fits."""
        for remark in self.remarks:
            if key in remark.keys:
                return remark
        fitting = (remark for remark in self.remarks if any(fnmatchcase(key, pattern) for pattern in remark.keys))
        return next(fitting, None)

    def knows(self, key: str) -> bool:
        """True for a key that this trainer has."""
        return key in self.defaults or self.find(key) is not None

    def nearest(self, key: str) -> str:
        """`` Did you mean X?`` for the nearest known key."""
        names = [name for remark in self.remarks for name in remark.keys if "*" not in name]
        return did_you_mean(key, [*self.defaults, *names])


def load_catalogue(name: str) -> Catalogue:
    """Read ``<name>.toml`` beside this module."""
    data = tomllib.loads(files("oncurve.config.migrate").joinpath(f"{name}.toml").read_text(encoding="utf-8"))
    return Catalogue(
        trainer=data["trainer"],
        defaults={**_dotted(data["defaults"]), **dict.fromkeys(data["unset"])},
        remarks=tuple(_remark(table) for table in data["remark"]),
    )


def _remark(table: Mapping[str, Any]) -> Remark:
    keys, only = (table.get("under", "") + key for key in table["keys"]), tuple(table.get("only", ()))
    return Remark(keys=tuple(keys), there=table["there"], here=table["here"], only=only)


def _dotted(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _dotted(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat
