"""Compare two scalars: exactly, else within what the settings allow, else by the CAS."""

from collections.abc import Callable
from fractions import Fraction

from oncurve.verify.answers.cas import Decider, Mode, shared_cas
from oncurve.verify.answers.exact import UndefinedError, rational, rough
from oncurve.verify.answers.nodes import INFINITY, Node, number, substitute, symbols, walk
from oncurve.verify.answers.regions import MINUS_INFINITY
from oncurve.verify.answers.settings import ComparisonSettings


class Scalars:
    """The rules for numbers and expressions; ``same`` compares parts that may be more than scalars.

    Args:
        settings: the choices.
        cas: who decides what exact arithmetic leaves open; by default the processes that all verifiers share.
        same: comparison of any two nodes.
    """

    def __init__(self, settings: ComparisonSettings, cas: Decider | None, same: Callable[[Node, Node], bool]) -> None:
        self.settings = settings
        self._cas = cas
        self.same = same

    def is_equal(self, answer: Node, gold: Node) -> bool:
        """Compare two values: exactly, else within what the settings allow, else by the CAS."""
        if answer[0] == gold[0] == "num" and answer[1:3] == gold[1:3]:
            return True
        if answer == gold and answer[0] != "div":
            return not _has_infinity(answer) or answer in (INFINITY, MINUS_INFINITY)
        if answer[0] == "pct" or gold[0] == "pct":
            return self._percents(answer, gold)
        if "ratio" in (answer[0], gold[0]):
            return False
        try:
            if answer[0] == "mod" or gold[0] == "mod":
                return self._residues(answer, gold)
            values = rational(answer), rational(gold)
        except UndefinedError:
            return False
        if values[0] is not None and values[1] is not None and values[0] == values[1]:
            return True
        if self._is_near(answer, gold, values):
            return True
        if None not in values:
            return False
        return self._by_cas(self._readable(answer, gold), self._readable(gold, answer))

    def _by_cas(self, answer: Node, gold: Node) -> bool:
        if _has_infinity(answer) or _has_infinity(gold):
            if INFINITY in (answer, gold) or MINUS_INFINITY in (answer, gold):
                return False
        else:
            first, second = rough(answer), rough(gold)
            if first and second and abs(first[0] - second[0]) > 1e-6 * max(first[1], second[1]):
                return False
        if symbols(answer) != symbols(gold) and "num" in (answer[0], gold[0]) and "sym" in (answer[0], gold[0]):
            return False
        return self.ask("equal", [answer, gold]) is True

    def _readable(self, node: Node, other: Node) -> Node:
        """Apply the choices that concern the names in an expression."""
        if self.settings.j_as_imaginary and symbols(node) == {"j"} and ("const", "i") in walk(other):
            node = substitute(node, "j", ("const", "i"))
        constant = ("sym", "C") if _has_constant(node) else ("sym", "c") if _has_constant(other) else None
        if self.settings.constant_of_integration and node[0] == "add" and constant in node[1:]:
            node = ("add", *(term for term in node[1:] if term != constant), number(0))
        return _natural_logs(node) if self.settings.log_base == "e" else node

    def ask(self, mode: Mode, trees: list[Node]) -> bool | None:
        """Have the CAS decide; None when its budget did not suffice.

        Raises:
            NoDecisionError: it timed out or died.
        """
        cas = self._cas or shared_cas()
        return cas.decide(mode, trees)

    def _percents(self, answer: Node, gold: Node) -> bool:
        if answer[0] == gold[0]:
            return self.same(answer[1], gold[1])
        inner = [node[1] if node[0] == "pct" else node for node in (answer, gold)]
        if self.settings.bare_number_as_percent and self.same(inner[0], inner[1]):
            return True
        values = [("div", node[1], number(100)) if node[0] == "pct" else node for node in (answer, gold)]
        return self.same(values[0], values[1])

    def _residues(self, answer: Node, gold: Node) -> bool:
        if not self.settings.residues:
            return answer == gold
        if answer[0] == gold[0]:
            values = [rational(part) for part in (answer[1], gold[1], answer[2], gold[2])]
            if None in values or values[2] != values[3] or not values[2]:
                return False
            difference = (values[0] or Fraction(0)) - (values[1] or Fraction(0))
            return (difference / values[2]).denominator == 1
        if gold[0] == "mod":
            return self.same(answer, gold[1])
        value, modulus, remainder = rational(answer[1]), rational(answer[2]), rational(gold)
        if value is None or remainder is None or not modulus:
            return False
        return 0 <= remainder < modulus and (value - remainder) % modulus == 0

    def _is_near(self, answer: Node, gold: Node, values: tuple[Fraction | None, Fraction | None]) -> bool:
        """Within the stated tolerance; or one side is the other, rounded to many digits."""
        settings = self.settings
        is_decimal, is_decimal_gold = _is_decimal(answer), _is_decimal(gold)
        has_tolerance = settings.absolute_tolerance > 0 or settings.relative_tolerance > 0
        if not (has_tolerance or is_decimal != is_decimal_gold):
            return False
        a, g = _real(answer, values[0]), _real(gold, values[1])
        if a is None or g is None:
            return False
        allowed = max(Fraction(settings.absolute_tolerance), Fraction(settings.relative_tolerance) * abs(g))
        if abs(a - g) <= allowed:
            return True
        if is_decimal and not _terminates(values[1]) and _significant_digits(answer) >= settings.many_digits:
            return abs(a - g) <= Fraction(1, 10 ** _places(answer))
        if is_decimal_gold and not _terminates(values[0]):
            half = Fraction(51, 100 * 10 ** _places(gold))
            return _places(gold) >= settings.rounded_gold_places and abs(a - g) <= half
        return False


def _has_constant(node: Node) -> bool:
    """``+ C`` is a constant of integration where no other capital letter is a variable. ``+ c`` answers it."""
    return (
        node[0] == "add" and ("sym", "C") in node[1:] and not any(name[0].isupper() for name in symbols(node) - {"C"})
    )


def _natural_logs(node: Node) -> Node:
    """A log without a base is the natural one."""
    if node[:2] == ("fn", "log") and len(node) == 3:
        return ("fn", "ln", _natural_logs(node[2]))
    return tuple(_natural_logs(member) if isinstance(member, tuple) else member for member in node)


def _has_infinity(node: Node) -> bool:
    return INFINITY in walk(node) and node[0] not in ("lim", "int", "sum", "prod")


def _is_decimal(node: Node) -> bool:
    return bool(_unsigned(node)[0] == "num" and _unsigned(node)[3] > 0)


def _unsigned(node: Node) -> Node:
    return tuple(node[1]) if node[0] == "neg" else node


def _places(node: Node) -> int:
    return int(_unsigned(node)[3])


def _significant_digits(node: Node) -> int:
    _, top, bottom, places = _unsigned(node)
    return len(str(abs(top) * 10**places // bottom)) if top else 0


def _terminates(value: Fraction | None) -> bool:
    """A rational with a finite decimal expansion has no need of rounding."""
    if value is None:
        return False
    bottom = value.denominator
    for prime in (2, 5):
        while bottom % prime == 0:
            bottom //= prime
    return bottom == 1


def _real(node: Node, exact: Fraction | None) -> Fraction | None:
    if exact is not None:
        return exact
    found = rough(node)
    if (
        found is None
        or abs(found[0].imag) > 1e-12 * max(1.0, abs(found[0]))
        or found[1] > 1e6 * max(1.0, abs(found[0]))
    ):
        return None
    return Fraction(found[0].real)
