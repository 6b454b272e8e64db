"""Find the answer in a completion: one declared place, after closed thinking, nowhere else.

A mention outside the place is not an answer. What counts is the last committed place; places that are offered
side by side count together, so that a row of guesses is seen for what it is.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from oncurve.verify.answers.json_field import read_fields
from oncurve.verify.answers.sentence import final_statements, has_marker
from oncurve.verify.answers.wording import is_placeholder

Carrier = Literal["tag", "box", "hash", "last_line", "text", "json"]


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a completion offers as its answer."""

    offers: tuple[str, ...] = ()
    """Contents of the places that count, in order of appearance; more than one when they are offered together."""
    is_marked: bool = False
    """A sentence such as ``The answer is`` introduces the offers (text carrier)."""
    is_joined: bool = False
    """The offers stand side by side or are joined by a comma or ``and``: they may be meant as one list."""
    problem: str = ""
    """Why there is no answer; empty exactly when there are offers."""


@dataclass(frozen=True, slots=True)
class _Place:
    content: str
    start: int
    end: int


class _MissingAnswerError(Exception):
    """Nothing can be taken for an answer; the message says why."""


def extract(
    text: str, carrier: Carrier, *, tag: str = "answer", thinking_tag: str = "think", field: str = "answer"
) -> Extraction:
    """Take the answer out of a completion.

    Args:
        text: the completion.
        carrier: where the answer stands: ``tag`` inside ``<answer>…</answer>``, ``box`` inside ``\\boxed{…}``,
            ``hash`` after ``####`` on its line, ``last_line`` the last line that is not blank, ``text`` the last
            sentence that states an answer (``The answer is``, ``答案是``), ``json`` a field of the JSON objects.
        tag: name of the answer tag.
        thinking_tag: name of the tag whose content is never an answer.
        field: name of the JSON field.

    Returns:
        The offers, or the problem when the place is missing, empty, not closed, a placeholder, denied in front of it,
        taken back in the text behind it, or inside thinking that never ends.
    """
    try:
        region = _after_thinking(text, thinking_tag)
        places = _places(region, carrier, tag, field)
        if carrier == "box" and _DENIED.search(region, max(0, places[-1].start - 60), places[-1].start):
            raise _MissingAnswerError("the answer place is denied")
        rest = region[places[-1].end :]
        _refuse_retraction(rest)
    except _MissingAnswerError as missing:
        return Extraction(problem=str(missing))
    last = places[-1].content.strip()
    if not last:
        return Extraction(problem="the answer place is empty")
    if is_placeholder(last):
        return Extraction(problem=f"the answer place holds a placeholder: {last[:40]}")
    if len(places) == 1:
        is_marked = carrier == "text" and has_marker(region)
        instead = _said_instead(rest)
        return Extraction((*instead, last), is_marked=is_marked, is_joined=not instead)
    places = [place for place in places if not is_placeholder(place.content)]
    offers = tuple(place.content.strip() for place in places)
    gaps = [region[a.end : b.start] for a, b in pairwise(places)]
    is_marked = carrier == "text" and has_marker(region)
    return Extraction(
        offers=offers, is_marked=is_marked, is_joined=all(_JOINT.fullmatch(gap) is not None for gap in gaps)
    )


def _places(text: str, carrier: Carrier, tag: str, field: str) -> list[_Place]:
    if carrier == "tag":
        return _tag_places(text, tag)
    if carrier == "box":
        only = _only_box(text)
        return [only] if only is not None else _last_row(text, _box_places(text))
    if carrier == "hash":
        return _last_row(text, _hash_places(text))
    if carrier == "json":
        fields = read_fields(text, field)
        if not fields or any(one.value is None for one in fields):
            raise _MissingAnswerError(f"no JSON object with exactly one field {field}")
        return [_Place(one.value or "", one.start, one.end) for one in fields]
    if carrier == "text" and not has_marker(text) and (row := _marked_otherwise(text)):
        return row
    if carrier == "text":
        statements = final_statements(text)
        if not statements:
            raise _MissingAnswerError("no sentence states an answer")
        ends = [text.rfind(content) + len(content) if content in text else len(text) for content in statements]
        return [_Place(content, end - len(content), end) for content, end in zip(statements, ends, strict=True)]
    return [_last_line(text)]


def _marked_otherwise(text: str) -> list[_Place]:
    """What stands in boxes or behind ####, for a text in which no sentence says that it states the answer."""
    if "\\boxed" in text or "\\fbox" in text:
        return _last_row(text, _box_places(text))
    return _last_row(text, _hash_places(text)) if "####" in text else []


_JOINT = re.compile(
    r"[\s$,;.、，；和及\\()\[\]*+{}]*(?:(?:\\text\s?\{)?[^.。\n]{0,80}?\b(?:and|or)\b[^.。\n]{0,40})?[\s$,;、，和及\\()\[\]{}]*|"
    r"[^.。\n]{0,40}(?:,|和|及|、)[^.。\n]{0,40}",
)
_RETRACTION = re.compile(
    r"\b(?:wait|hmm|scratch that|correction|my mistake)\b|"
    r"\b(?:that|this|it|which|my answer|the answer(?: above)?|the above)(?:'s| is| was| seems| looks)\s+"
    r"(?:actually\s+)?(?:wrong|incorrect|a mistake|mistaken|not (?:right|correct|the answer))|"
    r"\bI (?:made|have made) an? (?:mistake|error)|\b(?:ignore|disregard|forget) (?:that|this|the)\b|"
    r"\b(?:actually|sorry(?!\s+for\b)|oops|I meant|just kidding|or (?:maybe|perhaps|possibly))\b|"
    r"\b(?:alternatively|maybe|perhaps|possibly),?\s+(?:it|the answer)\s+(?:is|was|(?:could|might|should) be)"
    r"\s+[\d$\\(-]|"
    r"\A[\s$})\].,*]{0,9}(?:\??\s*no(?:[,.;:!]|\s+it\b)|isn't\b|is not\b|"
    r"(?:is|was|seems|looks)\s+(?:\w+\s+)?(?:wrong|incorrect|false)\b)|"
    r"\bon second thought|\blet me (?:redo|recompute|recalculate|reconsider|try again)|不对|算错|重新(?:计)?算",
    re.IGNORECASE,
)
_CONFIRMATION = re.compile(
    r"\b(?:confirmed|is (?:indeed )?(?:correct|right|fine)|checks? out|holds|matches)\b|没错", re.IGNORECASE
)


_DENIED = re.compile(
    r"(?:\b(?:not|cannot|never|doubt)|n't)(?:\s+(?:it|that|this|be|is|was|equal|to|the|answer|value)){0,5}[\s:$(\[*\\]*\Z",
    re.IGNORECASE,
)
_INSTEAD = re.compile(
    r"\b(?:(?:real|true|correct|right|actual|final)\s+(?:answer|value|result)\s+(?:is|should be)|"
    r"(?:it|this|that|answer|value|result)\s+(?:should|must|has to)\s+(?:be|have been))\b[\s:]*"
    r"(?P<value>[^\s(](?:[^.。\n]|\.(?=\d)){0,60})",
    re.IGNORECASE,
)


def _said_instead(rest: str) -> list[str]:
    """What text behind the place says that the answer is: it has to be the same value."""
    if len(rest) < 10:
        return []  # too short for any
    found = [match["value"].replace('\\"', '"').strip(' *,"') for match in _INSTEAD.finditer(rest)]
    return [value for value in found if any(c.isdigit() for c in value)][-3:]


def _refuse_retraction(rest: str) -> None:
    """Text behind the answer that takes it back leaves no answer, unless it is confirmed after that."""
    if len(rest) < 3 and rest.isascii():
        return  # too short for any
    retractions = list(_RETRACTION.finditer(rest))
    if retractions and not _CONFIRMATION.search(rest, retractions[-1].end()):
        raise _MissingAnswerError(f"the answer is taken back: {retractions[-1][0]}")


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


_FLAT_BOX = re.compile(r"\\boxed\{((?:[^{}\\]|\\[a-zA-Z]+|\{[^{}\\]*+\})*+)\}")


def _only_box(text: str) -> _Place | None:
    """What ``_box_places`` finds where there is one plain box, as nearly always; None where it has to look itself."""
    start = text.find("\\boxed{") if text.count("box") == 1 else -1
    if start < 0 or text.endswith("\\", 0, start):
        return None
    found = _FLAT_BOX.match(text, start)
    return None if found is None else _Place(found[1], start, found.end())


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


_ALTERNATIVE = re.compile(
    r"\b(?:case|or|maybe|perhaps|possibly|otherwise|alternatively|either|option)\b|或", re.IGNORECASE
)


def _last_row(text: str, places: list[_Place]) -> list[_Place]:
    """The last place and those offered with it. An earlier place in an earlier sentence has been superseded."""
    first = len(places) - 1
    while first > 0 and _is_same_offer(text[places[first - 1].end : places[first].start]):
        first -= 1
    return places[first:]


def _is_same_offer(between: str) -> bool:
    num_words = sum(any(c.isalnum() for c in word) for word in between.split())
    if num_words < 2 or not any(border in between for border in ".!?。！？\n"):
        return True
    return num_words < 6 and _ALTERNATIVE.search(between) is not None
