"""Compare quantities with units, ratios, times of day and numbers in other bases."""

from collections.abc import Callable
from fractions import Fraction

from oncurve.verify.answers.grammar import Grammar
from oncurve.verify.answers.nodes import SCALARS, Node, number, walk
from oncurve.verify.answers.settings import ComparisonSettings
from oncurve.verify.answers.tokens import tokenize
from oncurve.verify.answers.units import Dimensions

_KINDS = frozenset(("unit", "mixed-unit", "ratio", "clock", "based", "date"))


class Quantities:
    """The rules for values that are more than a number; ``same`` compares their numbers."""

    def __init__(self, settings: ComparisonSettings, same: Callable[[Node, Node], bool]) -> None:
        self.settings = settings
        self._same = same
        self._asked = asked_unit(settings.unit)

    def concerns(self, node: Node) -> bool:
        """True when the node is one of these values."""
        return node[0] in _KINDS

    def same(self, answer: Node, gold: Node) -> bool:
        """Compare two nodes of which at least one is such a value."""
        kinds = {answer[0], gold[0]}
        if "date" in kinds:
            return answer == gold
        if "clock" in kinds:
            return self._clocks(answer, gold)
        if "based" in kinds:
            return self._based(answer, gold)
        if "ratio" in kinds:
            return self._ratios(answer, gold)
        return self._units(answer, gold)

    # --- units ---

    def _units(self, answer: Node, gold: Node) -> bool:
        if "unit" not in (answer[0], gold[0]) or "pct" in (answer[0], gold[0]):
            return False
        if self._asked is not None:
            gold = gold if gold[0] == "unit" else ("unit", gold, *self._asked)
        if answer[0] == "unit" and gold[0] == "unit":
            return self._both_units(answer, gold)
        if answer[0] != "unit":
            if self.settings.unit_required:
                return False
            return self._same(answer, gold[1]) or self._radians(gold, answer)
        is_angle_of_pi = answer[4] == "angle:1" and ("const", "pi") in walk(answer[1])  # pi/6 degrees are not pi/6
        return (not is_angle_of_pi and self._same(answer[1], gold)) or self._radians(answer, gold)

    def _both_units(self, answer: Node, gold: Node) -> bool:
        if answer[4] != gold[4]:
            return False
        ours, theirs = Fraction(answer[2], answer[3]), Fraction(gold[2], gold[3])
        if ours == theirs:
            return self._same(answer[1], gold[1])
        return self.settings.unit_conversion and self._same(("mul", answer[1], number(ours / theirs)), gold[1])

    def _radians(self, angle: Node, bare: Node) -> bool:
        if not self.settings.degree_vs_radian or angle[4] != "angle:1" or bare[0] not in SCALARS:
            return False
        return bare[0] != "num" and self._same(("mul", angle[1], ("div", ("const", "pi"), number(180))), bare)

    # --- ratios ---

    def _ratios(self, answer: Node, gold: Node) -> bool:
        if answer[0] == gold[0]:
            return self._both_ratios(list(answer[1:]), list(gold[1:]))
        ratio, other = (answer, gold) if answer[0] == "ratio" else (gold, answer)
        if not self.settings.ratio_as_fraction or len(ratio) != 3 or other[0] not in SCALARS or may_be_clock(ratio):
            return False
        return self._same(("div", ratio[1], ratio[2]), other)

    def _both_ratios(self, answers: list[Node], golds: list[Node]) -> bool:
        if len(answers) != len(golds):
            return False
        pairs = list(zip(answers, golds, strict=True))
        if all(left == right or (_is_scalar(left, right) and self._same(left, right)) for left, right in pairs):
            return True
        if not self.settings.ratio_unreduced or may_be_clock(("ratio", *golds)):
            return False
        if not all(_is_scalar(left, right) for left, right in pairs):
            return False
        first, gold_first = pairs[0]
        return all(self._same(("mul", left, gold_first), ("mul", right, first)) for left, right in pairs[1:])

    # --- clocks and bases ---

    def _clocks(self, answer: Node, gold: Node) -> bool:
        ours, theirs = self._time(answer), self._time(gold)
        return ours is not None and ours == theirs

    def _time(self, node: Node) -> tuple[int, int] | None:
        """Minutes of the day and seconds."""
        if node[0] == "clock":
            return node[1] + (720 if node[3] == "pm" else 0), node[2]
        if node[0] != "ratio" or not self.settings.clock_24h:
            return None
        parts = [part[1] for part in node[1:] if part[0] == "num" and part[2] == 1]
        if len(parts) != len(node) - 1:
            return None
        return parts[0] * 60 + parts[1], parts[2] if len(parts) > 2 else 0

    def _based(self, answer: Node, gold: Node) -> bool:
        if answer[0] == gold[0]:
            return bool(answer[2] == gold[2] and answer[1].lstrip("0") == gold[1].lstrip("0"))
        if not self.settings.base_omitted or answer[0] != "num" or answer[2] != 1:
            return False
        return str(answer[1]) == (gold[1].lstrip("0") or "0")


def may_be_clock(ratio: Node) -> bool:
    """4:20 and 12:00 look like times of day; 3:4 does not."""
    parts = ratio[1:]
    if len(parts) != 2 or any(part[0] != "num" or part[2] != 1 for part in parts):
        return False
    hours, minutes = parts[0][1], parts[1][1]
    return bool(0 <= hours <= 24 and (10 <= minutes < 60 or minutes == 0))


def _is_scalar(left: Node, right: Node) -> bool:
    return left[0] in SCALARS and right[0] in SCALARS


def asked_unit(name: str) -> tuple[int, int, str] | None:
    """Factor and dimensions of a unit that the settings name.

    Raises:
        ValueError: the unit is unknown.
    """
    if not name:
        return None
    found: tuple[Fraction, Dimensions] | None = Grammar(tokenize(name)).unit()
    if found is None:
        raise ValueError(f"unknown unit {name!r}. Write it as in an answer: cm, m/s, dollars.")
    factor, dimensions = found
    return factor.numerator, factor.denominator, ",".join(f"{base}:{power}" for base, power in dimensions)
