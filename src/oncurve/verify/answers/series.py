"""Sums and products over an index, integrals and limits: their bounds, their body, their variable."""

from abc import ABC, abstractmethod

from oncurve.verify.answers.cursor import Cursor, NotFormulaError
from oncurve.verify.answers.nodes import Node, number, replace
from oncurve.verify.answers.tokens import Token


class Series(Cursor, ABC):
    """Reads what has bounds; the scalars inside come from ``Expressions``."""

    @abstractmethod
    def sum(self) -> Node:
        """Terms with plus and minus between them."""

    @abstractmethod
    def product(self) -> Node:
        """Factors and quotients."""

    @abstractmethod
    def exponent(self) -> Node:
        """What stands above: a braced expression, or one token."""

    def series(self, kind: str) -> Node:
        low_name, low, high = self.bounds()
        if low_name is None or high is None:
            raise NotFormulaError
        body, index = self.product(), ("const", low_name)
        if index in (("const", "e"), ("const", "i")):  # here it counts
            body, high = (replace(part, index, ("sym", low_name)) for part in (body, high))
        return (kind, body, low_name, low, high)

    def bounds(self) -> tuple[str | None, Node, Node | None]:
        """``_{k=1}^{n}`` or ``_0^1``: the index when one is named, the lower and the upper bound."""
        name: str | None = None
        low: Node | None = None
        high: Node | None = None
        for _ in range(2):
            if self.accept("_"):
                if self.peek() == "{" and self.kind(1) in ("word", "text") and self.peek(2) == "=":
                    self.position += 1
                    name = self.take().text
                    self.position += 1
                    low = self.sum()
                    self.expect("}")
                else:
                    low = self.exponent()
            elif self.accept("^"):
                high = self.exponent()
        if low is None:
            raise NotFormulaError
        return name, low, high

    def integral(self) -> Node:
        _, low, high = self.bounds()
        if high is None:
            raise NotFormulaError
        stop = next((p for p in range(self.position, len(self.tokens)) if self._is_differential(p)), None)
        if stop is None:
            raise NotFormulaError
        variable = self.tokens[stop].text[1:]
        self.tokens[stop : stop + 1] = [Token("symbol", "\\d", False)]
        body: Node = number(1) if self.peek() == "\\d" else self.sum()
        self.expect("\\d")
        return ("int", body, variable, low, high)

    def _is_differential(self, position: int) -> bool:
        token = self.tokens[position]
        return token.kind in ("word", "text") and len(token.text) == 2 and token.text[0] == "d"

    def limit(self) -> Node:
        self.expect("_")
        self.expect("{")
        variable = self.take().text
        self.expect("\\to")
        target = self.sum()
        self.expect("}")
        return ("lim", self.product(), variable, target)
