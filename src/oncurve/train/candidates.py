"""Objectives by the words that people type for them."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from oncurve.algo import PRESETS, Formula, ObjectiveSettings, describe_objective
from oncurve.config import RunConfig, load_config
from oncurve.config.fit import refuse_unfit_objective
from oncurve.config.load import known_settings
from oncurve.learner.minibatch import GradedRollout, Judgement, grade
from oncurve.types import ConfigError, Group, did_you_mean

OWN = "run"
"""The word for the objective that the run itself had."""


@dataclass(frozen=True)
class Candidate:
    """One objective, under the name it is shown by."""

    name: str
    objective: ObjectiveSettings

    @property
    def is_own(self) -> bool:
        """True for the run's own."""
        return self.name == OWN


def read_candidates(text: str, own: ObjectiveSettings) -> list[Candidate]:
    """Read a comma-separated list of objectives.

    Each is the name of a preset, ``run`` for the run's own, a TOML file whose ``[objective]`` table is taken, or such a
    table written inline: ``{preset = "dapo", clip_high = 0.3}``.

    Args:
        text: the list.
        own: what ``run`` stands for.

    Raises:
        ConfigError: one of them does not exist or contradicts itself; names the nearest.
    """
    words = list(_split(text))
    if not words:
        raise ConfigError("no objective is named. Write --objectives run,grpo,dr_grpo; `run` is the run's own.")
    return [Candidate(word, own if word == OWN else _objective(word)) for word in words]


def formula_in(candidate: Candidate, config: RunConfig) -> Formula:
    """The candidate's formula with the numbers of a run.

    Raises:
        ConfigError: it does not fit the run's group size.
    """
    sampling = config.rollout.sampling
    try:
        return describe_objective(
            candidate.objective,
            group_size=config.rollout.group_size,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
        )
    except ValueError as error:
        raise ConfigError(f"objective {candidate.name}: {error}") from error


def grade_for(candidate: Candidate, config: RunConfig, groups: Sequence[Group]) -> GradedRollout:
    """Grade recorded groups under a candidate, without any KL in the reward; finds what does not fit before a model is.

    Args:
        candidate: the objective.
        config: of the run that recorded the groups.
        groups: of one step.

    Raises:
        ConfigError: the candidate needs a critic, or does not fit the run or the recorded rewards.
    """
    if candidate.objective.advantage.estimator == "gae":
        raise ConfigError(
            f"objective {candidate.name} needs a critic (estimator gae), and the records of a step hold none of its "
            "values: its advantages at that step cannot be had again. Compare whole runs of it instead."
        )
    judgement = Judgement(primary=config.reward.primary_name, component_weights=config.reward.weights)
    try:
        refuse_unfit_objective(candidate.objective, config.rollout, config.reward, config.learner)
        return grade(groups, candidate.objective, judgement)
    except ValueError as error:
        raise ConfigError(f"objective {candidate.name}: {error}") from error


def _objective(word: str) -> ObjectiveSettings:
    if word.startswith("{"):
        return _validated(_inline(word), word)
    if word.endswith(".toml"):
        config = load_config(Path(word))
        if "objective" not in config.model_fields_set:
            raise ConfigError(f"{word} has no [objective] table: it would stand for the defaults. Add one.")
        return config.objective
    if word not in PRESETS:
        raise ConfigError(
            f"there is no objective {word!r}.{did_you_mean(word, [OWN, *PRESETS])} Known: {OWN}, a .toml file, an "
            f"inline table, or one of {', '.join(sorted(PRESETS))}."
        )
    return _validated({"preset": word}, word)


def _inline(word: str) -> Mapping[str, Any]:
    try:
        table: Mapping[str, Any] = tomllib.loads(f"objective = {word}")["objective"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f'{word} is not a TOML table: {error}. Write {{preset = "grpo", kl_coef = 0.1}}.') from None
    return table


def _validated(table: Mapping[str, Any], word: str) -> ObjectiveSettings:
    try:
        return ObjectiveSettings.model_validate(dict(table))
    except ValidationError as error:
        raise ConfigError("\n".join(_explained(error, word))) from None


def _explained(error: ValidationError, word: str) -> Iterator[str]:
    for detail in error.errors():
        key = ".".join(map(str, detail["loc"]))
        if detail["type"] == "extra_forbidden":
            yield f"objective {word}: unknown setting {key}.{did_you_mean(key, known_settings(ObjectiveSettings))}"
        else:
            where = f"{key}: " if key else ""
            yield f"objective {word}: {where}{detail['msg'].removeprefix('Value error, ')}"


def _split(text: str) -> Iterator[str]:
    """Split at the commas outside of braces and brackets."""
    depth, word = 0, ""
    for character in f"{text},":
        depth += (character in "{[") - (character in "}]")
        if character != "," or depth > 0:
            word += character
        elif word := word.strip():
            yield word
            word = ""
