"""From a completion to a comparison: extract the answer, parse it, compare it with the gold."""

from oncurve.verify.answers.cas import Cas, NoDecisionError, shared_cas
from oncurve.verify.answers.compare import Comparer
from oncurve.verify.answers.extract import Carrier, Extraction, extract
from oncurve.verify.answers.gold import is_several, read_gold, show
from oncurve.verify.answers.grammar import Answer, parse
from oncurve.verify.answers.sentence import candidates
from oncurve.verify.answers.settings import ComparisonSettings

__all__ = [
    "Answer",
    "Carrier",
    "Cas",
    "Comparer",
    "ComparisonSettings",
    "Extraction",
    "NoDecisionError",
    "candidates",
    "extract",
    "is_several",
    "parse",
    "read_gold",
    "shared_cas",
    "show",
]
