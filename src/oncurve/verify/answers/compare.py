"""Decide whether two parsed answers are the same. Exact: no tolerance, no rounding, no evaluation of text."""

from pydantic import Field

from oncurve.types import Settings
from oncurve.verify.answers.parse import Number, Value


class ComparisonSettings(Settings):
    """Choices that data sets disagree about."""

    bare_number_as_percent: bool = Field(True)
    """Take 60 and 60% for the same answer, in both directions. 0.6 and 60% are always the same."""


def is_equal(left: Value, right: Value, settings: ComparisonSettings) -> bool:
    """Compare two answers by value; text only equals text.

    Symmetric: ``is_equal(a, b)`` is ``is_equal(b, a)``.
    """
    if not isinstance(left, Number) or not isinstance(right, Number):
        return left == right
    if left.value == right.value:
        return True
    if settings.bare_number_as_percent and left.is_percent != right.is_percent:
        percent, bare = (left, right) if left.is_percent else (right, left)
        return percent.value * 100 == bare.value
    return False
