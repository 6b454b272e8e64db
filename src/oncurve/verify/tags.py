"""The ``tags`` verifier: are the tags of a completion in order? A linear scanner, no regular expression."""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import Field, field_validator

from oncurve.types import Settings, Verdict
from oncurve.verify.formats.fences import scan_fences
from oncurve.verify.items import Item, correct, one_line, wrong

_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Characters that Unicode calls letters or symbols and that show nothing."""


class TagsSettings(Settings):
    """What the tags of a completion must look like."""

    order: tuple[str, ...] = Field(("think", "answer"), min_length=1)
    """Tag names in the order in which their blocks must stand."""

    once: bool = True
    """Each tag exactly once; otherwise at least once."""

    non_empty: bool = True
    """Each block holds something visible; blanks and zero-width characters are not."""

    only: bool = True
    """Nothing but blanks outside the blocks. A code fence around them is something."""

    text_after: bool = False
    """Something visible follows the last block."""

    any_case: bool = False
    """Read ``<Think>`` as ``<think>``; otherwise it is a fault, wherever it stands."""

    attributes: bool = False
    """Read ``<think kind="x">`` as ``<think>``; otherwise it is a fault."""

    blanks: bool = False
    """Read ``<think >`` and ``</ think>`` as ``<think>`` and ``</think>``; otherwise they are faults."""

    ignore_fences: bool = False
    """Tags inside a code fence are text. Otherwise they count, as they do for whoever extracts the answer."""

    @field_validator("order")
    @classmethod
    def _distinct_names(cls, order: tuple[str, ...]) -> tuple[str, ...]:
        for name in order:
            if not name or not name.replace("_", "").replace("-", "").isalnum():
                raise ValueError(f"a tag name is made of letters, digits, - and _, got {name!r}")
        if len(set(order)) != len(order):
            raise ValueError(f"tag names must differ, got {', '.join(order)}")
        return order


class Tag(NamedTuple):
    """One opening or closing tag in a text."""

    name: str
    is_closing: bool
    start: int
    end: int
    oddities: tuple[str, ...] = ()
    """How it differs from ``<name>`` or ``</name>``: ``other case``, ``attributes``, ``blanks``, ``closes itself``."""


def scan_tags(text: str, names: Sequence[str]) -> list[Tag]:
    """Find every tag of the given names, exact or odd, in order of appearance.

    Tags count wherever they stand, also in quotations. ``< name`` is no tag, for it is how programs compare. Time is
    linear in the text for a fixed list of names.
    """
    exact = {f"<{name}>": (name, False) for name in names} | {f"</{name}>": (name, True) for name in names}
    initials = {name[:1].lower() for name in names} | {"/"}
    tags: list[Tag] = []
    position = text.find("<")
    while position >= 0:
        tag = None
        if text[position + 1 : position + 2].lower() in initials:
            tag = _exact_tag(text, position, exact) or _odd_tag(text, position, names)
        if tag:
            tags.append(tag)
        position = text.find("<", tag.end if tag else position + 1)
    return tags


def _exact_tag(text: str, start: int, forms: Mapping[str, tuple[str, bool]]) -> Tag | None:
    for form, (name, is_closing) in forms.items():
        if text.startswith(form, start):
            return Tag(name, is_closing, start, start + len(form))
    return None


def _odd_tag(text: str, start: int, names: Sequence[str]) -> Tag | None:
    is_closing = text.startswith("/", start + 1)
    name_start = start + 1 + is_closing
    while is_closing and text[name_start : name_start + 1].isspace():
        name_start += 1
    for name in names:
        written = text[name_start : name_start + len(name)]
        if written == name or written.lower() == name.lower():
            rest = _rest_of_tag(text, name_start + len(name))
            if rest is not None:
                has_blank = name_start > start + 1 + is_closing
                oddities = (("other case",) if written != name else ()) + _oddities(rest, has_blank)
                return Tag(name, is_closing, start, name_start + len(name) + len(rest) + 1, oddities)
    return None


def _rest_of_tag(text: str, start: int) -> str | None:
    """What stands between the name and ``>``; None where the name goes on or the tag does not end."""
    if text.startswith(">", start):
        return ""
    if not (text.startswith("/", start) or text[start : start + 1].isspace()):
        return None
    next_opening = text.find("<", start)
    end = text.find(">", start, next_opening if next_opening >= 0 else len(text))
    if end < 0:
        return None
    rest = text[start:end]
    return rest if "=" in rest or not rest.strip().removesuffix("/") else None


def _oddities(rest: str, has_blank: bool) -> tuple[str, ...]:
    inner = rest.strip()
    found = {"attributes": "=" in inner, "closes itself": inner.endswith("/"), "blanks": has_blank or rest != inner}
    return tuple(oddity for oddity, is_there in found.items() if is_there and not (oddity == "blanks" and inner))


def has_visible(text: str) -> bool:
    """True when some character shows: not a blank, control, format or surrogate character, not a lone mark."""
    return any(unicodedata.category(c)[0] not in "ZCM" and c not in _BLANK_LETTERS for c in text)


def find_fault(text: str, settings: TagsSettings) -> str:
    """Say what is wrong with the tags of a text, or return an empty string when nothing is."""
    tags = scan_tags(text, settings.order)
    if settings.ignore_fences and tags:
        tags = _outside_fences(text, tags)
    fault = _spelling_fault(text, tags, settings) or _pairing_fault(tags) or _order_fault(tags[::2], settings)
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


def _outside_fences(text: str, tags: Sequence[Tag]) -> list[Tag]:
    """The tags that stand in no code fence. Both run in order, so one pass is enough."""
    fences, kept = scan_fences(text), []
    place = 0
    for tag in tags:
        while place < len(fences) and fences[place].outer_end <= tag.start:
            place += 1
        if place == len(fences) or tag.start < fences[place].outer_start:
            kept.append(tag)
    return kept


def _spelling_fault(text: str, tags: Sequence[Tag], settings: TagsSettings) -> str:
    """The first tag that is odd in a way that is not allowed."""
    allowed = {"other case": settings.any_case, "attributes": settings.attributes, "blanks": settings.blanks}
    for tag in tags:
        for oddity in tag.oddities:
            if not allowed.get(oddity, False):
                slash = "/" if tag.is_closing else ""
                return f"{one_line(text[tag.start : tag.end], 40)} is not <{slash}{tag.name}>: {oddity}"
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
