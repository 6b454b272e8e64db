"""Choices that data sets disagree about. Each is one named option; the defaults suit competition mathematics."""

from typing import Literal

from pydantic import Field

from oncurve.types import Settings


class ComparisonSettings(Settings):
    """What counts as the same answer where mathematics alone does not say.

    A task may override any of them: ``task.meta["comparison"] = {"absolute_tolerance": 0.01, "unit": "cm"}``.
    """

    absolute_tolerance: float = Field(0.0, ge=0)
    """Largest accepted difference of two numbers, in units of the gold."""

    relative_tolerance: float = Field(0.0, ge=0, lt=1)
    """Largest accepted difference as a share of the gold."""

    unit: str = ""
    """The unit that the question asks for (``cm``, ``USD``): a bare number is understood to carry it."""

    unit_required: bool = False
    """An answer without a unit is wrong when the gold has one."""

    unit_conversion: bool = True
    """50 mm is 5 cm; off: only the same unit."""

    bare_number_as_percent: bool = True
    """Take 60 and 60% for the same answer, in both directions. 0.6 and 60% are always the same."""

    degree_vs_radian: bool = True
    """60° is \\pi/3."""

    list_order: Literal["any", "same"] = "any"
    """Whether the members of a list without brackets may stand in another order."""

    repeated_members: bool = True
    """A member that is written twice counts once, in sets and lists."""

    or_gold_any: bool = False
    """A gold of alternatives ("5 or 9") is met by one of them; off: by all of them."""

    bare_pair: bool = True
    """``1, -2`` is (1, -2)."""

    vector_as_tuple: bool = True
    """A row or column is the tuple of its entries."""

    nested_list_matrix: bool = True
    """``[[0,2],[5,1]]`` is a matrix."""

    log_base: Literal["10", "e"] = "10"
    """Base of a \\log that names none."""

    many_digits: int = Field(8, ge=1)
    """Correct significant digits from which a decimal counts as an exact gold that it approximates."""

    rounded_gold_places: int = Field(3, ge=1)
    """Decimal places from which a gold is taken for the rounding of an exact answer: 0.667 of 2/3."""

    j_as_imaginary: bool = True
    """3+4j is 3+4i."""

    compound_left_side: bool = True
    """``x^2=4`` answers a gold of 4: the question may have asked for x squared."""

    variable_names_matter: bool = True
    """``m=8`` is not ``n=8``."""

    ratio_unreduced: bool = True
    """3:4 is 6:8, unless it may be a time of day."""

    ratio_as_fraction: bool = True
    """2:7 is 2/7, unless it may be a time of day."""

    base_omitted: bool = True
    """312 answers 312_4. The converted value never does."""

    constant_of_integration: bool = True
    """x^2 answers x^2+C."""

    residues: bool = True
    """10 (mod 7) is 3 (mod 7), and 3 answers 3 (mod 7)."""

    clock_24h: bool = True
    """15:45 is 3:45 PM."""

    no_solution_words: bool = True
    """``no solution`` is the empty set, ``all real numbers`` is the real line."""

    choice_case: bool = True
    """``b`` answers a gold that is the letter of a choice, ``B``."""

    longer_sentence: bool = True
    """``No, it is not`` is no."""

    decimal_comma: bool = True
    """``1,22`` may be read as 1.22 where the other side is a decimal."""

    exotic_digits: bool = True
    """Read the decimal digits of every script; circled and spelled digits never count."""
