"""Decide whether an answer says what the gold says: exactly first, then by the CAS, never by rounding.

The two sides are not symmetric: some rules forgive what an answer leaves out (a unit, a name), never what it adds to
be safe (a second value, an alternative).
"""

from collections.abc import Sequence
from itertools import pairwise

from oncurve.verify.answers.cas import Decider
from oncurve.verify.answers.exact import rough
from oncurve.verify.answers.forms import UNDEFINED, components, is_name, simplify
from oncurve.verify.answers.grammar import Answer, parse
from oncurve.verify.answers.nodes import SCALARS, Node, number, substitute, symbols
from oncurve.verify.answers.quantities import Quantities
from oncurve.verify.answers.readings import Readings
from oncurve.verify.answers.regions import INEQUALITIES, NotRegionError, Regions
from oncurve.verify.answers.scalars import Scalars
from oncurve.verify.answers.settings import ComparisonSettings
from oncurve.verify.answers.wording import choice_of, gold_choice, named_choice

MAX_MEMBERS = 300
"""Members of a collection; one that is more than a number counts for four, since it costs more to compare."""
_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "\\ne": "\\ne", "=": "="}
_UNORDERED = frozenset(("set", "list", "any"))
_REGION_KINDS = frozenset(("interval", "union", "inter", "minus", "space", "builder"))
_VECTORS = frozenset(("tuple", "bracket"))


class Comparer:
    """Compares parsed answers under one set of choices."""

    def __init__(self, settings: ComparisonSettings, cas: Decider | None = None) -> None:
        self.settings = settings
        self.scalars = Scalars(settings, cas, self.same)
        self.regions = Regions(self.scalars.is_equal)
        self.readings = Readings(settings, self.same)
        self.quantities = Quantities(settings, self.same)

    def is_equal(self, answer: Answer, gold: Answer) -> bool:
        """Compare an answer with the gold.

        Raises:
            NoDecisionError: the CAS timed out or died.
        """
        if answer.node[0] == gold.node[0] == "num":
            return self.scalars.is_equal(answer.node, gold.node)
        if answer.text == gold.text or (answer.node == gold.node and _is_fraction(answer.node)):
            return True
        if self.settings.choice_case and gold_choice(gold.text) and gold_choice(answer.text.upper()):
            return gold_choice(gold.text) == gold_choice(answer.text.upper())
        letter = gold_choice(gold.text) or (choice_of(gold.text) if gold.text.startswith("(") else "")
        if letter and (chosen := named_choice(answer.text)[0]) and (chosen != letter or choice_of(answer.text)):
            return chosen == letter and self._same_option(answer, gold)
        option = self._option(gold) if letter else None
        if option is not None and self.same(answer.node, option.node):
            return True  # the gold (B) 14 is met by 14
        return self.same(answer.node, gold.node) or self.readings.agree(answer, gold)

    def _same_option(self, answer: Answer, gold: Answer) -> bool:
        """False when the right letter stands in front of another number than the gold's."""
        ours, theirs = self._option(answer), self._option(gold)
        numbers = ours is not None and theirs is not None and ours.node[0] == theirs.node[0] == "num"
        return not numbers or self.same(ours.node, theirs.node)  # type: ignore[union-attr]

    def _option(self, choice: Answer) -> Answer | None:
        """What stands behind the letter of a choice."""
        return parse(named_choice(choice.text)[1], exotic_digits=self.settings.exotic_digits)

    # --- structure ---

    def same(self, answer: Node, gold: Node) -> bool:
        """Compare two trees."""
        answer, gold = self._simplified(answer), self._simplified(gold)
        if UNDEFINED in (answer, gold):
            return False
        if answer[0] in ("assign", "equation", "named") or gold[0] in ("assign", "equation", "named"):
            return self._same_named(answer, gold)
        answer, gold = self._settled(answer), self._settled(gold)
        if UNDEFINED in (answer, gold):
            return False
        answer = _without_glued_unit(answer, gold)
        if answer[0] in SCALARS and gold[0] in SCALARS:
            return self.scalars.is_equal(answer, gold)
        if (answer[0] in _UNORDERED) != (gold[0] in _UNORDERED):
            return self._same_collection(answer, gold)
        if self.quantities.concerns(answer) or self.quantities.concerns(gold):
            return self.quantities.same(answer, gold)
        return self._same_collection(answer, gold)

    def _simplified(self, node: Node) -> Node:
        settings = self.settings
        return simplify(node, words_are_sets=settings.no_solution_words, nested_lists=settings.nested_list_matrix)

    def _settled(self, node: Node) -> Node:
        """The value of a chain whose sides agree; a chain that contradicts itself has none."""
        if node[0] != "chain":
            return node
        operators, sides = node[1].split(" "), node[2:]
        value = sides[0]
        for operator, (left, right) in zip(operators, pairwise(sides), strict=True):
            if operator == "=" and not self.same(left, right):
                return UNDEFINED
            if operator == "\\approx":
                return simplify(value) if _is_close(left, right) else UNDEFINED
            value = right
        return simplify(value)

    def _same_collection(self, answer: Node, gold: Node) -> bool:
        kinds = {answer[0], gold[0]}
        if "matrix" in kinds:
            return self._same_matrix(answer, gold)
        if self._is_region(answer) or self._is_region(gold):
            return self._same_region(answer, gold)
        if answer[0] == gold[0] == "sequence":
            return self._same_in_order(answer[1:], gold[1:])
        if "sequence" in kinds or "text" in kinds:
            return False
        if kinds <= _VECTORS:
            return len(kinds) == 1 and self._same_in_order(answer[1:], gold[1:])
        if kinds & _VECTORS:
            other = answer if gold[0] in _VECTORS else gold
            is_interval = "bracket" in kinds and len(answer) == 3
            is_bare = other[0] == "list" and self.settings.bare_pair and not is_interval
            return is_bare and self._same_in_order(answer[1:], gold[1:])
        if kinds & _UNORDERED:
            return self._same_members(_members(answer), _members(gold), gold)
        return False

    def _same_in_order(self, answers: Sequence[Node], golds: Sequence[Node]) -> bool:
        return len(answers) == len(golds) <= MAX_MEMBERS and all(
            self.same(answer, gold) if "dots" not in (answer[0], gold[0]) else answer[0] == gold[0]
            for answer, gold in zip(answers, golds, strict=True)
        )

    def _same_members(self, answers: Sequence[Node], golds: Sequence[Node], gold: Node) -> bool:
        if max(_size(answers), _size(golds)) > MAX_MEMBERS:
            return False
        if gold[0] == "any" and self.settings.or_gold_any and len(answers) == 1:
            return any(self.same(answers[0], member) for member in golds)
        if self.settings.list_order == "same" and gold[0] == "list":
            return self._same_in_order(answers, golds)
        if gold[0] not in _UNORDERED and not all(self.same(answer, gold) for answer in answers):
            return False
        if self.settings.repeated_members:
            answers, golds = self._distinct(answers), self._distinct(golds)
        if len(answers) != len(golds):
            return False
        left = list(golds)
        for answer in answers:
            found = left.index(answer) if answer in left else self._find(answer, left)
            if found is None:
                return False
            del left[found]
        return True

    def _find(self, answer: Node, golds: Sequence[Node]) -> int | None:
        return next((place for place, member in enumerate(golds) if self.same(answer, member)), None)

    def _distinct(self, members: Sequence[Node]) -> list[Node]:
        if len(members) < 2:
            return list(members)
        plain = dict.fromkeys(members)
        distinct: list[Node] = []
        for member in plain:
            is_number = member[0] == "num"
            if not any((not is_number or other[0] != "num") and self.same(member, other) for other in distinct):
                distinct.append(member)
        return distinct

    def _same_matrix(self, answer: Node, gold: Node) -> bool:
        answer, gold = self._as_matrix(answer, gold), self._as_matrix(gold, answer)
        if answer[0] != "matrix" or gold[0] != "matrix" or len(answer) != len(gold):
            return False
        rows = zip(answer[1:], gold[1:], strict=True)
        return all(self._same_in_order(left[1:], right[1:]) for left, right in rows)

    def _as_matrix(self, node: Node, other: Node) -> Node:
        """A tuple beside a row or a column takes its shape."""
        if node[0] in (*_VECTORS, "list") and other[0] == "matrix" and self.settings.vector_as_tuple:
            if len(other) == 2:
                return ("matrix", ("row", *node[1:]))
            if len(other[1]) == 2:
                return ("matrix", *(("row", member) for member in node[1:]))
        return node

    # --- regions ---

    def _is_region(self, node: Node) -> bool:
        if node[0] in _REGION_KINDS:
            return True
        if node[0] in ("list", "any"):
            return all(member[0] == "rel" for member in node[1:])
        return node[0] == "rel" and bool(set(node[1].split(" ")) & (INEQUALITIES | {"\\in"}))

    def _same_region(self, answer: Node, gold: Node) -> bool:
        try:
            return self.regions.is_same(self.regions.region(answer), self.regions.region(gold))
        except NotRegionError:
            return self._same_spelling(answer, gold)

    def _same_spelling(self, answer: Node, gold: Node) -> bool:
        """Regions that cannot be computed (with parameters, in the plane) agree part by part."""
        if answer[0] == gold[0] == "rel":
            return self._same_chain(answer, gold)
        if answer[0] == "rel" and answer[1] == "\\in" and gold[0] != "rel":
            return is_name(answer[2]) and self.same(answer[3], gold)
        if gold[0] == "rel" and gold[1] == "\\in" and answer[0] != "rel":
            return is_name(gold[2]) and self.same(answer, gold[3])
        if answer[0] in ("interval", "tuple", "bracket") and gold[0] in ("interval", "tuple", "bracket"):
            return _closure(answer) == _closure(gold) and self._same_in_order(answer[1:3], gold[1:3])
        if answer[0] != gold[0] or len(answer) != len(gold):
            return False
        if answer[0] in ("union", "inter"):
            return self._same_members(answer[1:], gold[1:], ("set",))
        if answer[0] == "space":
            return answer == gold
        if answer[0] in ("list", "any"):
            return self._same_members(answer[1:], gold[1:], ("set",))
        return answer[0] in ("minus", "builder") and self._same_in_order(answer[1:], gold[1:])

    def _same_chain(self, answer: Node, gold: Node) -> bool:
        """The same relations between the same sides, read from either end; or a positive multiple of one inequality."""
        operators, sides = answer[1].split(" "), list(answer[2:])
        flipped = [_FLIPPED.get(operator, operator) for operator in reversed(operators)]
        for ours, theirs in ((operators, sides), (flipped, sides[::-1])):
            if ours == gold[1].split(" ") and self._same_in_order(theirs, gold[2:]):
                return True
        if len(operators) > 1 or " " in gold[1] or not {operators[0], gold[1]} <= INEQUALITIES:
            return False
        if any(part[0] not in SCALARS for part in (*answer[2:], *gold[2:])):
            return False
        trees = [_excess(answer), _excess(gold)]
        return _upward(operators[0]) == _upward(gold[1]) and self.scalars.ask("proportional", trees) is True

    # --- names and equations ---

    def _same_named(self, answer: Node, gold: Node) -> bool:
        answer, gold = components(answer), components(gold)
        kinds = answer[0], gold[0]
        if kinds == ("named", "named"):
            return self._same_entries(answer, gold)
        if "named" in kinds:
            return self._same_components(answer, gold)
        if kinds == ("assign", "assign"):
            return self._same_assignments(answer, gold)
        if "equation" in kinds and ("assign" in kinds or kinds[0] == kinds[1]):
            return self._same_equations(answer, gold)
        if gold[0] == "equation":
            return False
        if answer[0] == "equation":
            left, right = answer[1:]
            compound = left[0] in ("pow", "fn", "mul", "div", "root") and not symbols(right)
            return self.settings.compound_left_side and compound and not symbols(gold) and self.same(right, gold)
        if gold[0] == "assign":
            return self.same(answer, gold[2])
        return self.same(answer[2], gold)

    def _same_entries(self, answer: Node, gold: Node) -> bool:
        values = {entry[1]: entry[2] for entry in answer[1:]}
        return values.keys() == {entry[1] for entry in gold[1:]} and all(
            self.same(values[entry[1]], entry[2]) for entry in gold[1:]
        )

    def _same_components(self, answer: Node, gold: Node) -> bool:
        """Named values beside values without names: in the order of the gold, or of the alphabet."""
        if gold[0] == "named":
            if answer[0] in ("list", "any") and _are_roots(gold):
                return self._same_members(answer[1:], [entry[2] for entry in gold[1:]], ("set",))
            if answer[0] not in (*_VECTORS, "list"):
                return False
            return self._same_in_order(answer[1:], [entry[2] for entry in gold[1:]])
        if gold[0] in ("set", "any") and _are_roots(answer):
            return self._same_members([entry[2] for entry in answer[1:]], gold[1:], gold)
        if gold[0] not in (*_VECTORS, "list"):
            return False
        values = [entry[2] for entry in sorted(answer[1:], key=lambda entry: str(entry[1]))]
        if gold[0] in _VECTORS:
            return self._same_in_order(values, gold[1:])
        return self._same_members(values, gold[1:], gold)

    def _same_assignments(self, answer: Node, gold: Node) -> bool:
        (_, name, value), (_, gold_name, gold_value) = answer, gold
        if name[0] == gold_name[0] == "call" and len(name) == len(gold_name) == 3 and name[1] == gold_name[1]:
            if name[2][0] == gold_name[2][0] == "sym":  # f(t) = 2t is f(x) = 2x
                return self.same(substitute(value, name[2][1], gold_name[2]), gold_value)
            return name[2] == gold_name[2] and self.same(value, gold_value)
        if name == gold_name or not self.settings.variable_names_matter or {name[0], gold_name[0]} == {"call", "sym"}:
            return self.same(value, gold_value)
        if value[0] in SCALARS and gold_value[0] in SCALARS and symbols(value) and symbols(gold_value):
            return self.scalars.ask("equation", [name, value, gold_name, gold_value]) is True
        return False

    def _same_equations(self, answer: Node, gold: Node) -> bool:
        sides = [*answer[1:], *gold[1:]]
        if any(side[0] not in SCALARS for side in sides):
            return answer[0] == gold[0] and self._same_in_order(answer[1:], gold[1:])
        return self.scalars.ask("equation", sides) is True


def _is_fraction(node: Node) -> bool:
    """A number over a number that is not 0."""
    return bool(node[0] == "div" and node[1][0] == node[2][0] == "num" and node[2][1] != 0)


def _without_glued_unit(answer: Node, gold: Node) -> Node:
    """``1,000.99m^2`` beside a bare number: square and cubic metres, not a variable."""
    if gold[0] == "num" and answer[0] == "mul" and len(answer) == 3 and answer[1][0] == "num":
        factor = answer[2]
        if factor[0] == "pow" and factor[1] == ("sym", "m") and factor[2] in (number(2), number(3)):
            return tuple(answer[1])
    return answer


def _are_roots(named: Node) -> bool:
    """x_1, x_2, …: one variable with consecutive numbers, whose values have no order."""
    letters = {str(entry[1]).partition("_")[0] for entry in named[1:]}
    numbers = sorted(str(entry[1]).partition("_")[2] for entry in named[1:])
    return len(letters) == 1 and numbers == [str(n) for n in range(1, len(numbers) + 1)]


def _size(members: Sequence[Node]) -> int:
    return sum(1 if member[0] == "num" else 4 for member in members)


def _members(node: Node) -> tuple[Node, ...]:
    return node[1:] if node[0] in _UNORDERED else (node,)


def _closure(node: Node) -> tuple[bool, bool]:
    if node[0] == "interval":
        return bool(node[3]), bool(node[4])
    return (node[0] == "bracket",) * 2


def _excess(node: Node) -> Node:
    """The side that is larger minus the other."""
    low, high = (node[2], node[3]) if node[1] in ("<", "\\le", "\\ne") else (node[3], node[2])
    return ("add", high, ("neg", low))


def _upward(operator: str) -> str:
    return _FLIPPED[operator] if operator in (">", "\\ge") else operator


def _is_close(left: Node, right: Node) -> bool:
    """An approximation in a chain has to be one: within five per cent."""
    first, second = rough(left), rough(right)
    if first is None or second is None:
        return False
    return abs(first[0] - second[0]) <= 0.05 * max(abs(first[0]), abs(second[0]))
