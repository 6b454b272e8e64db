"""The ``length`` verifier: is a completion neither too short nor too long?"""

import unicodedata
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from oncurve.types import Settings, Verdict
from oncurve.verify.items import Item, correct, no_verdict, wrong
from oncurve.verify.tags import has_visible

_JOINER = "\u200d"
_FLAG_LETTERS = frozenset(map(chr, range(0x1F1E6, 0x1F200)))
_FOLLOWING = frozenset(map(chr, [*range(0x1F3FB, 0x1F400), *range(0x1160, 0x1200)]))
"""Skin tones, and the parts of a Hangul syllable behind its first."""

Unit = Literal["chars", "words", "tokens"]


class LengthSettings(Settings):
    """The range and what is counted."""

    unit: Unit = "tokens"
    """``chars``: characters as a reader sees them. ``words``: what blanks separate. ``tokens``: sampled ids, with the
    terminator. Blanks at both ends are no characters."""

    min: int = Field(0, ge=0)
    """Shortest accepted length."""

    max: int | None = Field(None, ge=0)
    """Longest accepted length. None: no limit."""

    count_marks: bool = False
    """``chars``: count every code point, also combining marks, joiners and what does not show."""

    count_punctuation: bool = False
    """``words``: count pieces without any letter or digit, such as a lone dash."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.max is None:
            if self.min == 0:
                raise ValueError("every length would be accepted: give min or max")
        elif self.min > self.max:
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
        if settings.unit == "tokens" and item.text and not item.token_ids:
            return no_verdict("no_tokens", "a length in tokens needs the sampled ids, and there is only text")
        length = _length(item, settings)
        longest = "any" if settings.max is None else settings.max
        evidence = f"{length} {settings.unit}, accepted {settings.min} to {longest}"
        is_accepted = settings.min <= length and (settings.max is None or length <= settings.max)
        return correct(evidence) if is_accepted else wrong(evidence)


def _length(item: Item, settings: LengthSettings) -> int:
    if settings.unit == "tokens":
        return len(item.token_ids)
    if settings.unit == "words":
        return sum(settings.count_punctuation or _has_letter(word) for word in item.text.split())
    text = item.text.strip()
    is_plain = text.isascii() and text.replace("\n", "").isprintable()
    return len(text) if is_plain or settings.count_marks else _num_characters(text)


def _has_letter(word: str) -> bool:
    return any(unicodedata.category(letter)[0] in "LN" for letter in word)


def _num_characters(text: str) -> int:
    """How many characters a reader sees, after Unicode's rules for extended grapheme clusters, in linear time.

    A letter with its marks, a syllable of Hangul parts, an emoji with its modifiers or joined ones, and a flag of two
    regional letters are one; what does not show is none; a blank is one.
    """
    count, previous, is_half_flag = 0, "", False
    for letter in text:
        is_half_flag = letter in _FLAG_LETTERS and not is_half_flag
        is_joined = previous == _JOINER and unicodedata.category(letter) == "So"
        follows = is_joined or letter in _FOLLOWING or (letter in _FLAG_LETTERS and not is_half_flag)
        count += letter.isspace() or (has_visible(letter) and not follows)
        previous = letter
    return count
