"""One RunConfig for a whole run: it nests the settings of the modules below and adds nothing but the loop's own."""

from oncurve.config.load import dump_config, known_settings, load_config
from oncurve.config.paths import with_absolute_paths
from oncurve.config.run import RunConfig

__all__ = ["RunConfig", "dump_config", "known_settings", "load_config", "with_absolute_paths"]
