"""Read the configuration files of other trainers into flat tables of dotted keys."""

import json
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from oncurve.config.migrate.shell import ShellError, parse_overrides
from oncurve.types import ConfigError

_FLOAT = re.compile(r"[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$")
"""``1e-6`` is a number to everybody but YAML 1.1."""


class _Loader(yaml.SafeLoader):
    """Plain YAML that refuses a key given twice, and reads 1e-6 as a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} stands there twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789"))


def read_values(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON file of settings; a table inside it is a value.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or holds no table of settings.
    """
    return _table(_text(path), path)


def read_overrides_or_values(path: Path) -> dict[str, Any]:
    """Read YAML or JSON, or Hydra overrides: one a line, or within a shell script.

    Raises:
        ConfigError: as ``read_values``; or the script computes a value in a way that is not evaluated here.
    """
    text = _text(path)
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        return _resolved(flatten(_table(text, path)), path)
    try:
        words = parse_overrides(text)
        return _resolved({key: parse_value(value) for key, value in words.items()}, path)
    except ShellError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_value(text: str) -> Any:
    """The value of an override, as Hydra reads it: numbers, booleans, null, lists; a string otherwise."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  # a SafeLoader
    except yaml.YAMLError:
        return text


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys; lists and empty tables are values."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        nested = isinstance(value, Mapping) and value
        flat |= flatten(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None


def _table(text: str, path: Path) -> dict[str, Any]:
    try:
        is_json = path.suffix.lower() == ".json"
        data = json.loads(text) if is_json else yaml.load(text, _Loader)  # noqa: S506  # a SafeLoader
    except (yaml.YAMLError, json.JSONDecodeError) as error:
        shown = " ".join(str(error).split())
        raise ConfigError(f"{path} is not valid {'JSON' if path.suffix == '.json' else 'YAML'}: {shown}") from None
    if not isinstance(data, dict) or not data:
        raise ConfigError(f"{path} holds no settings: expected keys and values, found {type(data).__name__}")
    return data


_REFERENCE = re.compile(r"\$\{(?:oc\.select:\s*)?([\w.]+)\s*(?:,\s*([^${}]*))?\}$")


def _resolved(flat: dict[str, Any], path: Path) -> dict[str, Any]:
    """Follow ``${other.key}`` and ``${oc.select:other.key,default}`` where they are a whole value."""
    return {key: _follow(key, value, flat, path, depth=0) for key, value in flat.items()}


def _follow(key: str, value: Any, flat: Mapping[str, Any], path: Path, depth: int) -> Any:
    match = _REFERENCE.match(value.strip()) if isinstance(value, str) else None
    if match is None:
        return value
    if depth > len(flat):
        raise ConfigError(f"{path}: {key} refers to itself through {value}")
    target, default = match.groups()
    if target.startswith("."):
        dots = len(target) - len(target.lstrip("."))
        target = ".".join([*key.split(".")[:-dots], target.lstrip(".")])
    if target in flat:
        return _follow(target, flat[target], flat, path, depth + 1)
    return value if default is None else parse_value(default.strip())
