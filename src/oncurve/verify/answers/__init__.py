"""From a completion to a comparison: extract the answer, parse it, compare it with the gold."""

from oncurve.verify.answers.cas import Allowance, Cas, Mode, NoDecisionError, shared_cas
from oncurve.verify.answers.compare import Comparer
from oncurve.verify.answers.extract import Carrier, Extraction, extract
from oncurve.verify.answers.gold import is_several, read_gold, show
from oncurve.verify.answers.grammar import Answer, parse
from oncurve.verify.answers.nodes import Node
from oncurve.verify.answers.once import Once
from oncurve.verify.answers.sentence import candidates
from oncurve.verify.answers.settings import ComparisonSettings

__all__ = [
    "Allowance",
    "Answer",
    "Carrier",
    "Cas",
    "Comparer",
    "ComparisonSettings",
    "Extraction",
    "Mode",
    "NoDecisionError",
    "Node",
    "Once",
    "candidates",
    "extract",
    "is_several",
    "parse",
    "read_gold",
    "shared_cas",
    "show",
]
