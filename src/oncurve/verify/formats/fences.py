"""Code fences, as CommonMark reads them: a linear scanner over lines."""

from dataclasses import dataclass

_MOST_INDENT = 3
_SHORTEST = 3


@dataclass(frozen=True, slots=True)
class Fence:
    """One code fence: its label, where its content stands, where its fence lines begin and end."""

    label: str
    """First word behind the opening marks, in lower case; empty without one."""
    start: int
    end: int
    outer_start: int
    outer_end: int
    is_closed: bool


def scan_fences(text: str) -> list[Fence]:
    """Find every fence in order. One that is never closed ends with the text.

    A fence opens with a line of at least three backticks or tildes (indented by at most three blanks) and closes with
    a line of at least as many of the same and nothing else. Fences do not nest.
    """
    fences: list[Fence] = []
    opening: tuple[str, int, str, int, int] | None = None  # mark, count, label, first outer and first inner character
    position = 0
    for line in text.split("\n"):
        mark, count, rest = _marks(line)
        after = min(position + len(line) + 1, len(text))
        if opening is None:
            if count >= _SHORTEST and not (mark == "`" and "`" in rest):
                opening = mark, count, (rest.split() or [""])[0].lower(), position, after
        elif mark == opening[0] and count >= opening[1] and not rest.strip():
            fences.append(Fence(opening[2], opening[4], position, opening[3], after, is_closed=True))
            opening = None
        position += len(line) + 1
    if opening is not None:
        fences.append(Fence(opening[2], opening[4], len(text), opening[3], len(text), is_closed=False))
    return fences


def _marks(line: str) -> tuple[str, int, str]:
    """The fence mark at the start of a line, how often it stands there, and what follows."""
    body = line.lstrip(" ")
    mark = body[:1]
    if mark not in ("`", "~") or not mark or len(line) - len(body) > _MOST_INDENT:
        return "", 0, ""
    rest = body.lstrip(mark)
    return mark, len(body) - len(rest), rest
