"""One RunConfig for a whole run: it nests the settings of the modules below and adds nothing but the loop's own."""

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
