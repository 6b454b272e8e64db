"""Second readings of an answer: as words, with a decimal comma, as a list that looks like a large number."""

import re
from collections.abc import Callable

from oncurve.verify.answers.grammar import Answer, parse
from oncurve.verify.answers.nodes import Node, number
from oncurve.verify.answers.settings import ComparisonSettings
from oncurve.verify.answers.wording import decision_of, words_of

_WORDS_ONLY = re.compile(r"(?:[^\W\d_]|\d|[\s.,;:'\"!?()/]|(?<=[^\W\d_])-(?=[^\W\d_]))*")
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+")
_AND_A_FRACTION = re.compile(r"(-?[0-9]{1,18}) ?and ?([0-9]{1,9}/[0-9]{1,9}|\\frac\{[0-9]{1,9}\}\{[0-9]{1,9}\})")
_PERIOD = re.compile(r"(-?[0-9]{1,18}\.[0-9]{1,18})\(([0-9]{1,18})\)")
_DECIMAL_COMMA = re.compile(r"(-?[0-9]+),([0-9]+)")


class Readings:
    """Compares what the first reading did not find equal; ``same`` compares trees."""

    def __init__(self, settings: ComparisonSettings, same: Callable[[Node, Node], bool]) -> None:
        self.settings = settings
        self.same = same

    def agree(self, answer: Answer, gold: Answer) -> bool:
        """True when some second reading makes the answer the gold."""
        return (
            self.by_decimal_comma(answer, gold)
            or self.by_separators(answer, gold)
            or self.by_another_number(answer, gold)
            or self.by_words(answer, gold)
        )

    def by_words(self, answer: Answer, gold: Answer) -> bool:
        if "text" not in (answer.node[0], gold.node[0]):
            return False
        if self.settings.longer_sentence and (decision := decision_of(gold.text)):
            return decision == decision_of(answer.text)
        if not _WORDS_ONLY.fullmatch(answer.text) or not _WORDS_ONLY.fullmatch(gold.text):
            return False
        ours, theirs = words_of(answer.text), words_of(gold.text)
        if not theirs or not any(c.isalpha() for c in theirs):
            return False
        return ours == theirs or (len(_word_list(gold.text)) > 1 and _word_list(answer.text) == _word_list(gold.text))

    def by_decimal_comma(self, answer: Answer, gold: Answer) -> bool:
        if not self.settings.decimal_comma or answer.node[0] == gold.node[0] == "list":
            return False
        for ours, theirs in ((answer, gold), (gold, answer)):
            found = _DECIMAL_COMMA.fullmatch(ours.text)
            if found and ours.node[0] in ("list", "num") and theirs.node[0] == "num" and theirs.node[2] != 1:
                if ours is gold and len(found[2]) < 2:
                    continue
                reading = parse(f"{found[1]}.{found[2]}")
                if reading is not None and self.same(reading.node, theirs.node):
                    return True
        return False

    def by_another_number(self, answer: Answer, gold: Answer) -> bool:
        """``3 and 1/2`` is 7/2, and ``0.1(6)`` is 1/6: beside a number, neither a list nor a product."""
        if gold.node[0] not in ("num", "div", "neg"):
            return False
        if found := _AND_A_FRACTION.fullmatch(answer.text):
            spelled = f"{found[1]} {found[2]}"
        elif found := _PERIOD.fullmatch(answer.text):
            spelled = f"{found[1]}\\overline{{{found[2]}}}"
        else:
            return False
        reading = parse(spelled)
        return reading is not None and reading.node[0] != "text" and self.same(reading.node, gold.node)

    def by_separators(self, answer: Answer, gold: Answer) -> bool:
        """``1,234`` beside a pair or a set: two numbers, not one thousand."""
        nodes = [answer.node, gold.node]
        for place, (ours, theirs) in enumerate(((answer, gold), (gold, answer))):
            if theirs.node[0] in ("tuple", "set", "list") and _THOUSANDS.fullmatch(ours.text):
                nodes[place] = ("list", *(number(int(part)) for part in ours.text.split(",")))
                return self.same(nodes[0], nodes[1])
        return False


def _word_list(text: str) -> frozenset[str]:
    return frozenset(words_of(part) for part in re.split(r"[,;]|\band\b", text) if words_of(part))
