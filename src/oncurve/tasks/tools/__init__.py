"""Tasks that are done with tools: what counts is what the environment is in afterwards."""

from oncurve.tasks.tools.database import DATABASE
from oncurve.tasks.tools.files import FILES

TOOL_SOURCES = (FILES, DATABASE)

__all__ = ["DATABASE", "FILES", "TOOL_SOURCES"]
