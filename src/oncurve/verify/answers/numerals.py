"""Numbers as they are written: mixed fractions, and decimals whose digits repeat."""

from abc import abstractmethod

from oncurve.verify.answers.cursor import NotFormulaError, read_literal
from oncurve.verify.answers.nodes import Node, number
from oncurve.verify.answers.series import Series


class Numerals(Series):
    """Reads a number from its first digit on; what stands in its fraction comes from ``Expressions``."""

    @abstractmethod
    def argument(self) -> Node:
        """What a command takes: a braced expression, or one token."""

    def mixed(self) -> Node:
        """A number, with a proper fraction behind it when there is one."""
        token = self.take()
        value = read_literal(token.text)
        if "." in token.text and self.peek() in ("\\overline", "\\dot", "\\bar"):
            return self.repeating(token.text)
        if token.text.endswith(".") and self.peek() == "(" and self.kind(1) == "number" and self.peek(2) == ")":
            return self.repeating(token.text)  # 0.(3); 0.5(3) may be a product
        is_integer = value[2] == 1 and "." not in token.text and "e" not in token.text.lower()
        if self.kind() == "number" and self.is_after_space():
            if not (is_integer and self.peek().isdigit() and self.peek(1) == "/" and self.peek(2).isdigit()):
                raise NotFormulaError
            top, _, bottom = self.take(), self.take(), self.take()
            return _mixed_value(value, read_literal(top.text), read_literal(bottom.text))
        if is_integer and self.peek() == "\\frac":
            start = self.position
            self.position += 1
            top_node, bottom_node = self.argument(), self.argument()
            if top_node[0] == bottom_node[0] == "num":
                return _mixed_value(value, top_node, bottom_node)
            self.position = start
        return value

    def repeating(self, digits: str) -> Node:
        """``0.1\\overline{6}`` and ``0.1\\dot{6}`` are 1/6; ``0.\\dot{1}2\\dot{3}`` is 41/333, as ``0.(123)`` is."""
        mark = self.take().text
        period = self.digits() if mark == "(" else self.digits_under()
        if mark == "(":
            self.expect(")")
        elif mark == "\\dot" and self.peek() == "\\dot":
            self.position += 1
            period += self.digits_under()
        elif mark == "\\dot" and self.kind() == "number" and self.peek(1) == "\\dot":
            period += self.digits()
            self.position += 1
            period += self.digits_under()
        if len(period) > 50:
            raise NotFormulaError
        start = read_literal(digits)
        places = len(digits.partition(".")[2])
        return ("add", start, ("div", read_literal(period), number((10 ** len(period) - 1) * 10**places)))

    def digits(self) -> str:
        text = self.take().text
        if not text.isdigit():
            raise NotFormulaError
        return text

    def digits_under(self) -> str:
        """Digits under a mark, in braces or not."""
        braced = self.accept("{")
        text = self.digits()
        if braced:
            self.expect("}")
        return text


def _mixed_value(whole: Node, top: Node, bottom: Node) -> Node:
    if not (0 <= top[1] < bottom[1] and top[2] == bottom[2] == 1):
        raise NotFormulaError
    return ("add", whole, ("div", top, bottom))
