"""The scalar half of the grammar: sums, products, powers, fractions, roots, functions, sums over an index.

    sum      := sign? product ((``+`` | ``-`` | \\pm) product)*
    product  := power ((``*`` | ``/``)? power)*                     juxtaposition multiplies
    power    := atom (``^`` argument | ``!`` | ``%`` | degree)*
    atom     := number | mixed | symbol | constant | function | \\frac | \\sqrt | \\binom | |sum| | group | \\sum …
    mixed    := integer \\frac{a}{b}  |  integer blank a/b           with 0 < a < b

Nothing is computed here; ``exact`` does that, within bounds.
"""

import re
from abc import abstractmethod

from oncurve.verify.answers.cursor import NotFormulaError, read_literal
from oncurve.verify.answers.nodes import INFINITY, Node, number
from oncurve.verify.answers.numerals import Numerals
from oncurve.verify.answers.tokens import canonical
from oncurve.verify.answers.units import AMBIGUOUS, POWERS_IN_WORDS, currency_of, currency_of_code, look_up
from oncurve.verify.answers.vocabulary import (
    ACCENTS,
    CALLS,
    CONSTANTS,
    FUNCTIONS,
    GREEK,
    INVERSES,
    PERCENT,
    SHORT_WORDS,
    SPACES,
    SURE_CALLS,
)

_KEYWORDS = frozenset(["or", "and", "to", "U", "mod", "if", "for", "where"])
_PLAIN_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_OPENERS = frozenset(["(", "{", "\\{", "\\frac", "\\sqrt", "\\binom", "\\begin", "\\sum", "\\prod", "\\int", "\\lim"])
_OPENERS_AND_FLOORS = _OPENERS | {"\\lfloor", "\\lceil", "\\infty", "\\mathbb", "\\langle"}


MAX_POSTFIXES = 6
"""Powers, factorials, percent signs behind one atom."""


class Expressions(Numerals):
    """Reads scalars. ``items`` (what stands between brackets) comes from the grammar of collections."""

    in_bars = False

    @abstractmethod
    def items(self) -> Node:
        """What stands between brackets: one value, or several with commas."""

    @abstractmethod
    def bracketed(self, opening: str) -> Node:
        """From behind an opening bracket to its closing one."""

    @abstractmethod
    def matrix(self) -> Node:
        """The rows of a matrix environment."""

    # --- sums and products ---

    def sum(self) -> Node:
        terms = [self.signed()]
        while operator := self.accept("+", "-", "\\pm", "\\mp"):
            term = self.signed()
            if operator in ("\\pm", "\\mp"):
                if terms[0][0] == "pm":
                    raise NotFormulaError
                so_far = terms[0] if len(terms) == 1 else ("add", *terms)
                terms = [("pm", 1 if operator == "\\pm" else -1, so_far, term)]
            else:
                terms.append(_negative(term) if operator == "-" else term)
        return terms[0] if len(terms) == 1 else ("add", *terms)

    def signed(self) -> Node:
        sign = self.accept("+", "-", "\\pm", "\\mp")
        term = self.product()
        if sign in ("\\pm", "\\mp"):
            return ("pm", 1 if sign == "\\pm" else -1, number(0), term)
        return _negative(term) if sign == "-" else term

    def product(self) -> Node:
        factors, divisors = [self.power()], []
        while True:
            if self.accept("*"):
                factors.append(self.signed_power())
            elif self.accept("/"):
                divisors.append(self.signed_power())
            elif self.is_at_factor():
                factors.append(self.power())
            else:
                top = _times(factors)
                return ("div", top, _times(divisors)) if divisors else top

    def signed_power(self) -> Node:
        return _negative(self.power()) if self.accept("-") else self.power()

    def is_at_factor(self) -> bool:
        """True when what follows multiplies without a sign."""
        kind, text = self.kind(), self.peek()
        if not text or kind == "number":
            return bool(text) and self.position > 0 and self.tokens[self.position - 1].text == "!"  # 3!4!
        if kind == "symbol":
            return (text == "(" and self.peek(1) != "mod") or text == "{" or (text == "|" and not self.in_bars)
        if kind == "command":
            return text in _OPENERS_AND_FLOORS or text[1:] in FUNCTIONS or text[1:] in GREEK or text == "\\pi"
        return text not in _KEYWORDS and text not in PERCENT and not self.is_at_unit() and self.is_readable_word()

    def is_readable_word(self) -> bool:
        """True when a run of letters is a function, a constant or a product of variables, not a word."""
        text = self.peek()
        if text in FUNCTIONS or text in CONSTANTS:
            return True
        if self.kind() == "text":
            return len(text) == 1 and text.isascii()
        return text.isascii() and text not in SHORT_WORDS and (len(text) <= 3 or (text.isupper() and len(text) <= 6))

    def is_at_unit(self) -> bool:
        """True when a word is a unit rather than a product of variables."""
        text = self.peek()
        if text == "min" and self.peek(1) != "(" and self.follows_number():
            return True
        if self.kind() not in ("word", "text") or text in FUNCTIONS or text in CONSTANTS:
            return False
        if text in POWERS_IN_WORDS and look_up(self.peek(2) if self.peek(1) == "." else self.peek(1)) is not None:
            return True
        if text.upper() in ("AM", "PM") and self.follows_number():
            return True
        if len(text) == 1 and text.isascii():
            if text.lower() in "ap" and self.peek(1) == "." and self.peek(2).lower() == "m":
                return True
            before = self.tokens[self.position - 1] if self.position else None
            is_set_apart = self.is_after_space() and before is not None and before.kind == "number"
            follows = self.peek(1)
            is_closed = follows in ("", "/", "^", ",", ")") or self.kind(1) == "number"  # 2 h 30 min
            return text in AMBIGUOUS and is_set_apart and (self.kind() == "text" or is_closed)
        return look_up(text) is not None and (self.kind() == "text" or len(text) > 2 or self.follows_number())

    def follows_number(self) -> bool:
        before = self.tokens[self.position - 1] if self.position else None
        return before is not None and (before.kind == "number" or before.text in ("}", "\\pi", ")"))

    # --- powers ---

    def power(self) -> Node:
        base = self.atom()
        is_raised = False
        for _ in range(MAX_POSTFIXES):
            if self.peek() == "^" and self.is_degree():
                base = ("deg", base)
            elif self.peek() == "^" and not is_raised:
                self.position += 1
                base, is_raised = ("pow", base, self.exponent()), True
            elif self.accept("!"):
                base = ("fact", base)
            elif self.peek() in PERCENT:
                self.position += 1
                base = ("pct", base)
            elif self.accept("\\circ"):
                base = ("deg", base)
            else:
                return base
        raise NotFormulaError

    def is_degree(self) -> bool:
        """Take ``^\\circ`` or ``^{\\circ}`` when it stands here."""
        length = 2 if self.peek(1) == "\\circ" else 4 if self.peek(1) == "{" and self.peek(2) == "\\circ" else 0
        if length == 4 and self.peek(3) != "}":
            return False
        self.position += length
        return length > 0

    def exponent(self) -> Node:
        sign = self.accept("+", "-")
        value = read_literal(self.take().text) if self.kind() == "number" else self.argument()
        return _negative(value) if sign == "-" else value

    def argument(self) -> Node:
        """``{…}``, or without braces one digit, one letter or one command."""
        if self.accept("{"):
            return self.bracketed("{")
        if self.kind() == "number":
            if not self.peek().isdigit():
                raise NotFormulaError
            return number(int(self.split_first().text))
        if self.kind() in ("word", "text"):
            return self.letter() if self.peek() not in CONSTANTS else self.atom()
        return self.atom()

    # --- atoms ---

    def atom(self) -> Node:
        self.enter()
        value = self.bare_atom()
        self.leave()
        return value

    def bare_atom(self) -> Node:
        kind, text = self.kind(), self.peek()
        if kind == "number":
            return self.mixed()
        if text in ("(", "[", "{", "\\{", "\\langle", "]"):
            self.position += 1
            return self.bracketed(text)
        if text in ("|", "\\|"):
            return self.absolute()
        if kind in ("word", "text"):
            return self.money() if currency_of_code(text) and self.kind(1) == "number" else self.name()
        if kind == "command":
            return self.command()
        if currency_of(text):
            return self.money()
        raise NotFormulaError

    def money(self) -> Node:
        sign_or_code = self.take().text
        base = currency_of(sign_or_code) or currency_of_code(sign_or_code)
        sign = self.accept("-")
        if self.kind() != "number":
            raise NotFormulaError
        value = self.mixed()
        return ("unit", _negative(value) if sign else value, 1, 1, f"{base}:1")

    def absolute(self) -> Node:
        closing = self.take().text
        outer, self.in_bars = self.in_bars, True
        value = self.sum()
        self.in_bars = outer
        self.expect(closing)
        return ("fn", "abs", value)

    def name(self) -> Node:
        """A run of letters: function, constant, or variables that multiply."""
        text = self.peek()
        if text in _KEYWORDS or not self.is_readable_word():
            raise NotFormulaError
        if text in FUNCTIONS:
            self.position += 1
            return self.function(FUNCTIONS[text])
        if text in CONSTANTS:
            self.position += 1
            return CONSTANTS[text]
        return self.letter()

    def letter(self) -> Node:
        """One variable with its subscript and primes, or an unknown function of it."""
        text = self.split_first().text
        if not text.isascii():
            raise NotFormulaError
        return self.named(text)

    def named(self, text: str) -> Node:
        name = text + self.subscript()
        while self.accept("'"):
            name += "'"
        if self.peek() == "^" and self.peek(1) == "'":
            self.position += 2
            name += "'"
        if name in ("e", "i"):
            return ("const", name)
        if self.peek() == "(" and self.is_call(text):
            self.position += 1
            arguments = self.bracketed("(")
            return ("call", name, *(arguments[1:] if arguments[0] == "tuple" else (arguments,)))
        return ("sym", name)

    def is_call(self, letter: str) -> bool:
        short = self.peek(2) == ")" or (self.peek(1) == "-" and self.peek(3) == ")")
        return letter in SURE_CALLS or (letter in CALLS and short)

    def subscript(self) -> str:
        """``_1`` or ``_{n-1}`` in one spelling."""
        if not self.accept("_"):
            return ""
        if self.accept("{"):
            return "_" + canonical(self.balanced("{", "}"))
        return "_" + (self.split_first().text if self.kind() in ("number", "word", "text") else self.take().text)

    # --- commands ---

    def command(self) -> Node:
        text = self.take().text
        if text == "\\frac":
            return ("div", self.argument(), self.argument())
        if text == "\\sqrt":
            return self.root()
        if text == "\\binom":
            return ("binom", self.argument(), self.argument())
        if text == "\\pi":
            return ("const", "pi")
        if text == "\\infty":
            return INFINITY
        if text == "\\emptyset":
            return ("set",)
        if text == "\\mathbb":
            return self.space()
        if text == "\\begin":
            return self.matrix()
        if text in ("\\sum", "\\prod"):
            return self.series(text[1:])
        if text == "\\int":
            return self.integral()
        if text == "\\lim":
            return self.limit()
        if text in ("\\lfloor", "\\lceil"):
            value = self.sum()
            self.expect("\\rfloor" if text == "\\lfloor" else "\\rceil")
            return ("fn", "floor" if text == "\\lfloor" else "ceil", value)
        if text in ACCENTS:
            return self.accented(text)
        if text == "\\ldots":
            return ("dots",)
        if text[1:] in FUNCTIONS:
            return self.function(FUNCTIONS[text[1:]])
        if text[1:] in GREEK:
            return self.named(text)
        if text in ("\\$", "\\pounds", "\\euro"):
            self.position -= 1
            return self.money()
        raise NotFormulaError

    def root(self) -> Node:
        index: Node = number(2)
        if self.accept("["):
            index = self.sum()
            self.expect("]")
        if self.kind() == "number" and _PLAIN_NUMBER.fullmatch(self.peek()):
            return ("root", read_literal(self.take().text), index)
        return ("root", self.argument(), index)

    def space(self) -> Node:
        self.accept("{")
        name = SPACES.get(self.take().text)
        self.accept("}")
        if name is None or self.peek() in ("^", "_"):
            raise NotFormulaError
        return ("space", name)

    def accented(self, command: str) -> Node:
        if self.accept("{"):
            return ("sym", f"{command}{{{canonical(self.balanced('{', '}'))}}}")
        return ("sym", f"{command}{{{self.split_first().text}}}")

    # --- functions ---

    def function(self, name: str) -> Node:
        base: Node | None = None
        exponent: Node | None = None
        for _ in range(2):
            if self.peek() == "_" and base is None:
                self.position += 1
                base = self.argument()
            elif self.peek() == "^" and exponent is None and not self.is_degree():
                self.position += 1
                exponent = self.exponent()
        if exponent == number(-1) and name in INVERSES:
            name, exponent = INVERSES[name], None
        arguments = self.function_arguments()
        if name == "sqrt":
            value: Node = ("root", arguments[0], number(2))
        elif name == "cbrt":
            value = ("root", arguments[0], number(3))
        elif name == "exp":
            value = ("pow", ("const", "e"), arguments[0])
        elif base is not None and name != "log":
            raise NotFormulaError
        else:
            value = ("fn", name, *arguments) if base is None else ("fn", name, *arguments, base)
        return value if exponent is None else ("pow", value, exponent)

    def function_arguments(self) -> tuple[Node, ...]:
        """``(x)`` alone, or the factors that follow up to the next function or sign."""
        if self.accept("("):
            value = self.bracketed("(")
            return tuple(value[1:]) if value[0] == "tuple" else (value,)
        factors = [self.power()]
        while self.is_at_factor() and self.peek().lstrip("\\") not in FUNCTIONS and self.peek() not in ("(", "|"):
            factors.append(self.power())
        return (factors[0] if len(factors) == 1 else ("mul", *factors),)


def _times(factors: list[Node]) -> Node:
    return factors[0] if len(factors) == 1 else ("mul", *factors)


def _negative(node: Node) -> Node:
    """A sign covers a quantity with its unit."""
    if node[0] == "unit":
        return ("unit", _negative(node[1]), *node[2:])
    return ("num", -node[1], *node[2:]) if node[0] == "num" else ("neg", node)
