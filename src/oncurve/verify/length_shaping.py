"""A reward for length, as a component of its own beside the task's reward."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from oncurve.types import Settings, Status, Task, Verdict
from oncurve.verify.items import Item
from oncurve.verify.length_rewards import (
    cosine_length_reward,
    kimi_length_rewards,
    l1_exact_reward,
    l1_max_reward,
    lead_length_rewards,
    length_band_penalty,
    overlong_penalty,
    repetition_penalty,
)

LENGTH = "length"
"""Name of the component."""

Shape = Literal["overlong", "cosine", "kimi", "l1_exact", "l1_max", "lead", "band", "repetition"]

_NEEDS: dict[str, tuple[str, ...]] = {
    "overlong": ("max_tokens", "margin"),
    "cosine": ("max_tokens",),
    "l1_exact": ("target",),
    "l1_max": ("target",),
    "band": ("max_tokens", "low", "high"),
}


class LengthShapingSettings(Settings):
    """What a completion earns or loses by its length in tokens, the terminator included."""

    shape: Shape
    """``overlong``, ``band`` and ``repetition`` are penalties; ``kimi`` compares the completions of a group;
    ``cosine``, ``l1_exact``, ``l1_max`` and ``lead`` carry the correctness themselves: give the task's component
    weight 0."""

    weight: float = Field(1.0, ge=-1e6, le=1e6)
    """Factor of this part in the reward."""

    max_tokens: int | None = Field(None, ge=1)
    """overlong, cosine, band: length at which the value has run its course; that of rollout.sampling."""

    margin: int | None = Field(None, ge=1)
    """overlong: tokens before max_tokens at which the penalty begins."""

    low: int | None = Field(None, ge=0)
    """band: shortest length without penalty; take it from a low quantile of the lengths of right answers."""

    high: int | None = Field(None, ge=1)
    """band: longest length without penalty; from a high quantile."""

    short_weight: float = Field(1.0, ge=0)
    """band: penalty of a completion without any token."""

    long_weight: float = Field(1.0, ge=0)
    """band: penalty at max_tokens."""

    target: int | None = Field(None, ge=1)
    """l1_exact, l1_max: tokens asked for; a task's own ``meta.target_tokens`` wins."""

    alpha: float = Field(0.05, ge=0)
    """lead: how much length counts among right answers."""

    ngram_size: int = Field(3, ge=1)
    """repetition: tokens in a row that should not come again."""

    @model_validator(mode="after")
    def _has_its_numbers(self) -> Self:
        missing = [name for name in _NEEDS.get(self.shape, ()) if getattr(self, name) is None]
        if missing:
            raise ValueError(
                f"the length reward {self.shape} needs {', '.join(missing)}: set reward.length.{missing[0]}"
            )
        if self.shape == "overlong" and self.margin and self.max_tokens and self.margin > self.max_tokens:
            raise ValueError(f"margin {self.margin} must be at most max_tokens {self.max_tokens}")
        if self.shape == "band" and not (self.low or 0) <= (self.high or 0) < (self.max_tokens or 0):
            raise ValueError(f"band needs low <= high < max_tokens, got {self.low}, {self.high}, {self.max_tokens}")
        return self


def length_values(
    settings: LengthShapingSettings, items: Sequence[Item], verdicts: Sequence[Verdict]
) -> list[float | None]:
    """Value every completion by its length, in comparison with the others of its task where the shape asks for it.

    Args:
        settings: shape and numbers.
        items: completions, those of a task together or apart.
        verdicts: of the same completions.

    Returns:
        One value a completion, before its weight; None where there is no verdict.
    """
    values: list[float | None] = [None] * len(items)
    for places in _groups(items, verdicts):
        found = _of_group(settings, [items[place] for place in places], [verdicts[place] for place in places])
        for place, value in zip(places, found, strict=True):
            values[place] = value
    return values


def _groups(items: Sequence[Item], verdicts: Sequence[Verdict]) -> list[list[int]]:
    """Places of the completions with a verdict, by task. Not by id alone: two rows of a file may share one."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for place, (item, verdict) in enumerate(zip(items, verdicts, strict=True)):
        if verdict.status is not Status.NO_VERDICT:
            groups.setdefault((item.task.id, item.task.gold, item.task.verifier), []).append(place)
    return list(groups.values())


def _of_group(settings: LengthShapingSettings, items: Sequence[Item], verdicts: Sequence[Verdict]) -> list[float]:
    lengths = [len(item.token_ids) for item in items]
    right = [verdict.status is Status.CORRECT for verdict in verdicts]
    if settings.shape == "kimi":
        return kimi_length_rewards(lengths, right)
    if settings.shape == "lead":
        return lead_length_rewards(lengths, right, alpha=settings.alpha)
    return [_of_one(settings, item, is_right) for item, is_right in zip(items, right, strict=True)]


def _of_one(settings: LengthShapingSettings, item: Item, is_right: bool) -> float:
    length, limit = len(item.token_ids), settings.max_tokens or 0
    match settings.shape:
        case "overlong":
            return overlong_penalty(length, max_tokens=limit, margin=settings.margin or limit)
        case "cosine":
            return cosine_length_reward(length, is_right, max_tokens=limit)
        case "l1_exact":
            return l1_exact_reward(length, is_right, target=_target(settings, item.task))
        case "l1_max":
            return l1_max_reward(length, is_right, target=_target(settings, item.task))
        case "band":
            return length_band_penalty(
                length,
                low=settings.low or 0,
                high=settings.high or 0,
                max_tokens=limit,
                short_weight=settings.short_weight,
                long_weight=settings.long_weight,
            )
        case _:
            return repetition_penalty(item.token_ids, ngram_size=settings.ngram_size)


def _target(settings: LengthShapingSettings, task: Task) -> int:
    return int(task.meta.get("target_tokens", settings.target))
