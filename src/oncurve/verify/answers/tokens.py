"""Cut an answer into tokens. Style (bold, colour, sizes) vanishes here; words keep that they are words."""

import re
from dataclasses import dataclass

NUMBER = r"""
    (?:[1-9][0-9]{0,2}(?:(?:,|\s?\{,\s?\}\s?|\\,|\\!|,\\!\s?|\\\s)[0-9]{3})+(?![0-9])(?:\.[0-9]+)?
      | [1-9][0-9]{0,2}(?:\x20[0-9]{3})+(?![0-9])(?:\.[0-9]+)?
      | [0-9]+(?:\.[0-9]*)? | \.[0-9]+)
    (?:[eE][+-]?[0-9]{1,6}(?![0-9a-zA-Z]))?"""
_TOKEN = re.compile(
    rf"""(?P<space>(?:\s|~|\\[,;:!\ >]|\\q?quad|\\hspace\*?\{{[^{{}}]{{0,20}}\}}|\$|\\[()\[\]]|&(?=\s*=))+)
    |(?P<number>{NUMBER})
    |(?P<command>\\(?:[a-zA-Z]+|[%$\#&_{{}}|\\]))
    |(?P<word>or(?=[A-Z])|and(?=[A-Z])|[^\W\d_]+)
    |(?P<symbol>!=|\*\*|>=|<=|==|=>|\.\.\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_DROPPED = {
    "\\left", "\\right", "\\displaystyle", "\\textstyle", "\\limits", "\\nolimits", "\\big", "\\Big", "\\bigl",
    "\\bigr", "\\Bigl", "\\Bigr", "\\bigg", "\\Bigg", "\\biggl", "\\biggr", "\\middle", "\\rm", "\\bf", "\\it",
    "\\large", "\\Large", "\\huge", "\\scriptstyle", "\\strut", "\\mathstrut", "\\bm", "\\nonumber", "\\thinspace",
    "\\blacksquare", "\\square", "\\Box", "\\qed", "\\checkmark",
}  # fmt: skip
_TEXT_STYLES = {
    "\\text", "\\textbf", "\\textit", "\\textrm", "\\textnormal", "\\textsf", "\\texttt", "\\mbox", "\\hbox",
    "\\mathrm", "\\operatorname", "\\mathop", "\\emph", "\\textup", "\\mathsf", "\\mathtt",
}  # fmt: skip
_MATH_STYLES = {
    "\\underline",
    "\\mathbf",
    "\\mathit",
    "\\boldsymbol",
    "\\boxed",
    "\\fbox",
    "\\bm",
    "\\mathcal",
    "\\ensuremath",
}
_COLOURS = {"\\color", "\\textcolor"}
_SPELLINGS = {
    "\\leq": "\\le", "\\leqslant": "\\le", "<=": "\\le", "\\geq": "\\ge", "\\geqslant": "\\ge", ">=": "\\ge",
    "\\lt": "<", "\\gt": ">", "\\neq": "\\ne", "!=": "\\ne", "==": "=", "**": "^", "\\varnothing": "\\emptyset",
    "\\dfrac": "\\frac",
    "\\tfrac": "\\frac", "\\cfrac": "\\frac", "\\dbinom": "\\binom", "\\tbinom": "\\binom", "\\cdot": "*",
    "\\times": "*", "\\ast": "*", "\\div": "/", "\\dots": "\\ldots", "\\cdots": "\\ldots", "...": "\\ldots",
    "\\dotsc": "\\ldots",
    "\\lbrace": "\\{", "\\rbrace": "\\}", "\\lbrack": "[", "\\rbrack": "]", "\\colon": ":", "\\mid": "|", "\\vert": "|",
    "\\lvert": "|", "\\rvert": "|", "\\backslash": "\\setminus", "\\sim": "\\approx", "\\simeq": "\\approx",
    "\\doteq": "\\approx", "\\degree": "\\circ", "\\land": "\\wedge", "\\lor": "\\vee", "\\arctg": "\\arctan",
    "\\tg": "\\tan", "\\ctg": "\\cot", "\\varphi": "\\phi", "\\varepsilon": "\\epsilon", "\\rightarrow": "\\to",
    "\\infin": "\\infty", "\\lg": "\\lg", "\\lparen": "(", "\\rparen": ")", "\\prime": "'",
}  # fmt: skip


@dataclass(slots=True)
class Token:
    """One token. ``kind``: number, command, word (letters in formulas), text (letters in text), symbol."""

    kind: str
    text: str
    is_after_space: bool


def tokenize(plain: str) -> list[Token]:
    """Cut plain text into tokens; blanks and style leave only their trace in ``is_after_space``."""
    tokens: list[Token] = []
    style_depths: list[tuple[int, bool]] = []  # brace depth at which a style ends, whether it is text
    depth = 0
    space = False
    pending: bool | None = None  # a style command waits for its brace; True when it sets text
    position = 0
    while match := _TOKEN.match(plain, position):
        position = match.end()
        kind, text = str(match.lastgroup), match[0]
        if kind == "space":
            space = True
            continue
        if text in _TEXT_STYLES or text in _MATH_STYLES or text in _COLOURS:
            if text in _COLOURS:
                position = _skip_argument(plain, position)
            pending, space = text in _TEXT_STYLES, space or text in _TEXT_STYLES
            continue
        if text in _DROPPED:
            # \left. and \right. are delimiters that do not show.
            if text in ("\\left", "\\right") and plain[position : position + 1] == ".":
                position += 1
            continue
        depth += (text == "{") - (text == "}")
        if pending is not None and text == "{":
            style_depths.append((depth, pending))
            pending = None
            continue
        pending = None
        if text == "}" and style_depths and style_depths[-1][0] == depth + 1:
            space = style_depths.pop()[1] or space
            continue
        if kind == "word" and any(is_text for _, is_text in style_depths):
            kind = "text"
        if text == "!=" and not space and tokens and (tokens[-1].kind == "number" or tokens[-1].text == ")"):
            tokens.append(Token(kind, "!", False))  # 5!=120
            text = "="
        tokens.append(Token(kind, _SPELLINGS.get(text, text), space))
        space = False
    return separate(tokens)


_BARE_COMMAS = re.compile(r"[0-9]+(?:,[0-9]+)+(?:\.[0-9]+)?")
_OPENING = {"(", "[", "{", "\\{", "\\langle"}
_CLOSING = {")", "]", "}", "\\}", "\\rangle"}


@dataclass(slots=True)
class _Level:
    """What stands between two brackets, without what stands in brackets inside."""

    opening: str
    places: list[int]
    """Positions of its tokens."""


def separate(tokens: list[Token]) -> list[Token]:
    """Tell lists from thousands: 100,200 is one number, but two in (100,200), and four numbers are 99,100,101,102.

    A comma separates in brackets that hold nothing else, and where another comma without a blank separates.
    """
    if not any(token.kind == "number" and "," in token.text for token in tokens):
        return tokens
    lists: set[int] = set()
    levels = [_Level("", [])]
    for place, token in enumerate(tokens):
        if token.text in _OPENING:
            levels.append(_Level(token.text, []))
        elif token.text in _CLOSING and len(levels) > 1:
            lists.update(_list_places(levels.pop(), tokens))
        else:
            levels[-1].places.append(place)
    for level in levels:
        lists.update(_list_places(level, tokens))
    separated: list[Token] = []
    for place, token in enumerate(tokens):
        if place not in lists:
            separated.append(token)
            continue
        for part in token.text.split(","):
            separated += [Token("symbol", ",", False), Token("number", part, False)]
        del separated[-2 * len(token.text.split(","))]
    return separated


def _list_places(level: _Level, tokens: list[Token]) -> list[int]:
    numbers = [p for p in level.places if tokens[p].kind == "number" and _BARE_COMMAS.fullmatch(tokens[p].text)]
    is_alone = len(level.places) == 1 and level.opening not in ("", "{")
    is_tight = any(
        tokens[p].text == "," and p + 1 < len(tokens) and not tokens[p + 1].is_after_space for p in level.places
    )
    return numbers if is_alone or is_tight else []


def _skip_argument(plain: str, position: int) -> int:
    """Step over ``{red}``."""
    argument = re.compile(r"\s*\{\s*[\w!.,]{1,30}\s*\}").match(plain, position)
    return argument.end() if argument else position


def canonical(tokens: list[Token]) -> str:
    """One spelling: no style, no braces around the whole, a space only between two words or numbers."""
    kept = tokens
    while is_wrapped(kept, "{", "}"):
        kept = kept[1:-1]
    pieces: list[str] = []
    for token in kept:
        if token.is_after_space and pieces and pieces[-1][-1].isalnum() and token.text[0].isalnum():
            pieces.append(" ")
        pieces.append(token.text)
    return "".join(pieces)


def is_wrapped(tokens: list[Token], opening: str, closing: str) -> bool:
    """True when the first token opens what the last token closes."""
    if len(tokens) < 2 or tokens[0].text != opening or tokens[-1].text != closing:
        return False
    depth = 0
    for position, token in enumerate(tokens):
        depth += (token.text == opening) - (token.text == closing)
        if depth == 0:
            return position == len(tokens) - 1
    return False
