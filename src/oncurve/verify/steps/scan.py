"""Find the equalities in running text: what stands on both sides, and whether the words around let them stand alone.

Linear in the length of the text. A word next to an expression may belong to it ("half of 10 = 5"): then the equality
is unreadable, not wrong.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from oncurve.verify.steps.expression import Token, UnreadableError
from oncurve.verify.steps.words import (
    BEFORE_A_NUMBER,
    BINDS_AFTER,
    BINDS_BEFORE,
    DENIALS,
    NO_UNITS,
    OPERATORS,
    RELATIONS,
)

_SPELLINGS = [
    (re.compile(r"\\(?:left|right|displaystyle|quad|qquad|[,;!: ])|\\[()\[\]]|\\?\$|[€£]"), " "),
    (re.compile(r"\\(?:text|mathrm|textbf|mathbf)\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\(?:times|cdot|ast)(?![a-zA-Z])|[×·⋅∙∗]"), "*"),
    (re.compile(r"\\div(?![a-zA-Z])|[÷∕⁄]"), "/"),
    (re.compile(r"\\approx(?![a-zA-Z])|[≃≅]"), "≈"),
    (re.compile(r"\\neq?(?![a-zA-Z])|=/=|!=(?=\s)(?<=\s..)"), "≠"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"[−﹣]|(?<=\s)–(?=\s)"), "-"),
    (re.compile(r"²"), "^2"),
    (re.compile(r"³"), "^3"),
    (re.compile(r"(?<=[0-9)])\s?\*\*\s?(?=[0-9(-])"), "^"),
    (re.compile(r"\*\*|__"), " "),  # bold
    (re.compile(r"\^\{([^{}]*)\}"), r"^(\1)"),
    (re.compile(r"(?m)^[ \t]*[-*+•]\s"), "\n"),  # a bullet
]
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_FULL_WIDTH = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_TOKEN = re.compile(
    r"""(?P<num>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)
    |(?P<word>[^\W\d_]+(?:'[^\W\d_]+)?)
    |(?P<clean>\n|[=-]{1,3}>|<=|>=|[<>→⇒∴∵"“”#`]|:=)
    |(?P<bind>\.\.+|…|(?<=[0-9]):(?=[0-9])|!=)
    |(?P<rel>==?|≈|≠)
    |(?P<op>[-+*/^%()])
    |(?P<space>\s+)
    |(?P<other>.)""",
    re.VERBOSE,
)
_CLEAN = frozenset(".,;:!?。、")
_ARITHMETIC = frozenset(("num", "op", "unit"))
_OPENS_A_CLAUSE = Token("clean", "", False)


@dataclass(frozen=True, slots=True)
class Claim:
    """One equality of the text."""

    text: str
    relation: str
    """``=``, ``≈`` or ``≠``."""
    left: list[Token]
    right: list[Token]
    is_word: bool
    """The relation is the word "is" or the like: without a calculation beside it, this is plain English."""
    is_definition: bool
    """A word and no number stands on the left: ``total = 3 + 4`` names something, and is neither right nor wrong."""
    problem: str
    """Why the words around do not let it stand alone; empty when they do."""


def find_claims(text: str) -> Iterator[Claim]:
    """Every relation of a text with its two sides, in order."""
    tokens = tokenize(text)
    return (_claim(tokens, place) for place, token in enumerate(tokens) if token.kind == "rel")


def tokenize(text: str) -> list[Token]:
    """Cut text into tokens; words that calculate become operators, words after numbers units."""
    text = text.translate(_FULL_WIDTH)
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    for _ in range(4):
        text = _FRACTION.sub(r"((\1)/(\2))", text)
    return _with_units(_with_word_operators(_plain_tokens(text)))


def _plain_tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    is_glued = False
    for match in _TOKEN.finditer(text):
        kind, piece = str(match.lastgroup), match[0]
        if kind == "space":
            is_glued = False
            continue
        if kind == "other":
            kind = "clean" if piece in _CLEAN else "bind"
        if piece == "!" and tokens and tokens[-1].kind == "num" and _calculates_on(text, match.end()):
            kind = "bind"  # a factorial
        tokens.append(Token(kind, "=" if piece == "==" else piece, is_glued))
        is_glued = True
    return tokens


def _calculates_on(text: str, position: int) -> bool:
    return text[position : position + 8].lstrip()[:1] in tuple("=+-*/^≈)")


def _with_word_operators(tokens: list[Token]) -> list[Token]:
    """``4 times 5 equals 20``, ``4 x 5``, ``10% of 20``, ``4 + 5 is 9``."""
    made: list[Token] = []
    place = 0
    while place < len(tokens):
        found = _spelled(tokens, place) if made and _ends_value(made[-1]) else None
        if found is None:
            made.append(tokens[place])
            place += 1
        else:
            token, length = found
            made.append(token)
            place += length
    return made


def _spelled(tokens: list[Token], place: int) -> tuple[Token, int] | None:
    for length in (3, 2, 1):
        words = tokens[place : place + length]
        following = tokens[place + length] if place + length < len(tokens) else None
        if len(words) < length or following is None or any(word.kind != "word" for word in words):
            continue
        phrase = " ".join(word.text.lower() for word in words)
        begins_value = following.kind == "num" or following.text in ("(", "-")
        if not begins_value:
            continue
        if phrase in OPERATORS:
            return Token("op", OPERATORS[phrase], False), length
        if phrase in RELATIONS:
            return Token("rel", phrase, False), length
        is_part = place > 0 and (tokens[place - 1].text == "%" or (place > 2 and tokens[place - 2].text == "/"))
        if phrase == "of" and is_part:
            return Token("op", "*", False), 1
    return None


def _with_units(tokens: list[Token]) -> list[Token]:
    made = list(tokens)
    for place, token in enumerate(tokens):
        if token.kind != "word" or place == 0 or not _ends_value(tokens[place - 1]):
            continue
        following = tokens[place + 1] if place + 1 < len(tokens) else None
        goes_on = following is not None and (following.kind == "rel" or following.text in tuple("+-*/)"))
        if goes_on:
            is_unit = len(token.text) > 1 and token.text.lower() not in NO_UNITS
            made[place] = token._replace(kind="unit" if is_unit else "bind")
    return made


def _ends_value(token: Token) -> bool:
    return token.kind in ("num", "unit") or token.text in (")", "%")


def _claim(tokens: list[Token], place: int) -> Claim:
    start, stop = place, place + 1
    while start > 0 and tokens[start - 1].kind in _ARITHMETIC:
        start -= 1
    while stop < len(tokens) and tokens[stop].kind in _ARITHMETIC:
        stop += 1
    left, before = _trim_left(tokens[start:place], tokens[start - 1] if start else _OPENS_A_CLAUSE)
    right, after = _trim_right(tokens[place + 1 : stop], tokens[stop] if stop < len(tokens) else _OPENS_A_CLAUSE)
    word = tokens[place].text
    problem = _problem_before(tokens, start, left, before) or _problem_after(tokens, stop, right, after)
    return Claim(
        text=show([*left, Token("rel", RELATIONS.get(word, word), False), *right]),
        relation=RELATIONS.get(word, word),
        left=left,
        right=right,
        is_word=word in RELATIONS,
        is_definition=not left and before.kind == "word",
        problem=problem or _problem_of_units(left, right, after),
    )


def show(tokens: list[Token]) -> str:
    """The tokens as one line: what a step is known by."""
    text = ""
    for token in tokens:
        is_apart = text[-1:].isalnum() and token.text[:1].isalnum()
        text += f" {token.text}" if is_apart else token.text
    return text


def _trim_left(run: list[Token], before: Token) -> tuple[list[Token], Token]:
    """Cut after the last bracket that has no partner: ``1) 4+5``, ``(4+5``."""
    cut = 0
    open_places: list[int] = []
    for place, token in enumerate(run):
        if token.text == "(":
            open_places.append(place)
        elif token.text == ")" and open_places:
            open_places.pop()
        elif token.text == ")":
            cut = place + 1
    cut = max([cut, *(place + 1 for place in open_places)])
    return (run[cut:], _OPENS_A_CLAUSE) if cut else (run, before)


def _trim_right(run: list[Token], after: Token) -> tuple[list[Token], Token]:
    """Cut before the first closing bracket without a partner, a bracket that opens a remark, a dash."""
    open_places: list[int] = []
    for place, token in enumerate(run):
        if token.text == ")" and not open_places:
            return run[:place], _OPENS_A_CLAUSE
        if token.text == ")":
            open_places.pop()
        if token.text == "(":
            if place and not token.is_glued and _ends_value(run[place - 1]):
                return run[:place], _OPENS_A_CLAUSE
            open_places.append(place)
    if run and run[-1].text == "-" and not run[-1].is_glued and not after.is_glued:
        return run[:-1], _OPENS_A_CLAUSE
    return run, after


def _problem_before(tokens: list[Token], start: int, left: list[Token], before: Token) -> str:
    if before.kind in ("clean", "rel"):
        return ""
    if before.kind == "bind" or not left:
        return "one side is no number"
    word = before.text.lower()
    if (
        (left[0].is_glued and word.isascii())
        or (left[0].kind == "op" and left[0].text != "(")
        or (len(word) == 1 and word not in "ai")
    ):
        return f"{before.text!r} is part of the left side"
    is_joined = word == "and" and (start < 2 or not _ends_value(tokens[start - 2]) or _ends_equality(tokens, start - 2))
    if word in BINDS_BEFORE and not is_joined:
        return f"{before.text!r} may change what the left side means"
    has_operation = sum(token.kind == "num" for token in left) > 1
    if not has_operation and word not in BEFORE_A_NUMBER and not is_joined:
        return f"{before.text!r} may be part of the left side"
    return ""


def _ends_equality(tokens: list[Token], place: int) -> bool:
    """What ends at ``place`` is the right side of an equality."""
    while place >= 0 and tokens[place].kind in _ARITHMETIC:
        place -= 1
    return place >= 0 and tokens[place].kind == "rel"


def _problem_after(tokens: list[Token], stop: int, right: list[Token], after: Token) -> str:
    if not right:
        return "one side is no number"
    if after.kind == "bind" or after.text == "?":
        return "it is asked, or goes on" if after.text == "?" else "the right side is no number"
    if after.kind != "word":
        return ""
    if after.is_glued and len(after.text) == 1:
        return f"{after.text!r} is part of the right side"
    following = [token.text.lower() for token in tokens[stop : stop + 4] if token.kind == "word"]
    if after.text.lower() in BINDS_AFTER or (len(after.text) == 1 and after.text.lower() not in "ai"):
        return f"{after.text!r} may be part of the right side"
    return "it is denied" if not DENIALS.isdisjoint(following) else ""


def _problem_of_units(left: list[Token], right: list[Token], after: Token) -> str:
    named = {_singular(token.text) for token in (*left, *right) if token.kind == "unit"}
    on_left = any(token.kind == "unit" for token in left)
    on_right = any(token.kind == "unit" for token in right)
    if on_left and not on_right and after.kind == "word":
        named.add(_singular(after.text))
        on_right = True
    if len(named) > 1:
        return f"it mixes {' and '.join(sorted(named))}"
    return "only one side names a unit" if on_left != on_right else ""


def _singular(word: str) -> str:
    return word.lower().removesuffix("s")


def refuse(claim: Claim) -> None:
    """Raise what keeps a claim from being checked.

    Raises:
        UnreadableError: the words around do not let it stand alone.
    """
    if claim.problem:
        raise UnreadableError(claim.problem)
