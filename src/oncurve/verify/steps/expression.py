"""One side of an equality: tokens in, a tree of exact arithmetic out. Nothing is ever evaluated as code."""

from fractions import Fraction
from typing import NamedTuple

from oncurve.verify.answers.nodes import Node, number

MAX_TOKENS = 200
MAX_DEPTH = 40
MAX_DIGITS = 200


class Token(NamedTuple):
    """A piece of text. ``kind``: num, op, rel, unit, word, clean (a border), bind (makes its neighbour unreadable)."""

    kind: str
    text: str
    is_glued: bool
    """No blank stands before it."""


class UnreadableError(Exception):
    """The tokens are no arithmetic that can be decided; the message says why."""


class Side(NamedTuple):
    """One side of a relation."""

    node: Node
    has_operation: bool
    """It calculates: more than a number, its sign, or brackets around it."""
    places: int | None
    """Digits after the point, when the side is one number as written; else None."""
    trailing_zeros: int
    """Zeros at the end of a whole number as written: 1200 has 2."""


def read_side(tokens: list[Token]) -> Side:
    """Read one side.

    Raises:
        UnreadableError: it is empty, too long or too deep, or no arithmetic.
    """
    tokens = [token for token in tokens if token.kind != "unit"]
    if not tokens:
        raise UnreadableError("one side is no number")
    if len(tokens) > MAX_TOKENS:
        raise UnreadableError(f"more than {MAX_TOKENS} tokens")
    reader = _Reader(tokens)
    node = reader.sum(0)
    if reader.position < len(tokens):
        raise UnreadableError(f"{tokens[reader.position].text!r} is not expected there")
    numbers = [token.text for token in tokens if token.kind == "num"]
    signs = [token.text for token in tokens if token.kind == "op"]
    has_operation = len(numbers) > 1 or any(sign not in "-+()" for sign in signs)
    if has_operation:
        return Side(node, True, None, 0)
    digits, _, decimals = numbers[0].replace(",", "").partition(".")
    zeros = 0 if decimals or not digits.strip("0") else len(digits) - len(digits.rstrip("0"))
    return Side(node, False, len(decimals), zeros)


class _Reader:
    """Recursive descent; every method reads one rule of the grammar from ``position`` on."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0

    def sum(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise UnreadableError(f"more than {MAX_DEPTH} brackets inside each other")
        terms = [self.product(depth)]
        while self.next_is("+", "-"):
            sign = self.take()
            term = self.product(depth)
            terms.append(("neg", term) if sign == "-" else term)
        is_percent = ["pct" in (term[0], term[1][0] if term[0] == "neg" else "") for term in terms]
        if len(terms) > 1 and any(is_percent) and not all(is_percent):
            raise UnreadableError("a percentage added to a number has two readings")
        return terms[0] if len(terms) == 1 else ("add", *terms)

    def product(self, depth: int) -> Node:
        value = self.signed(depth)
        operator = ""
        while True:
            if self.next_is("*", "/"):
                operator = self.take()
                factor = self.signed(depth)
                value = ("mul", value, factor) if operator == "*" else ("div", value, factor)
            elif self.next_is("(") and self.tokens[self.position].is_glued:
                if operator == "/":
                    raise UnreadableError("8/2(2+2) has two readings")
                value = ("mul", value, self.power(depth))
            else:
                return value

    def signed(self, depth: int) -> Node:
        sign = self.take() if self.next_is("-", "+") else ""
        value = self.power(depth)
        return ("neg", value) if sign == "-" else value

    def power(self, depth: int) -> Node:
        value = self.atom(depth)
        if self.next_is("%"):
            self.take()
            return ("pct", value)
        if not self.next_is("^"):
            return value
        self.take()
        if depth >= MAX_DEPTH:
            raise UnreadableError(f"more than {MAX_DEPTH} powers above each other")
        is_negative = self.next_is("-") and self.take() == "-"
        exponent = self.power(depth + 1)
        return ("pow", value, ("neg", exponent) if is_negative else exponent)

    def atom(self, depth: int) -> Node:
        if self.next_is("("):
            self.take()
            value = self.sum(depth + 1)
            if not self.next_is(")"):
                raise UnreadableError("a bracket is not closed")
            self.take()
            return value
        if self.position < len(self.tokens) and self.tokens[self.position].kind == "num":
            return self.mixed()
        raise UnreadableError("an operand is missing")

    def mixed(self) -> Node:
        """A number, or a mixed one: ``1 1/2``."""
        whole = self.take()
        following = self.tokens[self.position : self.position + 3]
        if [token.kind for token in following] == ["num", "op", "num"] and following[1].text == "/":
            top, bottom = following[0].text, following[2].text
            if whole.isdecimal() and top.isdecimal() and bottom.isdecimal() and _value(top) < _value(bottom):
                self.position += 3
                return number(_value(whole) + _value(top) / _value(bottom))
        return number(_value(whole))

    def next_is(self, *texts: str) -> bool:
        token = self.tokens[self.position] if self.position < len(self.tokens) else None
        return token is not None and token.kind == "op" and token.text in texts

    def take(self) -> str:
        self.position += 1
        return self.tokens[self.position - 1].text


def _value(text: str) -> Fraction:
    if len(text) > MAX_DIGITS:
        raise UnreadableError(f"a number of more than {MAX_DIGITS} digits")
    return Fraction(text.replace(",", ""))
