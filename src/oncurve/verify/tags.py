"""The ``tags`` verifier: are the tags of a completion in order? A linear scanner, no regular expression."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field, field_validator

from oncurve.types import Settings, Verdict
from oncurve.verify.items import Item, correct, one_line, wrong

_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Characters that Unicode calls letters or symbols and that show nothing."""


class TagsSettings(Settings):
    """What the tags of a completion must look like."""

    order: tuple[str, ...] = Field(("think", "answer"), min_length=1)
    """Tag names in the order in which their blocks must stand. Tags are exact: no attributes, no other case."""

    once: bool = True
    """Each tag exactly once; otherwise at least once."""

    non_empty: bool = True
    """Each block holds something visible; blanks and zero-width characters are not."""

    only: bool = True
    """Nothing but blanks outside the blocks. A code fence around them is something."""

    text_after: bool = False
    """Something visible follows the last block."""

    @field_validator("order")
    @classmethod
    def _distinct_names(cls, order: tuple[str, ...]) -> tuple[str, ...]:
        for name in order:
            if not name or not name.replace("_", "").replace("-", "").isalnum():
                raise ValueError(f"a tag name is made of letters, digits, - and _, got {name!r}")
        if len(set(order)) != len(order):
            raise ValueError(f"tag names must differ, got {', '.join(order)}")
        return order


@dataclass(frozen=True, slots=True)
class Tag:
    """One opening or closing tag in a text."""

    name: str
    is_closing: bool
    start: int
    end: int


def scan_tags(text: str, names: Sequence[str]) -> list[Tag]:
    """Find every ``<name>`` and ``</name>`` of the given names, in order of appearance.

    Tags count wherever they stand, also in code fences and quotations: whoever reads the completion later finds
    them there too. Time is linear in the text for a fixed list of names.
    """
    forms = [(f"<{name}>", name, False) for name in names] + [(f"</{name}>", name, True) for name in names]
    tags: list[Tag] = []
    position = text.find("<")
    while position >= 0:
        end = position + 1
        for form, name, is_closing in forms:
            if text.startswith(form, position):
                end = position + len(form)
                tags.append(Tag(name, is_closing, position, end))
                break
        position = text.find("<", end)
    return tags


def has_visible(text: str) -> bool:
    """True when some character shows: not a blank, control, format or surrogate character, not a lone mark."""
    return any(unicodedata.category(c)[0] not in "ZCM" and c not in _BLANK_LETTERS for c in text)


def find_fault(text: str, settings: TagsSettings) -> str:
    """Say what is wrong with the tags of a text, or return an empty string when nothing is."""
    tags = scan_tags(text, settings.order)
    fault = _pairing_fault(tags) or _order_fault(tags[::2], settings)
    if fault:
        return fault
    if settings.non_empty:
        for opening, closing in zip(tags[::2], tags[1::2], strict=True):
            if not has_visible(text[opening.end : closing.start]):
                return f"<{opening.name}> is empty"
    borders = [0, *(tag.end if tag.is_closing else tag.start for tag in tags), len(text)]
    if settings.only:
        for start, end in zip(borders[::2], borders[1::2], strict=True):
            if text[start:end].strip():
                return f"text outside the tags: {one_line(text[start:end].strip(), 40)}"
    if settings.text_after and not has_visible(text[borders[-2] :]):
        return f"nothing follows </{tags[-1].name}>"
    return ""


def _pairing_fault(tags: Sequence[Tag]) -> str:
    """Every opening tag is followed by its own closing tag: nothing nested, nothing left open."""
    for index, tag in enumerate(tags):
        if index % 2 == 0 and tag.is_closing:
            return f"</{tag.name}> closes nothing"
        if index % 2 == 1 and (not tag.is_closing or tag.name != tags[index - 1].name):
            shown = f"</{tag.name}>" if tag.is_closing else f"<{tag.name}>"
            return f"{shown} inside <{tags[index - 1].name}>"
    return f"<{tags[-1].name}> is never closed" if len(tags) % 2 else ""


def _order_fault(openings: Sequence[Tag], settings: TagsSettings) -> str:
    names = [tag.name for tag in openings]
    for name in settings.order:
        if name not in names:
            return f"no <{name}>"
        if settings.once and names.count(name) > 1:
            return f"<{name}> stands {names.count(name)} times"
    positions = [settings.order.index(name) for name in names]
    return "" if positions == sorted(positions) else f"order is {', '.join(names[:10])}"


class TagsVerifier:
    """Reward 1 when the tags are in order, 0 otherwise. It says nothing about what stands inside."""

    name = "tags"

    def __init__(self, settings: TagsSettings) -> None:
        self.settings = settings

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        return [self._judge(item) for item in items]

    def _judge(self, item: Item) -> Verdict:
        fault = find_fault(item.text, self.settings)
        return wrong(fault) if fault else correct("tags in order")
