"""One comparison of several ways of learning, as data: what all of them share, and what each does differently."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from oncurve.config.load import known_settings, nearest_setting, override, read_table, validated
from oncurve.config.paths import with_absolute_paths
from oncurve.config.run import RunConfig
from oncurve.types import ConfigError, Settings

COLLECT = "collect"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"

_OWN = ("method", "objective", "learner", "critic", "dpo", "rollout", "evaluation.every")
"""What an arm may do differently, with everything below it."""

_NOT_OWN = ("rollout.sampling",)
"""Below the ones above, and shared all the same: the examination samples by it too."""

_PLANNED = {
    "name": "the name of the arm",
    "seed": "seeds",
    "rollout_tokens": "tokens",
    "steps": "tokens: a run ends when its budget is spent",
    "output": "output",
    "run_dir": "output",
    "dpo.rollouts": "nothing: the completions of the starting policy are collected, and paid from the budget",
    "dpo.pairs": "nothing: pairs of a file would come on top of the budget of sampled tokens",
}
"""What the comparison decides for every run, and by what."""


class ComparisonConfig(Settings):
    """The file of ``oncurve compare``."""

    name: str = Field("comparison", pattern=_NAME)
    """Heads the result."""

    base: Path | None = None
    """The TOML file of a run that all arms start from; unset takes the embedded default."""

    output: Path = Path("runs/comparison")
    """Folder of the runs and of the result. The same command continues what is in it."""

    tokens: int = Field(ge=1)
    """Budget of each run: completion tokens sampled to learn from."""

    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1)
    """One run of every arm for each."""

    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of a run that all arms share, on top of the base."""

    arms: dict[str, dict[str, Any]] = Field(min_length=2)
    """What each arm does differently, by its name. The first one is what the others are tested against."""

    @model_validator(mode="after")
    def _names_and_seeds_are_told_apart(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError(f"seeds must be different numbers from 0, got {list(self.seeds)}")
        if COLLECT in self.arms:
            raise ValueError(f'an arm cannot be named "{COLLECT}": the sampling for offline arms is. Rename it.')
        return self


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of the comparison."""

    arm: str
    """``collect`` for the sampling that offline arms learn from."""
    seed: int
    config: RunConfig
    """Complete, with the folder of the run in ``run_dir``."""
    collection: Path | None = None
    """Folder of the run whose completions this one learns from."""

    @property
    def name(self) -> str:
        """Of the run's folder."""
        return self.folder.name

    @property
    def folder(self) -> Path:
        """Where the run is recorded."""
        return Path(self.config.run_dir)


@dataclass(frozen=True, kw_only=True)
class ComparisonPlan:
    """All runs of a comparison, in the order in which they are made: the arms of one seed after the other."""

    config: ComparisonConfig
    runs: tuple[PlannedRun, ...]

    def of_arm(self, arm: str) -> list[PlannedRun]:
        """The runs of an arm, by seed."""
        return [run for run in self.runs if run.arm == arm]

    def collection_of(self, run: PlannedRun) -> PlannedRun | None:
        """The run whose completions this one learns from."""
        return next((other for other in self.runs if other.folder == run.collection), None)


def load_comparison(path: Path, overrides: Sequence[str] = ()) -> ComparisonPlan:
    """Read a comparison and settle every run of it.

    Args:
        path: a TOML file, see ``ComparisonConfig``.
        overrides: command-line words such as ``--tokens 20000`` or ``--settings.threads 1``.

    Raises:
        ConfigError: the file, its base or the settings of an arm cannot be used; names file, arm and setting.
    """
    data = read_table(path, "compare")
    override(data, overrides)
    config = validated(ComparisonConfig, data, str(path), overrides)
    base = read_table(config.base, "train")
    _refuse_planned(config.settings, f"{path}: settings")
    validated(RunConfig, _merged(base, config.settings), f"{path}: settings")
    runs: dict[Path, PlannedRun] = {}
    for seed in config.seeds:
        for arm in config.arms:
            for run in _runs_of(config, base, arm, seed, where=str(path)):
                runs.setdefault(run.folder, run)
    _refuse_other_examinations(config, list(runs.values()), where=str(path))
    return ComparisonPlan(config=config, runs=tuple(runs.values()))


def _runs_of(
    config: ComparisonConfig, base: Mapping[str, Any], arm: str, seed: int, *, where: str
) -> Iterator[PlannedRun]:
    """The run of an arm, after the collection that it needs."""
    table, place = config.arms[arm], f"{where}: arms.{arm}"
    _refuse_shared(table, place)
    shared = _merged(base, config.settings)
    method = table.get("method", "online")
    if method == "online":
        yield _planned(config, arm, seed, _with_arm(shared, table), where=place)
    elif method == "dpo":
        collection = _planned(config, COLLECT, seed, _collecting(shared, table), where=place, of=arm)
        data = _with_arm(shared, table)
        data["dpo"] = data.get("dpo", {}) | {"rollouts": str(collection.folder)}
        yield collection
        yield _planned(config, arm, seed, data, where=place, collection=collection.folder)
    else:
        raise ConfigError(
            f'{place}.method: a comparison has arms of method "online" and "dpo", got {method!r}: only their data are '
            "paid from the budget of sampled tokens"
        )


def _planned(
    config: ComparisonConfig,
    arm: str,
    seed: int,
    data: dict[str, Any],
    *,
    where: str,
    of: str | None = None,
    collection: Path | None = None,
) -> PlannedRun:
    """One run with everything that the comparison decides."""
    rollout = data.get("rollout", {})
    own_rollout = of is not None and "rollout" in config.arms[of]
    name = f"{arm}-{of}-seed{seed}" if own_rollout else f"{arm}-seed{seed}"
    planned = {
        "name": name,
        "seed": seed,
        "steps": config.tokens,
        "rollout_tokens": 0 if collection else config.tokens,
        "run_dir": str((config.output / name).absolute()),
    }
    run = validated(RunConfig, data | planned | {"rollout": rollout}, where)
    if not collection:  # every completion has a token at least
        completions = run.rollout.num_prompts * run.rollout.group_size
        run = run.model_copy(update={"steps": -(-config.tokens // completions)})
    return PlannedRun(arm=arm, seed=seed, config=with_absolute_paths(run), collection=collection)


def _with_arm(shared: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an arm; a preset of its own takes the place of the shared objective."""
    below = dict(shared)
    if "preset" in table.get("objective", {}):
        below.pop("objective", None)
    return _merged(below, table)


def _collecting(shared: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling from the starting policy, which nothing is learned from: hardly an examination."""
    own = {key: table[key] for key in ("rollout",) if key in table}
    data = _merged(shared, own) | {"method": COLLECT}
    data["evaluation"] = {"every": 0, "num_tasks": 2, "num_samples": 1, "k": 1}
    for name in ("objective", "critic"):
        data.pop(name, None)
    return data


def _refuse_shared(table: Mapping[str, Any], where: str) -> None:
    """Refuse what would make an arm something else than the others. Raises ConfigError."""
    known = known_settings()
    for name, value in table.items():
        if any(other.startswith(f"{name}.") for other in known) and not isinstance(value, Mapping):
            raise ConfigError(f"{where}.{name}: is a table of settings, got {value!r}")
    _refuse_planned(table, where)
    for key in _leaves(table):
        if key.partition(".")[0] not in known:
            raise ConfigError(f"{where}: unknown setting {key}.{nearest_setting(key)}")
        if not _is_below(key, _OWN) or _is_below(key, _NOT_OWN):
            raise ConfigError(
                f"{where}.{key}: task, starting model, reward and examination are the same for all arms, or their "
                "results could not be compared. Set it under [settings]."
            )


def _refuse_planned(table: Mapping[str, Any], where: str) -> None:
    for key in _leaves(table):
        if key in _PLANNED:
            raise ConfigError(f"{where}.{key}: a comparison decides this itself, by {_PLANNED[key]}. Remove it.")


def _refuse_other_examinations(config: ComparisonConfig, runs: Sequence[PlannedRun], *, where: str) -> None:
    """Refuse seeds that would be examined on different problems. Raises ConfigError."""
    tasks = runs[0].config.tasks
    if len(config.seeds) > 1 and not tasks.is_file and tasks.held_out_seed is None:
        raise ConfigError(
            f"{where}: settings.tasks.held_out_seed is not set, so every seed would be examined on other problems and "
            "their answers could not be paired. Set it, for example to 0."
        )


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables merged key by key; what is above wins."""
    merged = deepcopy(dict(below))
    for key, value in above.items():
        under = merged.get(key)
        is_table = isinstance(under, dict) and isinstance(value, Mapping)
        merged[key] = _merged(under, value) if is_table else deepcopy(value)  # type: ignore[arg-type]
    return merged


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted names of the values in a table."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _is_below(key: str, names: Sequence[str]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in names)
