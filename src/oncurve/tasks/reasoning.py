"""Problems of the optional reasoning-gym package, judged by our own answer extraction."""

from random import Random
from typing import Any

from pydantic import Field, field_validator

from oncurve.tasks.problem import Problem, Source
from oncurve.types import ConfigError, DataError, Settings, did_you_mean


class ReasoningGymOptions(Settings):
    """Which reasoning-gym data set is drawn from."""

    dataset: str
    """Name of a registered data set, for example ``chain_sum``."""

    params: dict[str, Any] = Field(default_factory=dict)
    """Settings of that data set, for example ``{max_terms = 3}``."""

    @field_validator("params")
    @classmethod
    def _seeds_are_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted({"seed", "size"} & set(value)):
            raise ValueError(
                f"{', '.join(taken)} cannot be set: every item gets a seed of its own, from the run's seed"
            )
        return value


def reasoning_gym_problem(rng: Random, options: ReasoningGymOptions) -> Problem:
    """Draw one item from a data set of its own, seeded by ``rng``.

    An item of reasoning-gym is seeded by ``seed + index``, so neighbouring seeds share almost all items. A fresh
    seed for each item avoids that.

    Raises:
        ConfigError: the package is missing, the data set is unknown, or refuses its ``params``.
        DataError: the data set states no single answer.
    """
    item_seed = rng.getrandbits(32)
    item = _dataset(options, item_seed)[0]
    if not isinstance(item["answer"], str) or not item["answer"].strip():
        raise DataError(
            f"tasks.options.dataset: {options.dataset} states no single answer for its items (got "
            f"{item['answer']!r}), so an answer cannot be compared with it. Choose another data set."
        )
    return Problem(
        kind=options.dataset,
        canonical=" ".join(item["question"].split()),
        question=item["question"].strip(),
        gold=item["answer"].strip(),
        meta={"dataset": options.dataset, "item_seed": item_seed},
    )


def _dataset(options: ReasoningGymOptions, seed: int) -> Any:
    try:
        from reasoning_gym.factory import DATASETS, create_dataset
    except ImportError:
        raise ConfigError(
            "tasks.source = 'reasoning_gym' needs the reasoning-gym package. Type: pip install 'oncurve[tasks]'"
        ) from None
    if options.dataset not in DATASETS:
        raise ConfigError(
            f"tasks.options.dataset: reasoning-gym has no data set {options.dataset!r}."
            f"{did_you_mean(options.dataset, DATASETS)}"
        )
    try:
        return create_dataset(options.dataset, **{**options.params, "seed": seed, "size": 1})
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"tasks.options.params: {options.dataset} refuses {options.params}: {error}") from error


REASONING_GYM = Source(
    name="reasoning_gym", verifier="answer", options=ReasoningGymOptions, generate=reasoning_gym_problem
)
