"""One question to a reward function: a completion, and whether it deserves to be paid."""

from dataclasses import dataclass
from fractions import Fraction

from oncurve.types import Task
from oncurve.verify.items import Item

CHARS_PER_TOKEN = 3
"""An attack is text that no model sampled; verifiers that count tokens are given so many ids."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attack:
    """One completion with its just verdict."""

    id: str
    """Unique within an audit: family, kind, task."""
    family: str
    """``corpus``, ``metamorphic``, ``policy``, ``program``, ``regression``."""
    kind: str
    """What it tries, a few words."""
    item: Item
    is_right: bool
    """True: refusing it is a false refusal. False: paying it is a false accept."""
    why: str = ""
    """Why that is just."""


def attack_item(task: Task, text: str, *, is_truncated: bool = False) -> Item:
    """The completion as a verifier gets it, with as many made-up token ids as such a text has."""
    return Item(
        task=task, text=text, token_ids=tuple(range(1 + len(text) // CHARS_PER_TOKEN)), is_truncated=is_truncated
    )


def same_value(one: str, other: str) -> bool:
    """True when two golds are the same text, case and blanks aside, or the same number."""
    a, b = (" ".join(text.split()).casefold().replace(",", "") for text in (one, other))
    if a == b:
        return True
    x, y = number(a), number(b)
    return x is not None and x == y


def number(text: str) -> Fraction | None:
    """The exact value of plain digits such as ``-3``, ``0.5`` or ``1/2``; None for anything else, or very long ones."""
    text = text.strip()
    if len(text) > 40 or not set(text) <= set("0123456789+-./"):  # no exponents: 1e999999999 is a number too
        return None
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None
