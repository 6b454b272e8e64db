"""Read a judge's reply strictly: one verdict, on the last line, behind the mark that only the judge was told."""

import re
from typing import Literal

Choice = Literal["first", "second", "tie"]

_NUMBER = re.compile(r"-?[0-9]{1,9}(?:\.[0-9]{1,9})?", re.ASCII)
_CHOICES: dict[str, Choice] = {"A": "first", "B": "second", "TIE": "tie"}


class BadReplyError(Exception):
    """The reply states no verdict; ``cause`` is ``unparsable`` or ``off_range``."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause


def read_score(reply: str, mark: str, low: float, high: float) -> float:
    """The score of a reply.

    Raises:
        BadReplyError: it is not exactly one number behind the mark on the last line (``unparsable``), or outside the
            range (``off_range``).
    """
    word = _verdict(reply, mark)
    if _NUMBER.fullmatch(word) is None:
        raise BadReplyError("unparsable", f"the verdict {word[:40]!r} is no number")
    score = float(word)
    if not low <= score <= high:
        raise BadReplyError("off_range", f"the score {word} is outside {low:g} to {high:g}")
    return score


def read_choice(reply: str, mark: str) -> Choice:
    """The preference of a reply: A is the first, B the second.

    Raises:
        BadReplyError: it is not exactly one of A, B, TIE behind the mark on the last line.
    """
    word = _verdict(reply, mark)
    if word.upper() not in _CHOICES:
        raise BadReplyError("unparsable", f"the verdict {word[:40]!r} is none of A, B, TIE")
    return _CHOICES[word.upper()]


def _verdict(reply: str, mark: str) -> str:
    """What stands behind the mark. Reasoning in front of it is not read."""
    answer = reply.rpartition("</think>")[2].rstrip()
    if "<think>" in answer:
        raise BadReplyError("unparsable", "the judge's reasoning does not end")
    if answer.count(mark) != 1:
        raise BadReplyError("unparsable", f"the reply states {answer.count(mark)} verdicts, not one")
    last = answer.rpartition("\n")[2].strip().strip("*`").strip()
    if not last.startswith(f"{mark}:"):
        raise BadReplyError("unparsable", "the last line of the reply is not the verdict")
    return last.removeprefix(f"{mark}:").strip()
