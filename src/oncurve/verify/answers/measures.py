"""What stands behind a number: units and their powers, currencies, counted things, the half of the day."""

from fractions import Fraction

from oncurve.verify.answers.cursor import NotFormulaError
from oncurve.verify.answers.expressions import Expressions
from oncurve.verify.answers.nodes import Node, number, symbols
from oncurve.verify.answers.units import (
    POWERS_IN_WORDS,
    Dimensions,
    currency_of,
    look_up,
    multiplier_of,
    multiply,
    noun,
)
from oncurve.verify.answers.vocabulary import NO_UNIT

_MERIDIEM = {"am": "am", "a.m": "am", "a.m.": "am", "pm": "pm", "p.m": "pm", "p.m.": "pm"}


class Measures(Expressions):
    """Reads quantities: a value, and what it is a number of."""

    def with_unit(self, node: Node) -> Node:
        """Take what follows a value: am or pm, a multiplier, a unit, another quantity (2 hours 30 minutes)."""
        if node[0] == "rel":
            return (*node[:-1], self.with_unit(node[-1]))
        if node[0] in ("ratio", "num") and (clock := self.clock(node)) is not None:
            return clock
        quantity = self.quantity(node)
        parts = [quantity]
        while quantity[0] == "unit" and self.kind() == "number":
            parts.append(self.quantity(self.sum()))
            if parts[-1][0] != "unit":
                raise NotFormulaError
        return ("mixed-unit", *parts) if len(parts) > 1 else quantity

    def clock(self, node: Node) -> Node | None:
        spelled, position = "", self.position
        while len(spelled) < 5 and (token := self.token()) is not None and (token.text.isalpha() or token.text == "."):
            spelled += token.text.lower()
            self.position += 1
        meridiem = _MERIDIEM.get(spelled)
        parts = [node] if node[0] == "num" else list(node[1:])
        if meridiem is None or any(p[0] != "num" or p[2] != 1 for p in parts) or len(parts) > 3:
            self.position = position
            return None
        hours, minutes, seconds = ([p[1] for p in parts] + [0, 0])[:3]
        if not (1 <= hours <= 12 and 0 <= minutes < 60 and 0 <= seconds < 60):
            raise NotFormulaError
        return ("clock", (hours % 12) * 60 + minutes, seconds, meridiem)

    def quantity(self, node: Node) -> Node:
        if (multiplier := multiplier_of(self.peek())) and self.kind() in ("word", "text"):
            self.position += 1
            value = ("mul", node[1] if node[0] == "unit" else node, number(multiplier))
            node = ("unit", value, *node[2:]) if node[0] == "unit" else value
        if self.is_at_end() or self.peek() in ("and", "or", "to", ",", ";"):
            return node
        start = self.position
        found = self.unit()
        if found is None:
            self.position = start
            found = self.noun(node)
        if found is None:
            self.position = start
            return node
        factor, dimensions = found
        encoded = ",".join(f"{base}:{power}" for base, power in dimensions)
        if node[0] == "unit":  # $40 USD
            if node[4] != encoded:
                raise NotFormulaError
            return node
        return ("unit", node, factor.numerator, factor.denominator, encoded)

    def unit(self) -> tuple[Fraction, Dimensions] | None:
        """Known units: ``m/s``, ``meters per second``, ``square cm``, ``cm^2``."""
        total: tuple[Fraction, Dimensions] | None = None
        sign = 1
        while (one := self.unit_power()) is not None:
            factor, dimensions = one
            before = total or (Fraction(1), ())
            total = before[0] * factor**sign, multiply(before[1], dimensions, sign)
            if self.accept("/", "per"):
                sign = -1
            elif not (self.accept("*") or (sign == 1 and self.kind() in ("word", "text"))):
                return total
        return None if sign == -1 else total

    def unit_power(self) -> tuple[Fraction, Dimensions] | None:
        token = self.token()
        if token is None:
            return None
        if base := currency_of(token.text):
            self.position += 1
            return Fraction(1), ((base, 1),)
        power = POWERS_IN_WORDS.get(token.text.lower(), 1)
        if power > 1:
            self.position += 1
            self.accept(".")
        if self.kind() not in ("word", "text") or self.peek() in NO_UNIT:
            return None
        found = look_up(self.take().text)
        if found is None:
            return None
        if self.accept("."):
            pass
        if self.peek() == "^" and self.kind(1) in ("number", "symbol"):
            self.position += 1
            exponent = self.exponent()
            if exponent[0] != "num" or exponent[2] != 1 or not 1 <= abs(exponent[1]) <= 6:
                raise NotFormulaError
            power = exponent[1]
        power = {"squared": 2, "cubed": 3}.get(self.accept("squared", "cubed"), power)
        return found[0] ** power, multiply((), found[1], power)

    def noun(self, node: Node) -> tuple[Fraction, Dimensions] | None:
        """A counted thing: up to six words, none of which hedges, denies or compares. Only behind a number."""
        words: list[str] = []
        while self.kind() in ("word", "text") and self.peek() not in ("and", "or") and len(words) < 6:
            words.append(self.take().text)
        if not words or symbols(node) or any(word.lower() in NO_UNIT for word in words):
            return None
        if any(len(word) == 1 and word.isupper() for word in words):
            return None
        return Fraction(1), noun(words)
