"""Name the nearest known word when an unknown one was typed."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` Did you mean X?`` for the nearest known word, or an empty string when none is near."""
    nearest = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean {nearest[0]}?" if nearest else ""
