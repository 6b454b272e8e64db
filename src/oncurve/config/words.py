"""TOML and command-line words to settings; every mistake becomes one ConfigError that says what to type. No torch."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from oncurve.types import ConfigError, Settings, did_you_mean

_S = TypeVar("_S", bound=Settings)

EMBEDDED = "the embedded default"

PRESET = "objective.preset"
TASK_FILE = "tasks.path"
TASK_SOURCE = "tasks.source"

Command = Literal["train", "compare", "icl train"]

_ONLY_IN: dict[Command, tuple[str, ...]] = {
    "train": ("model", "tasks", "rollout", "reward", "objective", "learner", "evaluation"),
    "compare": ("arms",),
    "icl train": ("functions", "network"),
}
"""Tables that only the files of one command have."""


def run_table(path: Path | None, overrides: Sequence[str], model: type[BaseModel]) -> dict[str, Any]:
    """The settings of a run as they stand in its file, changed by words, not yet checked.

    Args:
        path: a TOML file; None takes the embedded default.
        overrides: words such as ``--learner.lr 1e-4``; see ``load_config`` for what they replace as a whole.
        model: whose names are proposed for words that are no settings.

    Raises:
        ConfigError: the file cannot be read or is not TOML, or a word is no setting.
    """
    data = read_table(path, "train")
    given = {key for key, _ in _given(overrides, model)}
    if PRESET in given:
        data.pop("objective", None)
    if path is None and TASK_FILE in given and TASK_SOURCE not in given:
        data = {"tasks": {"source": "file"}}
    override(data, overrides, model)
    return data


def read_table(path: Path | None, command: Command | None = None) -> dict[str, Any]:
    """Read a TOML file as it stands; None reads the embedded default.

    Args:
        path: the file.
        command: whose settings it should hold.

    Raises:
        ConfigError: it cannot be read, is not TOML, or holds the settings of another command.
    """
    table = _table(path)
    if command is not None:
        _refuse_other_command(table, path, command)
    return table


def _refuse_other_command(table: Mapping[str, Any], path: Path | None, command: Command) -> None:
    """Say once whose settings these are, instead of once a setting that they are unknown."""
    for other, names in _ONLY_IN.items():
        found = [name for name in names if name in table]
        if found and not any(name in table for name in _ONLY_IN[command]):
            raise ConfigError(
                f"{path} holds settings of `oncurve {other}` ([{found[0]}]), and not of `oncurve {command}`."
            )


def _table(path: Path | None) -> dict[str, Any]:
    try:
        if path is None:
            text = files("oncurve.config").joinpath("embedded.toml").read_text(encoding="utf-8")
        else:
            text = path.read_text(encoding="utf-8-sig")  # Windows editors begin it with a mark
    except FileNotFoundError:
        nearby = (entry.name for entry in path.parent.glob("*.toml")) if path is not None else ()
        raise ConfigError(f"there is no config file {path}.{did_you_mean(path.name if path else '', nearby)}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder, and a config is one TOML file.{_inside(path)}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is no config file: byte 0x{error.object[error.start]:02x} at {error.start} is no text in UTF-8. "
            f"{_toml_hint(path)}"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}. {_toml_hint(path)}") from None


def _inside(folder: Path | None) -> str:
    """The config files that lie in a folder."""
    names = sorted(str(entry) for entry in folder.glob("*.toml")) if folder is not None else []
    return f" It holds {', '.join(names[:3])}: name one of them." if names else ""


def _toml_hint(path: Path | None) -> str:
    if path is not None and path.suffix == ".py":
        return (
            f"A reward function is named with its file: oncurve audit {path}:FUNCTION. In a config it is the verifier "
            f'of a component: [reward.components.NAME] verifier = "{path}:FUNCTION"'
        )
    if path is not None and path.suffix in (".jsonl", ".ndjson", ".parquet", ".pq"):
        return f"A file of problems is named by a setting: --tasks.path {path}"
    if path is not None and path.suffix in (".yaml", ".yml", ".json", ".sh"):
        return f"The configuration of another trainer is read by: oncurve import trl {path} (or: import verl)."
    return "Strings need quotes, tables are written [like.this]."


def override(data: dict[str, Any], overrides: Sequence[str], model: type[BaseModel]) -> None:
    """Put settings of ``model`` such as ``--learner.lr 1e-4`` into a table. Raises ConfigError for other words."""
    for key, value in _given(overrides, model):
        _insert(data, key, value)


def validated(model: type[_S], data: Mapping[str, Any], where: str, overrides: Sequence[str] = ()) -> _S:
    """Make settings of a table.

    Args:
        model: which.
        data: the table.
        where: it comes from, for people.
        overrides: what was put into it from the command line.

    Raises:
        ConfigError: one line for each setting that is unknown, out of range or contradicts another.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        typed = {key for key, _ in _given(overrides, model)}
        lines = (_explain_one(detail, where, typed, model) for detail in error.errors())
        raise ConfigError("\n".join(lines)) from None


def _given(overrides: Sequence[str], model: type[BaseModel]) -> list[tuple[str, Any]]:
    return [(key.replace("-", "_"), value) for key, value in _parse_overrides(overrides, model)]


def _parse_overrides(words: Sequence[str], model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or word == "--":
            example = next((one for one in _EXAMPLES if one.split()[0] in settings_below(model)), "name value")
            raise ConfigError(f"expected a setting such as --{example}, got {word!r}")
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not rest or rest[0].startswith("--"):
                hint = "" if key.replace("-", "_") in settings_below(model) else nearest_below(key, model)
                raise ConfigError(f"--{key} needs a value, as in --{key} VALUE or --{key}=VALUE.{hint}")
            value = rest.pop(0)
        yield key, _parse_value(value)


def _parse_value(text: str) -> Any:
    """TOML where it is TOML (numbers, booleans, lists, quoted strings), a plain string otherwise."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _insert(data: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    table = data
    for parent in parents:
        child = table.setdefault(parent, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--{key}: {parent} is a single value, it has no settings inside")
        table = child
    table[last] = value


def settings_below(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Dotted names of every setting below ``model``."""
    names = []
    for name, field in model.model_fields.items():
        names.append(prefix + name)
        for child in _nested_models(field.annotation):
            names.extend(settings_below(child, f"{prefix}{name}."))
    return names


_EXAMPLES = ("learner.lr 1e-4", "optimizer.lr 1e-3", "seed 3", "steps 2000")
"""The first that exists is shown to who types something that is no setting."""

_OTHER_NAMES = {
    "learning_rate": "learner.lr",
    "warmup": "learner.warmup_steps",
    "num_generations": "rollout.group_size",
    "rollout_n": "rollout.group_size",
    "max_completion_length": "rollout.sampling.max_tokens",
    "max_new_tokens": "rollout.sampling.max_tokens",
    "max_steps": "steps",
    "num_iterations": "learner.updates_per_rollout",
    "beta": "objective.kl_coef",
    "epsilon": "objective.clip_low",
    "epsilon_high": "objective.clip_high",
    "loss_type": "objective.aggregation",
    "scale_rewards": "objective.advantage.estimator",
    "mask_truncated_completions": "objective.mask_truncated",
    "output_dir": "output",
    "model_name_or_path": "model.path",
    "dataset": "tasks.path",
    "r": "model.lora.rank",
    "lora_r": "model.lora.rank",
    "lora_alpha": "model.lora.alpha",
}
"""What other trainers call a setting, by the last part of the name."""


def nearest_below(key: str, model: type[BaseModel]) -> str:
    """Name the setting that was probably meant: under another trainer's name, without its table, or mistyped."""
    known, last = [*settings_below(model), *_in_named_tables(model, key)], key.rpartition(".")[2]
    ours = _OTHER_NAMES.get(last, last)
    if ours in known:
        return f" Did you mean {ours}?"
    inside = [name for name in known if f".{name}".endswith(f".{ours.rpartition('.')[2]}")]
    if inside:
        return f" Did you mean {inside[0]}?"
    table = key.rpartition(".")[0]
    beside = [name.rpartition(".")[2] for name in known if table and name.rpartition(".")[0] == table]
    if not beside:
        return did_you_mean(key, known)
    swapped = [name for name in beside if sorted(name) == sorted(last)]  # rl, which is too short to be near lr
    if swapped or did_you_mean(last, beside):
        return did_you_mean(key, [f"{table}.{name}" for name in swapped or beside])
    return f" {table} has: {', '.join(beside)}."


def _in_named_tables(model: type[BaseModel], key: str) -> list[str]:
    """Names of the settings in the table of the key, where the user named that, such as ``reward.components.NAME``."""
    parts = key.split(".")
    for place, part in enumerate(parts[:-2]):
        field = model.model_fields.get(part)
        if field is None:
            return []
        arguments = get_args(field.annotation)
        if get_origin(field.annotation) in (dict, Mapping) and len(arguments) == 2:
            prefix = ".".join(parts[: place + 2])
            return [name for one in _nested_models(arguments[1]) for name in settings_below(one, f"{prefix}.")]
        model = next(_nested_models(field.annotation), model)
    return []


def _nested_models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _nested_models(member)


def _explain_one(detail: ErrorDetails, where: str, typed: set[str], model: type[BaseModel]) -> str:
    key = ".".join(str(part) for part in detail["loc"])
    is_touched = any(word == key or word.startswith(f"{key}." if key else "") for word in typed)
    source = "the command line" if key in typed else f"{where}, with the command line" if is_touched else where
    if detail["type"] == "extra_forbidden":
        return f"{source}: unknown setting {key}.{nearest_below(key, model)}"
    given = detail["input"]
    if detail["type"] in ("tuple_type", "list_type") and isinstance(given, str | int | float):
        return f"{source}: {key}: a list is needed, got {given!r}. {_as_a_list(key, given, is_typed=key in typed)}"
    message = detail["msg"].removeprefix("Value error, ")
    is_shown = "got " in message or isinstance(given, (Mapping, BaseModel))
    shown = "" if is_shown else f" (got {given!r})"
    return f"{source}: {key or 'settings'}: {message}{shown}{_nearest_choice(detail, key)}"


def _as_a_list(key: str, given: str | float, *, is_typed: bool) -> str:
    """How a list of this is written: on a command line within quotes, since < > [ ] mean something else there."""
    items = [item.strip() for item in given.strip("[]").split(",")] if isinstance(given, str) else [given]
    listed = json.dumps(items, ensure_ascii=False)
    return f"Write: --{key} {shlex.quote(listed)}" if is_typed else f"Write: {key.rpartition('.')[2]} = {listed}"


def _nearest_choice(detail: ErrorDetails, key: str) -> str:
    """For a word that is none of the choices: the one that was probably meant."""
    if detail["type"] not in ("literal_error", "enum") or not isinstance(detail["input"], str):
        return ""
    word, choices = detail["input"], re.findall(r"'([^']+)'", str(detail.get("ctx", {}).get("expected", "")))
    if key == "method" and _is_preset(word):
        return f". What is optimised is chosen by: --{PRESET} {word}"
    hint = did_you_mean(word, choices)
    return f".{hint}" if hint else ""


def _is_preset(word: str) -> bool:
    from oncurve.algo import PRESETS  # with torch, which whoever settles a method has anyway

    return word in PRESETS
