"""The sources by name. A new one is a function ``(rng, options) -> Problem`` and an entry here."""

from oncurve.tasks.countdown import COUNTDOWN
from oncurve.tasks.language import LANGUAGE_SOURCES
from oncurve.tasks.problem import Source
from oncurve.tasks.programs import PROGRAM_SOURCES
from oncurve.tasks.reasoning import REASONING_GYM
from oncurve.tasks.tools import TOOL_SOURCES

SOURCES: dict[str, Source] = {
    source.name: source for source in (COUNTDOWN, *LANGUAGE_SOURCES, *TOOL_SOURCES, *PROGRAM_SOURCES, REASONING_GYM)
}

FILE = "file"
"""The one source that is not generated."""
