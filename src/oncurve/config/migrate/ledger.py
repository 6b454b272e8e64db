"""The book of a migration: what became of every key of their file, and why.

A key ends in exactly one of three ways, decided once all rules have run:

- ``absent``: something of it has no counterpart here, and a sentence says what
- ``mapped``: it decided one or more of our settings
- ``same``: it asks for what happens here anyway
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

from oncurve.config.migrate.catalogue import Catalogue
from oncurve.types import ConfigError, did_you_mean

Fate = Literal["mapped", "same", "absent"]


@dataclass
class Entry:
    """One key of theirs."""

    key: str
    value: Any
    is_given: bool
    """False: the file is silent, and the value is their default."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Our settings that it decided."""
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What of it has no counterpart here."""

    @property
    def fate(self) -> Fate:
        if self.missing:
            return "absent"
        return "mapped" if self.settings else "same"

    @property
    def text(self) -> str:
        return " ".join([*self.missing, *self.notes])

    def as_dict(self) -> dict[str, Any]:
        return {"key": self.key, "value": self.value, "settings": self.settings, "note": self.text}


class Ledger:
    """Reads their keys with their defaults, writes our settings, and remembers the connection.

    Args:
        given: the keys of their file, dotted where nested.
        catalogue: what is known about their keys.
        where: the file, for messages.
    """

    def __init__(self, given: Mapping[str, Any], catalogue: Catalogue, where: str) -> None:
        self.where = where
        self.settings: dict[str, Any] = {}
        """Ours, dotted."""
        self.remarks: dict[str, str] = {}
        """Comments for lines of our file, by setting; "" for its head."""
        self._given = given
        self._catalogue = catalogue
        self._entries: dict[str, Entry] = {}

    def is_given(self, *keys: str) -> bool:
        return any(key in self._given for key in keys)

    def value(self, key: str) -> Any:
        """Their value: what the file says, else their default."""
        return self._given[key] if key in self._given else self._catalogue.defaults[key]

    def number(self, key: str) -> float:
        """A finite number.

        Raises:
            ConfigError: it is something else.
        """
        return float(self._checked(key, (int, float), "a number"))

    def whole(self, key: str, least: int = 1) -> int:
        """A whole number of at least ``least``.

        Raises:
            ConfigError: it is something else.
        """
        value = self._checked(key, (int,), "a whole number")
        if value < least:
            raise self.error(key, f"must be at least {least}")
        return int(value)

    def flag(self, key: str) -> bool:
        """True or false.

        Raises:
            ConfigError: it is something else.
        """
        value = self.value(key)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise self.error(key, "must be true or false")
        return value

    def choice(self, key: str, known: Sequence[str]) -> str:
        """One of several words.

        Raises:
            ConfigError: it is none of them; the nearest is named.
        """
        value = self.value(key)
        if value not in known:
            raise self.error(key, f"must be one of {', '.join(known)}.{did_you_mean(str(value), known)}")
        return str(value)

    def error(self, key: str, problem: str) -> ConfigError:
        """A message that names the file, the key and its value."""
        return ConfigError(f"{self.where}: {key} {problem} (got {self.value(key)!r})")

    def write(self, setting: str, value: Any, *keys: str, note: str = "") -> None:
        """Set one of ours because of these keys of theirs; ``note`` says how the two differ."""
        self.settings[setting] = value
        for key in keys:
            entry = self._entry(key)
            entry.settings[setting] = value
            if note and note not in entry.notes:
                entry.notes.append(note)

    def same(self, key: str, why: str) -> None:
        """Theirs asks for what happens here anyway, or does nothing there either."""
        self._entry(key).notes.append(why)

    def absent(self, key: str, what: str) -> None:
        """Say what it does there and what happens here instead."""
        self._entry(key).missing.append(what)

    def close(self) -> list[Entry]:
        """Settle the keys that no rule has read; all entries, in the order of the file, then their defaults."""
        for key, value in self._given.items():
            if key not in self._entries:
                self._settle(key, value)
        given = [self._entries[key] for key in self._given]
        return [*given, *(entry for entry in self._entries.values() if not entry.is_given)]

    def settings_by_key(self) -> dict[str, dict[str, Any]]:
        """Which of ours each key of theirs decided."""
        return {key: entry.settings for key, entry in self._entries.items()}

    def _settle(self, key: str, value: Any) -> None:
        remark = self._catalogue.find(key)
        if remark is None and key in self._catalogue.defaults:
            if value is None or value == self._catalogue.defaults[key]:
                self.same(key, "It is off, or has no part in this combination.")
            else:
                self.absent(
                    key, "It belongs to a part of theirs that the other keys leave out here; it decides nothing."
                )
        elif remark is None:
            nearest = self._catalogue.nearest(key)
            self.absent(
                key, f"unknown: {self._catalogue.trainer} has no such setting.{nearest} It decides nothing here."
            )
        elif remark.is_only_behaviour(value):
            self.same(key, remark.here)
        else:
            self.absent(key, f"There it {remark.there}; here {remark.here}.")

    def _checked(self, key: str, types: tuple[type, ...], what: str) -> int | float:
        value = self.value(key)
        if isinstance(value, float) and value.is_integer() and float not in types:
            value = int(value)
        is_number = isinstance(value, (int, float)) and isinstance(value, types) and not isinstance(value, bool)
        if not is_number or not isfinite(value):
            raise self.error(key, f"must be {what}")
        return float(value) if float in types else int(value)

    def _entry(self, key: str) -> Entry:
        if key not in self._entries:
            self._entries[key] = Entry(key=key, value=self.value(key), is_given=key in self._given)
        return self._entries[key]
