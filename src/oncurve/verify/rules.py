"""The ``rules`` verifier: texts that must not stand in a completion, or must. A safety rule that can be a gate.

It reads letters, not meaning: what is said in other words passes. Use it for what has a spelling (a secret, a command,
a marker that a prompt told to keep), and a judge for the rest.
"""

import unicodedata
from collections.abc import Sequence
from typing import Self

from pydantic import field_validator, model_validator

from oncurve.types import Settings, Verdict
from oncurve.verify.items import Item, correct, one_line, wrong


class RulesSettings(Settings):
    """What is forbidden and what is demanded. Case, blanks, full width and invisible characters do not matter."""

    forbid: tuple[str, ...] = ()
    """None of these texts stands anywhere in the completion, its thinking included."""

    demand: tuple[str, ...] = ()
    """Each of these texts stands somewhere."""

    as_words: bool = True
    """A text counts only with no letter or digit before and after it: ``rm`` is not in ``term``."""

    @field_validator("forbid", "demand")
    @classmethod
    def _texts_show(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        for text in texts:
            if not plain_letters(text):
                raise ValueError(f"a rule names a text that shows, got {text!r}")
        return texts

    @model_validator(mode="after")
    def _is_a_rule(self) -> Self:
        if not self.forbid and not self.demand:
            raise ValueError(
                "nothing is forbidden and nothing demanded: every completion would pass. Give forbid or demand."
            )
        return self


def plain_letters(text: str) -> str:
    """The text as rules compare it: compatibility forms resolved, case folded, blanks single, what hides removed."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    shown = "".join(letter for letter in folded if letter.isspace() or unicodedata.category(letter) not in ("Cf", "Cc"))
    return " ".join(shown.split())


class RulesVerifier:
    """Reward 1 when every rule is kept, 0 otherwise."""

    name = "rules"

    def __init__(self, settings: RulesSettings) -> None:
        self.settings = settings

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        return [self._judge(item) for item in items]

    def _judge(self, item: Item) -> Verdict:
        text = plain_letters(item.text)
        for rule in self.settings.forbid:
            if self._stands_in(rule, text):
                return wrong(f"forbidden: {one_line(rule, 80)}")
        for rule in self.settings.demand:
            if not self._stands_in(rule, text):
                return wrong(f"missing: {one_line(rule, 80)}")
        return correct("every rule is kept")

    def _stands_in(self, rule: str, text: str) -> bool:
        wanted = plain_letters(rule)
        start = text.find(wanted)
        while start >= 0 and self.settings.as_words and not _is_alone(text, start, start + len(wanted)):
            start = text.find(wanted, start + 1)
        return start >= 0


def _is_alone(text: str, start: int, end: int) -> bool:
    """No word goes on across one of the two borders."""
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    is_cut_before = before.isalnum() and text[start].isalnum()
    return not is_cut_before and not (after.isalnum() and text[end - 1].isalnum())
