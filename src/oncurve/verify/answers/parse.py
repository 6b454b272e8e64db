"""Read an answer as an exact value, with an own tokenizer and grammar. Nothing is ever evaluated as code.

The grammar, after typography has been made plain (Unicode minus and times, full-width characters, ½):

    answer   := currency? sum percent?
    sum      := sign? product ((``+`` | ``-``) product)*
    product  := power ((``*`` | ``/`` | \\times | \\cdot | \\div) power)*
    power    := atom (``^`` argument)? ``!``*
    atom     := number | mixed | \\frac argument argument | \\binom argument argument | ( sum ) | { sum } | \\style atom
    mixed    := integer \\frac{a}{b}  |  integer space a/b              with 0 < a < b

What the grammar does not read is kept as text, and text equals only the same text. Length, depth and the size of
every intermediate number are bounded before anything is computed.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction

MAX_CHARS = 4096
"""Longer answers are compared as text. Below Python's limit of 4,300 digits for reading an integer."""
MAX_DEPTH = 50
MAX_BITS = 14_000
"""Largest numerator or denominator, about 4,200 digits."""
MAX_WORK_BITS = 2_000_000
"""Sum of the sizes of all intermediate results."""


@dataclass(frozen=True, slots=True)
class Number:
    """An exact rational."""

    value: Fraction
    is_percent: bool = False
    """Written with a percent sign; ``value`` is already divided by 100."""


@dataclass(frozen=True, slots=True)
class Text:
    """Anything that is not read as a number, in one canonical spelling."""

    text: str


Value = Number | Text


def parse(source: str) -> Value | None:
    """Read an answer.

    Returns:
        The number, or the text when it is not a number within the bounds; None when nothing visible is there.
    """
    if len(source) > MAX_CHARS:
        return Text(" ".join(source.split())) if source.strip() else None
    plain = _plain(source)
    tokens = _tokenize(plain)
    try:
        return _Parser(tokens).answer()
    except _NotANumberError:
        text = _canonical(tokens)
        return Text(text) if text else None


def render(value: Value) -> str:
    """Write a value so that ``parse`` reads the same value back."""
    if isinstance(value, Text):
        return value.text
    return f"{value.value * 100}%" if value.is_percent else str(value.value)


class _NotANumberError(Exception):
    """The tokens are not a number of the grammar, or exceed a bound."""


# --- typography -------------------------------------------------------------------------------------------------

_VULGAR = {"½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5)}
_VULGAR |= {"⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8)}
_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_PLAIN = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}  # full-width ASCII
_PLAIN |= {ord(c): "-" for c in "−‐‑﹣"} | {ord(c): "*" for c in "×·⋅∙∗"} | {ord("÷"): "/"}
_PLAIN |= dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"), "")
_PLAIN |= {ord(char): f"\\frac{{{a}}}{{{b}}}" for char, (a, b) in _VULGAR.items()}
_SUPERSCRIPT_RUN = re.compile(f"[⁻]?[{_SUPERSCRIPTS}]+")
_TO_DIGITS = str.maketrans(_SUPERSCRIPTS + "⁻", "0123456789-")
_WRAPPING = " \t\r\n\f\v\u00a0\u3000$`"


def _plain(source: str) -> str:
    """Undo typography, then strip what surrounds an answer in a sentence: ``$``, ``**``, back quotes, a full stop."""
    text = _SUPERSCRIPT_RUN.sub(lambda run: f"^{{{run[0].translate(_TO_DIGITS)}}}", source.translate(_PLAIN))
    for _ in range(8):
        before = text
        text = text.strip(_WRAPPING)
        if text.startswith("**") and text.endswith("**"):
            text = text[2:-2]
        if text.endswith((".", ",", ";", "。", "，", "、")) and not text.endswith(("..", "\\,", "\\;")):
            text = text[:-1]
        if text == before:
            break
    # A dash is a minus only in front: between two numbers it is a range.
    return "-" + text[1:] if text.startswith("–") else text


# --- tokens -----------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|~|\\[,;:!\ ]|\\q?quad(?![a-zA-Z]))+)
    |(?P<number>
        (?:[0-9]{1,3}(?:(?:,|\{,\}|\\,|\\!,|,\\!)[0-9]{3})+(?![0-9])(?:\.[0-9]+)? | [0-9]+(?:\.[0-9]*)? | \.[0-9]+)
        (?:[eE][+-]?[0-9]{1,6}(?![0-9a-zA-Z]))?)
    |(?P<command>\\(?:[a-zA-Z]+|[%$\#&_{}]))
    |(?P<word>[^\W\d_]+)
    |(?P<symbol>.)""",
    re.VERBOSE | re.DOTALL,
)
_INVISIBLE = {"\\left", "\\right", "\\displaystyle", "\\textstyle", "\\limits", "\\big", "\\Big", "\\bigl", "\\bigr"}


@dataclass(slots=True)
class _Token:
    kind: str
    text: str
    is_after_space: bool


def _tokenize(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    space = False
    for match in _TOKEN.finditer(text):
        kind = str(match.lastgroup)
        if kind == "space" or match[0] in _INVISIBLE:
            space = space or kind == "space"
            continue
        tokens.append(_Token(kind, match[0], space))
        space = False
    return tokens


_STYLES = {"\\text", "\\textbf", "\\textit", "\\textrm", "\\mathrm", "\\mathbf", "\\mathit", "\\mathsf", "\\bm"}
_STYLES |= {"\\boldsymbol", "\\boxed", "\\fbox", "\\mbox", "\\operatorname", "\\bf", "\\rm"}
_COLOURS = {"\\color", "\\textcolor"}
_FRACTIONS = {"\\frac", "\\dfrac", "\\tfrac", "\\cfrac"}


def _canonical(tokens: list[_Token]) -> str:
    """One spelling: no style commands, no braces around the whole, a space only between two words or numbers."""
    kept = [t for t in tokens if t.text not in _STYLES]
    for _ in range(MAX_DEPTH):
        if not _is_wrapped(kept):
            break
        kept = kept[1:-1]
    pieces: list[str] = []
    for token in kept:
        if token.is_after_space and pieces and pieces[-1][-1].isalnum() and token.text[0].isalnum():
            pieces.append(" ")
        pieces.append(token.text)
    return "".join(pieces)


def _is_wrapped(tokens: list[_Token]) -> bool:
    """True when the first token is a brace that the last token closes."""
    if len(tokens) < 2 or tokens[0].text != "{" or tokens[-1].text != "}":
        return False
    depth = 0
    for position, token in enumerate(tokens):
        depth += (token.text == "{") - (token.text == "}")
        if depth == 0:
            return position == len(tokens) - 1
    return False


# --- grammar ----------------------------------------------------------------------------------------------------


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = list(tokens)
        self.position = 0
        self.depth = 0
        self.work_bits = MAX_WORK_BITS
        self.num_sums = 0

    def answer(self) -> Number:
        self.accept("\\$")
        value = self.sum()
        if self.position == len(self.tokens):
            return Number(value)
        if self.num_sums == 0 and self.rest() in ("%", "\\%", "percent", "\\text{percent}"):
            return Number(self.bounded(value / 100), is_percent=True)
        raise _NotANumberError

    def sum(self) -> Fraction:
        sign = -1 if self.accept("-") else 1
        if sign == 1:
            self.accept("+")
        self.accept("\\$")
        total = sign * self.product()
        while (operator := self.peek()) in ("+", "-"):
            self.position += 1
            self.num_sums += 1
            term = self.product()
            total = self.bounded(total + term if operator == "+" else total - term)
        return total

    def product(self) -> Fraction:
        total = self.power()
        while (operator := self.peek()) in ("*", "/", "\\times", "\\cdot", "\\div"):
            self.position += 1
            factor = self.power()
            total = self.divide(total, factor) if operator in ("/", "\\div") else self.bounded(total * factor)
        return total

    def power(self) -> Fraction:
        base = self.atom()
        if self.accept("^"):
            base = self.raise_to(base, self.argument(is_exponent=True))
            if self.peek() == "^":
                raise _NotANumberError
        while self.accept("!"):
            base = Fraction(self.factorial(base))
        return base

    def atom(self) -> Fraction:
        token = self.take()
        if token.kind == "number":
            return self.mixed(token)
        if token.text in ("(", "{"):
            return self.group(token.text)
        if token.text in _FRACTIONS:
            return self.divide(self.argument(), self.argument())
        if token.text in ("\\binom", "\\dbinom", "\\tbinom"):
            return self.binomial(self.argument(), self.argument())
        if token.text in _STYLES or token.text in _COLOURS:
            return self.styled(token.text)
        raise _NotANumberError

    def group(self, opening: str) -> Fraction:
        # (2,500) is a pair, not two thousand five hundred.
        if opening == "(" and "," in self.peek() and self.peek(1) == ")":
            raise _NotANumberError
        with_depth = self.depth
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _NotANumberError
        value = self.sum()
        if not self.accept(")" if opening == "(" else "}"):
            raise _NotANumberError
        self.depth = with_depth
        return value

    def styled(self, command: str) -> Fraction:
        if command in _COLOURS and not (self.accept("{") and self.take().kind == "word" and self.accept("}")):
            raise _NotANumberError
        if self.accept("{"):
            return self.group("{")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _NotANumberError
        return self.atom()

    def mixed(self, whole: _Token) -> Fraction:
        value = self.literal(whole.text)
        is_integer = whole.text.isdigit()
        if is_integer and self.peek() in _FRACTIONS:
            self.position += 1
            return value + self.proper(self.argument(), self.argument())
        has_space = self.position < len(self.tokens) and self.tokens[self.position].is_after_space
        if is_integer and has_space and self.peek().isdigit() and self.peek(1) == "/" and self.peek(2).isdigit():
            top, _, bottom = self.take(), self.take(), self.take()
            return value + self.proper(self.literal(top.text), self.literal(bottom.text))
        return value

    @staticmethod
    def proper(top: Fraction, bottom: Fraction) -> Fraction:
        if not (0 < top < bottom and top.denominator == bottom.denominator == 1):
            raise _NotANumberError
        return top / bottom

    def argument(self, *, is_exponent: bool = False) -> Fraction:
        """``{…}``, or without braces one digit (``\\frac37``); an exponent takes the whole number (``2^10``)."""
        if self.accept("{"):
            return self.group("{")
        if is_exponent:
            sign = -1 if self.accept("-") else 1
            return sign * self.literal(self.take_number())
        digits = self.take_number()
        if len(digits) > 1:
            self.position -= 1
            token = self.tokens[self.position]
            self.tokens[self.position] = _Token("number", token.text[1:], token.is_after_space)
        if not digits[0].isdigit():
            raise _NotANumberError
        return Fraction(int(digits[0]))

    # --- arithmetic within bounds ---

    def literal(self, text: str) -> Fraction:
        digits = text.replace("{,}", "").replace("\\,", "").replace("\\!", "").replace(",", "")
        mantissa, _, exponent = digits.lower().partition("e")
        whole, _, decimals = mantissa.partition(".")
        power = int(exponent or 0) - len(decimals)
        if abs(power) > MAX_CHARS:
            raise _NotANumberError
        number = int(whole + decimals)
        return self.bounded(Fraction(number * 10**power) if power >= 0 else Fraction(number, 10**-power))

    def bounded(self, value: Fraction) -> Fraction:
        bits = max(value.numerator.bit_length(), value.denominator.bit_length())
        self.work_bits -= bits
        if bits > MAX_BITS or self.work_bits < 0:
            raise _NotANumberError
        return value

    def divide(self, top: Fraction, bottom: Fraction) -> Fraction:
        if bottom == 0:
            raise _NotANumberError
        return self.bounded(top / bottom)

    def raise_to(self, base: Fraction, exponent: Fraction) -> Fraction:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if exponent.denominator != 1 or (base == 0 and exponent <= 0) or abs(exponent) * bits > MAX_BITS:
            raise _NotANumberError
        return self.bounded(base ** int(exponent))

    def factorial(self, value: Fraction) -> int:
        if value.denominator != 1 or not 0 <= value <= 1500:
            raise _NotANumberError
        return int(self.bounded(Fraction(math.factorial(int(value)))))

    def binomial(self, n: Fraction, k: Fraction) -> Fraction:
        if n.denominator != 1 or k.denominator != 1 or not 0 <= k <= n <= 1500:
            raise _NotANumberError
        return self.bounded(Fraction(math.comb(int(n), int(k))))

    # --- tokens ---

    def peek(self, ahead: int = 0) -> str:
        position = self.position + ahead
        return self.tokens[position].text if position < len(self.tokens) else ""

    def take(self) -> _Token:
        if self.position == len(self.tokens):
            raise _NotANumberError
        self.position += 1
        return self.tokens[self.position - 1]

    def take_number(self) -> str:
        token = self.take()
        if token.kind != "number":
            raise _NotANumberError
        return token.text

    def accept(self, text: str) -> bool:
        if self.peek() != text:
            return False
        self.position += 1
        return True

    def rest(self) -> str:
        return "".join(token.text for token in self.tokens[self.position :])
