"""Where the code stands in a completion, how long it may run, and how outputs are compared."""

from typing import Literal

from pydantic import Field

from oncurve.sandbox import SandboxSettings
from oncurve.types import Settings

Carrier = Literal["fence", "text", "continuation"]


class CodeComparison(Settings):
    """Choices about equality. Everything else is exact: type and value."""

    float_tolerance: float | None = Field(None, gt=0, lt=1)
    """Floats may differ by this, absolutely or relative to the expected one. None: they are equal or not. Never for
    whole numbers: in text, an expected ``7`` is not met by ``7.0``."""

    tuple_equals_list: bool = True
    """A tuple equals a list of the same members: tests written in JSON know lists only."""

    json_keys: bool = True
    """An expected dict key that is the text of a whole number is met by that number: JSON knows text keys only."""

    int_equals_float: bool = False
    """2 equals 2.0. True never equals 1."""

    nan_equals_nan: bool = False
    """An expected NaN is met by NaN. Otherwise a test that expects it cannot be used."""


class CodeSettings(Settings):
    """How a program is found, run and judged."""

    carrier: Carrier = "fence"
    """``fence``: the last fenced block outside the thinking; ``text``: all text after the thinking is the program;
    ``continuation``: the text goes on with the task's ``prefix`` until something else begins. A task overrides it in
    ``meta["carrier"]``."""

    thinking_tag: str = Field("think", pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    """Nothing inside this tag is code; when it is never closed there is no program."""

    timeout_s: float = Field(8.0, gt=0, le=3600)
    """Wall seconds for one case: loading, one call, one run with one input, or one whole test text."""

    total_timeout_s: float = Field(60.0, gt=0, le=36000)
    """Wall seconds for all cases of a program together."""

    compile_timeout_s: float = Field(30.0, gt=0, le=3600)
    """Wall seconds for the compiler of a compiled language."""

    comparison: CodeComparison = CodeComparison()
    """A task overrides it in ``meta["comparison"]``."""

    sandbox: SandboxSettings = SandboxSettings()
