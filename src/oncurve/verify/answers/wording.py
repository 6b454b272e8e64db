"""Answers in words: one spelling, numbers in words, choices, and the phrases that say "nothing" or "everything"."""

import re

_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SMALL = {word: value for value, word in enumerate(_ONES)} | {word: 20 + 10 * i for i, word in enumerate(_TENS)}
_LARGE = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_ORDINALS = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9,
    "tenth": 10, "eleventh": 11, "twelfth": 12,
}  # fmt: skip
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_ARTICLES = frozenset(("a", "an", "the"))
_ORDINAL = re.compile(r"(\d{1,9})\s*(?:st|nd|rd|th)", re.IGNORECASE)
_NO_SOLUTION = frozenset(
    (
        "no solution", "no solutions", "no real solution", "no real solutions", "none", "empty set",
        "no such number exists",
        "there is no solution", "there are no solutions", "no integer solutions", "has no solution", "has no solutions",
        "no real roots", "no roots", "无解",
    )
)  # fmt: skip
_EVERYTHING = frozenset(
    (
        "all real numbers", "all reals", "all real x", "every real number", "any real number", "all real values",
        "x is any real number", "all x in r", "for all x", "for all real x", "real numbers", "全体实数",
    )
)  # fmt: skip
_DECISIONS = frozenset(("yes", "no", "true", "false"))
_PLACEHOLDERS = frozenset(
    (
        "answer", "your answer", "your answer here", "final answer", "your final answer", "answer here", "the answer",
        "the final answer", "your final answer here", "insert answer here", "result", "your result",
        "the correct answer",
        "correct answer", "number", "value", "expression", "solution", "your solution",
    )
)  # fmt: skip
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_ISO_DATE = re.compile(r"([12]\d{3})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_MONTH_FIRST = re.compile(r"([a-z]{3,9})\.?\s*(\d{1,2})(?:st|nd|rd|th)?(?:,?\s*([12]\d{3}))?", re.IGNORECASE)
_DAY_FIRST = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?\s*(?:of\s*)?([a-z]{3,9})\.?(?:,?\s*([12]\d{3}))?", re.IGNORECASE)
_CHOICE_HEAD = r"(?:(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)(?:\s+is)?\s*:?\s*|选项?\s*|故选\s*)?"
_CHOICE = re.compile(
    rf"{_CHOICE_HEAD}(?:[(\[]\s*([A-J])\s*[)\]]|([A-J])(?=$|\s*[.:)]|\s+is\s+correct$|\s*正确$))\s*[.:)]?\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)
_CHOICE_GOLD = re.compile(r"[(\[]?\s*([A-J])\s*[)\]]?[.:]?")
_HEDGES = re.compile(
    r"\b(?:or|not|and|wrong|incorrect|isn|false|maybe|perhaps|but|either|neither|except|so)\b|\b[A-J]\b(?!\s*[-+*/=^_(])"
)


def words_of(text: str) -> str:
    """Words in lower case, without articles and punctuation. Empty when no word is there."""
    found = [word.casefold() for word in _WORD.findall(text)]
    return " ".join(word for word in found if word not in _ARTICLES) or " ".join(found)


def number_of_words(text: str) -> int | None:
    """The integer that ``twenty-one``, ``third`` or ``3rd`` name; None when the words name none."""
    ordinal = _ORDINAL.fullmatch(text)
    if ordinal:
        return int(ordinal[1])
    words = text.casefold().replace("-", " ").split()
    if len(words) > 1 and words[0] in ("minus", "negative"):
        size = number_of_words(" ".join(words[1:])) if words[1] in _SMALL else None
        return None if size is None else -size
    if len(words) == 1 and words[0] in _ORDINALS:
        return _ORDINALS[words[0]]
    if not words or len(words) > 12:
        return None
    total = part = 0
    previous = ""
    for word in words:
        if word == "and" and previous in ("hundred", "thousand"):
            pass
        elif word in _SMALL:
            if previous in _SMALL and not (_SMALL[previous] >= 20 and _SMALL[word] < 10):
                return None
            part += _SMALL[word]
        elif word == "hundred" and part:
            part *= 100
        elif word in _LARGE and part:
            total, part = total + part * _LARGE[word], 0
        else:
            return None
        previous = word
    return None if previous == "and" else total + part


def date_of(text: str) -> tuple[int, int, int] | None:
    """Year (0 when it is not said), month and day of ``2024-03-05``, ``March 5, 2024`` or ``5 March``; else None."""
    if iso := _ISO_DATE.fullmatch(text):
        return int(iso[1]), int(iso[2]), int(iso[3])
    if found := _MONTH_FIRST.fullmatch(text):
        name, day, year = found.groups()
    elif found := _DAY_FIRST.fullmatch(text):
        day, name, year = found.groups()
    else:
        return None
    months = [place for place, month in enumerate(_MONTHS, 1) if name.lower() in (month, month[:3])]
    return (int(year or 0), months[0], int(day)) if months and 1 <= int(day) <= 31 else None


def says_nothing(text: str) -> bool:
    """True for ``no solution`` and its like: the empty set in words."""
    return words_of(text) in _NO_SOLUTION


def says_everything(text: str) -> bool:
    """True for ``all real numbers`` and its like."""
    return words_of(text) in _EVERYTHING


def is_placeholder(text: str) -> bool:
    """True for what a template puts into an answer place: ``your answer here``, dots."""
    if _DIGIT.search(text):
        return False
    visible = text.strip(" \t\n.$")
    for _ in range(3):
        if visible.startswith("{") and visible.endswith("}"):
            visible = visible[1:-1].strip(" \t\n.$")
    return visible in ("", "\\ldots", "\\dots", "…", "\\cdots", "___", "?") or words_of(visible) in _PLACEHOLDERS


def decision_of(text: str) -> str:
    """``yes``, ``no``, ``true`` or ``false`` when the text is or begins with that word; otherwise an empty string."""
    words = words_of(text).split()
    if not words or words[0] not in _DECISIONS:
        return ""
    if len(words) > 1 and (_DECISIONS | {"or"}).intersection(words[1:]):
        return ""
    return words[0] if len(words) == 1 or re.match(r"\W*[^\W_]+\s*[,.;:!]", text) else ""


def gold_choice(text: str) -> str:
    """The letter when a gold is a choice and nothing else."""
    found = _CHOICE_GOLD.fullmatch(text.strip())
    return found[1].upper() if found else ""


def named_choice(text: str) -> tuple[str, str]:
    """The letter that an answer begins with as a choice, and the text behind it (``(B) 12``); empty without one."""
    found = _CHOICE.fullmatch(text.strip())
    letter = str(found[1] or found[2]) if found else ""
    return (letter, found[3].strip()) if found and letter.isupper() else ("", "")


def choice_of(text: str) -> str:
    """The one letter that an answer chooses: ``(B) 12``, ``Option D``, ``A: it doubles``; otherwise an empty string."""
    letter, rest = named_choice(text)
    return "" if _HEDGES.search(rest) else letter
