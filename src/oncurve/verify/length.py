"""The ``length`` verifier: is a completion neither too short nor too long?"""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from oncurve.types import Settings, Verdict
from oncurve.verify.items import Item, correct, wrong


class LengthSettings(Settings):
    """The range and what is counted."""

    unit: Literal["chars", "words", "tokens"] = "tokens"
    """``chars``: Unicode code points. ``words``: what blanks separate. ``tokens``: sampled ids, with the terminator."""

    min: int = Field(0, ge=0)
    """Shortest accepted length."""

    max: int = Field(ge=0)
    """Longest accepted length."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}: no length would be accepted")
        return self


class LengthVerifier:
    """Reward 1 inside the range, 0 outside."""

    name = "length"

    def __init__(self, settings: LengthSettings) -> None:
        self.settings = settings

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        return [self._judge(item) for item in items]

    def _judge(self, item: Item) -> Verdict:
        settings = self.settings
        length = _length(item, settings.unit)
        evidence = f"{length} {settings.unit}, accepted {settings.min} to {settings.max}"
        return correct(evidence) if settings.min <= length <= settings.max else wrong(evidence)


def _length(item: Item, unit: Literal["chars", "words", "tokens"]) -> int:
    if unit == "tokens":
        return len(item.token_ids)
    return len(item.text) if unit == "chars" else len(item.text.split())
