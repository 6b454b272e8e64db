"""One RunConfig for a whole run: it nests the settings of the modules below and adds nothing but the loop's own.

Names are imported when they are asked for: ``oncurve.config.words`` works without torch, a RunConfig does not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncurve.config.arms import ComparisonPlan, PlannedRun, load_comparison
    from oncurve.config.load import dump_config, known_settings, load_config
    from oncurve.config.paths import with_absolute_paths
    from oncurve.config.run import RunConfig

__all__ = [
    "ComparisonPlan",
    "PlannedRun",
    "RunConfig",
    "dump_config",
    "known_settings",
    "load_comparison",
    "load_config",
    "with_absolute_paths",
]

_HOMES = {
    "arms": ("ComparisonPlan", "PlannedRun", "load_comparison"),
    "load": ("dump_config", "known_settings", "load_config"),
    "paths": ("with_absolute_paths",),
    "run": ("RunConfig",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"oncurve.config.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
