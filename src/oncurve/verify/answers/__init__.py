"""From a completion to a comparison: extract the answer, parse it, compare it with the gold."""

from oncurve.verify.answers.compare import ComparisonSettings, is_equal
from oncurve.verify.answers.extract import Carrier, Extraction, extract
from oncurve.verify.answers.parse import Number, Text, Value, parse, render

__all__ = [
    "Carrier",
    "ComparisonSettings",
    "Extraction",
    "Number",
    "Text",
    "Value",
    "extract",
    "is_equal",
    "parse",
    "render",
]
