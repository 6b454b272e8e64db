"""The grammar of answers: lists, relations, sets, tuples, intervals, matrices, ratios, quantities.

    answer    := item (separator item)*                 separator: ``,`` ``;`` and or
    item      := (region (relation region)* | relation region) unit?
    region    := ratio ((\\cup | \\cap | \\setminus) ratio)*
    ratio     := sum (``:`` sum)*  |  sum ``to`` sum
    bracketed := ( items ) | [ items ] | ( items ] | [ items ) | \\{ items \\} | \\{ x \\mid items \\} | { items }

What the grammar does not read is kept as text. Length, number of tokens and depth are bounded before anything is read.
"""

import math
import re
from dataclasses import dataclass

from oncurve.verify.answers.cursor import MAX_CHARS, NotFormulaError
from oncurve.verify.answers.measures import Measures
from oncurve.verify.answers.nodes import Node, number
from oncurve.verify.answers.tokens import Token, canonical, tokenize
from oncurve.verify.answers.typography import make_plain
from oncurve.verify.answers.vocabulary import BASES, RELATIONS
from oncurve.verify.answers.wording import date_of, number_of_words

_CLOSINGS = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "\\langle": "\\rangle"}
_SET_OPERATORS = {"\\cup": "union", "\\cap": "inter", "\\setminus": "minus", "U": "union"}
_REGIONS = frozenset(("tuple", "interval", "union", "inter", "minus", "set", "space", "bracket"))
_BASED = re.compile(r"\(?([0-9A-Fa-f]+)\)?_\{?\(?([0-9]{1,2}|[a-z]{2,7})\)?\}?")
_MATRICES = frozenset(("matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array"))
_SYSTEMS = frozenset(("cases", "aligned", "gathered", "align", "align*", "split"))


MAX_REGIONS = 40
"""Sets in one union."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was read."""

    source: str
    """As it stands in the completion."""
    text: str
    """In one canonical spelling."""
    node: Node
    """What it says; ``("text", …)`` when no formula was recognised."""


def parse(source: str, *, exotic_digits: bool = True) -> Answer | None:
    """Read an answer.

    Args:
        source: the text of the answer place.
        exotic_digits: read the decimal digits of every script.

    Returns:
        The answer; None when nothing visible is there.
    """
    if (simple := _read_simple(source)) is not None:
        return simple
    if len(source) > MAX_CHARS:
        text = " ".join(source.split())
        return Answer(source, text, ("text", text)) if text else None
    plain = make_plain(source, exotic_digits=exotic_digits)
    if plain != source and (simple := _read_simple(plain)) is not None:
        return simple
    tokens = tokenize(plain.replace("{:}", ":"))
    text = canonical(tokens)
    if not text:
        return None
    return Answer(source, text, read_tokens(tokens, text))


_SIMPLE = re.compile(
    r"(-?[0-9]{1,18})(?:\.([0-9]{1,18}))?|(-?[0-9]{1,18})/([0-9]{1,18})|\\[dt]?frac\{(-?[0-9]{1,18})\}\{([0-9]{1,18})\}"
)


def _read_simple(source: str) -> Answer | None:
    """The common cases, without tokens: an integer, a decimal, a fraction."""
    found = _SIMPLE.fullmatch(source)
    if found is None:
        return None
    whole, decimals, top, bottom, frac_top, frac_bottom = found.groups()
    if decimals:
        return Answer(source, source, _decimal(int(whole + decimals), len(decimals)))
    if whole:
        return Answer(source, source, ("num", int(whole), 1, 0))
    if top:
        return Answer(source, source, _fraction(top, bottom))
    return Answer(source, f"\\frac{{{frac_top}}}{{{frac_bottom}}}", _fraction(frac_top, frac_bottom))


def _fraction(top: str, bottom: str) -> Node:
    return ("div", ("num", int(top), 1, 0), ("num", int(bottom), 1, 0))


def _decimal(top: int, places: int) -> Node:
    bottom = 10**places
    common = math.gcd(top, bottom)
    return ("num", top // common, bottom // common, places)


def read_tokens(tokens: list[Token], text: str) -> Node:
    """The node of an answer, or its text."""
    if (date := date_of(text)) is not None:
        return ("date", *date)
    based = _BASED.fullmatch(text)
    if based is not None and (base := _base(based[2])) and all(int(c, 36) < base for c in based[1]):
        return ("based", based[1].upper(), base)
    if text.endswith(("st", "nd", "rd", "th")) and (ordinal := number_of_words(text)) is not None:
        return number(ordinal)
    try:
        return Grammar(tokens).answer()
    except (NotFormulaError, RecursionError):
        words = number_of_words(text)
        return ("text", text) if words is None else number(words)


def _base(name: str) -> int:
    base = int(name) if name.isdigit() else BASES.get(name, 0)
    return base if 2 <= base <= 36 else 0


class Grammar(Measures):
    """Reads whole answers."""

    def answer(self) -> Node:
        node = self.items()
        if not self.is_at_end():
            raise NotFormulaError
        return node

    # --- lists ---

    def items(self) -> Node:
        groups: list[list[Node]] = [[self.item()]]
        has_or = has_comma = False
        while separator := self.separator():
            if separator == ";":
                groups.append([self.item()])
                continue
            has_or, has_comma = has_or or separator == "or", has_comma or separator != "or"
            groups[-1].append(self.item())
        if len(groups) > 1:
            return ("list", *(_joined("list", group) for group in groups))
        return _joined("any" if has_or and not has_comma else "list", groups[0])

    def separator(self) -> str:
        found = ""
        while text := self.accept(",", ";", "\\\\", "and", "or", "\\wedge", "\\vee", "和", "或"):
            word = {"\\vee": "or", "或": "or", "\\wedge": "and", "和": "and"}.get(text, text)
            found = word if word in (";", "or") or not found else found
        return found

    def item(self) -> Node:
        return self.with_unit(self.relation())

    # --- relations and regions ---

    def relation(self) -> Node:
        operators: list[str] = []
        sides: list[Node] = []
        if self.peek() in RELATIONS:
            if self.accept("=", "\\approx"):
                return self.region()
            sides = [("sym", "?")]
        else:
            sides = [self.region()]
        while self.peek() in RELATIONS:
            operators.append(self.take().text)
            sides.append(self.region())
        return ("rel", " ".join(operators), *sides) if operators else sides[0]

    def region(self) -> Node:
        left = self.modulo(self.ratio())
        for _ in range(MAX_REGIONS):
            if (text := self.peek()) not in _SET_OPERATORS or (text == "U" and left[0] not in _REGIONS):
                return left
            self.position += 1
            left = (_SET_OPERATORS[text], left, self.ratio())
        raise NotFormulaError

    def modulo(self, value: Node) -> Node:
        """``3 \\pmod 7``, ``3 (mod 7)``."""
        if self.accept("\\pmod", "\\bmod", "\\mod", "mod"):
            return ("mod", value, self.argument() if self.peek() == "{" else self.power())
        if self.peek() == "(" and self.peek(1) == "mod":
            self.position += 2
            modulus = self.sum()
            self.expect(")")
            return ("mod", value, modulus)
        return value

    def ratio(self) -> Node:
        parts = [self.sum()]
        while self.accept(":"):
            parts.append(self.sum())
        if len(parts) == 1 and parts[0][0] == "num" and self.peek() == "to" and self.kind(1) == "number":
            self.position += 1
            parts.append(self.sum())
        return parts[0] if len(parts) == 1 else ("ratio", *parts)

    # --- brackets ---

    def bracketed(self, opening: str) -> Node:
        outer, self.in_bars = self.in_bars, False
        if opening == "\\{":
            value = self.braces()
        elif opening == "{":
            value = ("set",) if self.peek() == "}" else self.items()
            if operator := self.accept("\\over", "\\choose"):
                value = ("div" if operator == "\\over" else "binom", value, self.items())
            self.expect("}")
        else:
            value = self.parenthesis(opening)
        self.in_bars = outer
        return value

    def braces(self) -> Node:
        if self.accept("\\}"):
            return ("set",)
        start = self.position
        first = self.relation_head()
        if first is not None and self.accept(":", "|"):
            condition = self.items()
            self.expect("\\}")
            return ("builder", first, condition)
        self.position = start
        value = self.members()
        self.expect("\\}")
        return ("set", *value)

    def relation_head(self) -> Node | None:
        """``x`` or ``x \\in \\mathbb{R}`` in front of the bar of a set builder."""
        if self.kind() not in ("word", "text") or len(self.peek()) != 1:
            return None
        variable = self.letter()
        if self.accept("\\in"):
            self.power()
        return variable

    def members(self) -> list[Node]:
        """What stands between brackets."""
        value = self.items()
        return list(value[1:]) if value[0] == "list" else [value]

    def parenthesis(self, opening: str) -> Node:
        members = self.members()
        closing = self.accept(")", "]", "\\rangle", "[")
        if not closing:
            raise NotFormulaError
        if closing == "[" or opening == "]":
            return _outward(members, opening, closing)
        if (opening == "\\langle") != (closing == "\\rangle"):
            raise NotFormulaError
        is_mixed = _CLOSINGS[opening] != closing
        if len(members) == 1 and not is_mixed:
            if opening == "(" or (opening == "[" and members[0][0] == "matrix"):
                return members[0]
            return ("bracket" if opening == "[" else "tuple", members[0])
        if is_mixed:
            if len(members) != 2:
                raise NotFormulaError
            return ("interval", *members, opening == "[", closing == "]")
        return ("bracket" if opening == "[" else "tuple", *members)

    # --- matrices ---

    def matrix(self) -> Node:
        name = self.environment()
        if name in _SYSTEMS:
            return self.system(name)
        if name not in _MATRICES:
            raise NotFormulaError
        if name == "array" and self.accept("{"):
            self.balanced("{", "}")
        rows: list[list[Node]] = [[]]
        while not self.accept("\\end"):
            if self.accept("\\\\"):
                rows.append([])
            elif self.accept("\\hline"):
                continue
            else:
                rows[-1].append(self.sum())
                self.accept("&")
        if self.environment() != name:
            raise NotFormulaError
        rows = [row for row in rows if row]
        if not rows or any(len(row) != len(rows[0]) for row in rows):
            raise NotFormulaError
        return ("matrix", *(("row", *row) for row in rows))

    def system(self, name: str) -> Node:
        """Equations below each other are a list."""
        value = self.items()
        self.expect("\\end")
        if self.environment() != name:
            raise NotFormulaError
        return value

    def environment(self) -> str:
        self.expect("{")
        return "".join(token.text for token in self.balanced("{", "}"))


def _outward(members: list[Node], opening: str, closing: str) -> Node:
    """``]a,b[`` without its ends, ``[a,b[`` and ``]a,b]`` with one of them."""
    if len(members) != 2 or opening not in ("[", "]") or closing not in ("[", "]"):
        raise NotFormulaError
    return ("interval", *members, opening == "[", closing == "]")


def _joined(kind: str, members: list[Node]) -> Node:
    return members[0] if len(members) == 1 else (kind, *members)
