"""A cursor over tokens with bounds, and the exact reading of number literals."""

from fractions import Fraction

from oncurve.verify.answers.nodes import Node, number
from oncurve.verify.answers.tokens import Token

MAX_CHARS = 4096
"""Longer answers are compared as text. Below Python's limit of 4,300 digits for reading an integer."""
MAX_DEPTH = 40
MAX_TOKENS = 3000


class NotFormulaError(Exception):
    """The tokens are not of the grammar, or exceed a bound."""


class Cursor:
    """Walks over tokens."""

    def __init__(self, tokens: list[Token]) -> None:
        if len(tokens) > MAX_TOKENS:
            raise NotFormulaError
        self.tokens = list(tokens)
        self.position = 0
        self.depth = 0

    def peek(self, ahead: int = 0) -> str:
        position = self.position + ahead
        return self.tokens[position].text if position < len(self.tokens) else ""

    def token(self, ahead: int = 0) -> Token | None:
        position = self.position + ahead
        return self.tokens[position] if position < len(self.tokens) else None

    def kind(self, ahead: int = 0) -> str:
        position = self.position + ahead
        return self.tokens[position].kind if position < len(self.tokens) else ""

    def is_after_space(self, ahead: int = 0) -> bool:
        position = self.position + ahead
        return position < len(self.tokens) and self.tokens[position].is_after_space

    def take(self) -> Token:
        if self.position >= len(self.tokens):
            raise NotFormulaError
        self.position += 1
        return self.tokens[self.position - 1]

    def accept(self, *texts: str) -> str:
        """Take the next token when it is one of these; otherwise return an empty string."""
        text = self.peek()
        if text and text in texts:
            self.position += 1
            return text
        return ""

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise NotFormulaError

    def is_at_end(self) -> bool:
        return self.position >= len(self.tokens)

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotFormulaError

    def leave(self) -> None:
        self.depth -= 1

    def split_first(self, length: int = 1) -> Token:
        """Take the first characters of the next token and leave the rest."""
        token = self.take()
        if len(token.text) > length:
            self.position -= 1
            self.tokens[self.position] = Token(token.kind, token.text[length:], False)
            return Token(token.kind, token.text[:length], token.is_after_space)
        return token

    def balanced(self, opening: str, closing: str) -> list[Token]:
        """The tokens up to the closing one that matches; the cursor stands behind it."""
        start, depth = self.position, 1
        while depth:
            text = self.take().text
            depth += (text == opening) - (text == closing)
        return self.tokens[start : self.position - 1]


def read_literal(text: str) -> Node:
    """An integer or decimal, with thousands separators and a power of ten as in ``1,234.5e-3``."""
    digits = text
    for separator in ("{", "}", "\\,", "\\!", "\\ ", ",", " "):
        digits = digits.replace(separator, "")
    mantissa, _, exponent = digits.lower().partition("e")
    whole, _, decimals = mantissa.partition(".")
    power = int(exponent or 0) - len(decimals)
    if abs(power) > MAX_CHARS or not (whole + decimals).isdigit():
        raise NotFormulaError
    value = int(whole + decimals)
    fraction = Fraction(value * 10**power) if power >= 0 else Fraction(value, 10**-power)
    return number(fraction, max(0, -power))
