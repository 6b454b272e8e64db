"""Find the answer in a completion: one declared place, after closed thinking, nowhere else.

A mention outside the place is not an answer. What counts is the last committed place; places that are offered
side by side count together, so that a row of guesses is seen for what it is.
"""

import re
from dataclasses import dataclass
from typing import Literal

Carrier = Literal["tag", "box", "hash", "last_line"]


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a completion offers as its answer."""

    offers: tuple[str, ...] = ()
    """Contents of the places that count, in order of appearance; more than one when they are offered together."""
    problem: str = ""
    """Why there is no answer; empty exactly when there are offers."""


@dataclass(frozen=True, slots=True)
class _Place:
    content: str
    start: int
    end: int


class _MissingAnswerError(Exception):
    """Nothing can be taken for an answer; the message says why."""


def extract(text: str, carrier: Carrier, *, tag: str = "answer", thinking_tag: str = "think") -> Extraction:
    """Take the answer out of a completion.

    Args:
        text: the completion.
        carrier: where the answer stands: ``tag`` inside ``<answer>…</answer>``, ``box`` inside ``\\boxed{…}``,
            ``hash`` after ``####`` on its line, ``last_line`` the last line that is not blank.
        tag: name of the answer tag.
        thinking_tag: name of the tag whose content is never an answer.

    Returns:
        The offers, or the problem when the place is missing, empty, not closed, or inside thinking that never ends.
    """
    try:
        region = _after_thinking(text, thinking_tag)
        if carrier == "tag":
            places = _tag_places(region, tag)
        elif carrier == "box":
            places = _last_row(region, _box_places(region))
        elif carrier == "hash":
            places = _last_row(region, _hash_places(region))
        else:
            places = [_last_line(region)]
    except _MissingAnswerError as missing:
        return Extraction(problem=str(missing))
    offers = tuple(place.content.strip() for place in places)
    if not all(offers):
        return Extraction(problem="the answer place is empty")
    return Extraction(offers=offers)


def _after_thinking(text: str, tag: str) -> str:
    closing = f"</{tag}>"
    rest = text[text.rfind(closing) + len(closing) :] if closing in text else text
    if f"<{tag}>" in rest:
        raise _MissingAnswerError(f"<{tag}> is never closed")
    return rest


def _tag_places(text: str, tag: str) -> list[_Place]:
    """Every ``<tag>…</tag>``; tags that do not pair up make all of them worthless."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    places: list[_Place] = []
    position = 0
    while (start := text.find(opening, position)) >= 0:
        inside = start + len(opening)
        end = text.find(closing, inside)
        if end < 0:
            raise _MissingAnswerError(f"{opening} is never closed")
        content = text[inside:end]
        if opening in content or closing in text[position:start]:
            raise _MissingAnswerError(f"{opening} and {closing} do not pair up")
        position = end + len(closing)
        places.append(_Place(content, start, position))
    if closing in text[position:]:
        raise _MissingAnswerError(f"{closing} without {opening}")
    if not places:
        raise _MissingAnswerError(f"no {opening}")
    return places


# At most two backslashes: the second comes from text that was escaped as JSON. A longer run would be quadratic.
_BOX_TOKEN = re.compile(r"\\{1,2}(?:boxed|fbox)(?![a-zA-Z])|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\s*([^\s{}\\])(?![0-9a-zA-Z])")


def _box_places(text: str) -> list[_Place]:
    """Every outermost box, in one pass over the text."""
    places: list[_Place] = []
    opened: list[int | None] = []  # per open brace: where its box starts, None when the brace is not a box
    box_start: int | None = None  # outermost open box
    inside = 0  # where its content starts
    pending: re.Match[str] | None = None
    for token in _BOX_TOKEN.finditer(text):
        is_next = pending is not None and token[0] == "{" and not text[pending.end() : token.start()].strip()
        box = pending if is_next else None
        if pending is not None and box is None and box_start is None:
            places.append(_bare_box(text, pending))
        if token[0] == "{":
            start = box.start() if box is not None else None
            opened.append(start)
            if start is not None and box_start is None:
                box_start, inside = start, token.end()
        elif token[0] == "}" and opened:
            start = opened.pop()
            if start is not None and start == box_start:
                places.append(_Place(text[inside : token.start()], start, token.end()))
                box_start = None
        pending = token if len(token[0]) > 2 else None
    if pending is not None and box_start is None:
        places.append(_bare_box(text, pending))
    if box_start is not None:
        raise _MissingAnswerError("a box is never closed")
    if not places:
        raise _MissingAnswerError("no \\boxed{…}")
    return places


def _bare_box(text: str, box: re.Match[str]) -> _Place:
    """``\\boxed 6``: without braces, a box holds one token."""
    token = _BARE_BOX.match(text, box.end())
    return _Place(token[1] if token else "", box.start(), token.end() if token else box.end())


def _hash_places(text: str) -> list[_Place]:
    places = []
    position = text.find("####")
    while position >= 0:
        line_end = text.find("\n", position)
        end = len(text) if line_end < 0 else line_end
        places.append(_Place(text[position:end].lstrip("#"), position, end))
        position = text.find("####", end)
    if not places:
        raise _MissingAnswerError("no ####")
    return places


_MARKER = re.compile(r"\banswer(?:\s{1,9}is)?\s{0,9}[:=]?", re.IGNORECASE)


def _last_line(text: str) -> _Place:
    """The last line, without what leads to the answer (``Answer:``, ``The answer is``)."""
    stripped = text.rstrip()
    start = stripped.rfind("\n") + 1
    for marker in _MARKER.finditer(stripped, start):
        start = marker.end()
    return _Place(stripped[start:], start, len(stripped))


def _last_row(text: str, places: list[_Place]) -> list[_Place]:
    """The last place and those offered with it. An earlier place in an earlier sentence has been superseded."""
    first = len(places) - 1
    while first > 0 and _is_same_offer(text[places[first - 1].end : places[first].start]):
        first -= 1
    return places[first:]


def _is_same_offer(between: str) -> bool:
    num_words = sum(any(c.isalnum() for c in word) for word in between.split())
    return num_words < 2 or not any(border in between for border in ".!?。！？\n")
