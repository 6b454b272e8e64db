"""What can be said of a config in a second: a run's settings name networks, and those take torch several to import."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ConfigDict

from oncurve.config.words import EMBEDDED, read_table, run_table, validated
from oncurve.tasks import TaskSettings
from oncurve.types import ConfigError, Settings
from oncurve.verify import RewardSettings


class _Early(Settings):
    """The tables of a run that need no torch; the others are checked later, with them."""

    model_config = ConfigDict(extra="ignore")

    reward: RewardSettings = RewardSettings()
    tasks: TaskSettings = TaskSettings()


def refuse_early(path: Path | None, overrides: Sequence[str]) -> None:
    """Refuse a config whose file cannot be read, or whose reward or tasks are wrong.

    Raises:
        ConfigError: as ``load_config`` would, without what only the rest of a run's settings can tell.
    """
    read_table(path, "train")
    try:
        table = run_table(path, overrides, _Early)
    except ConfigError:
        return  # a word that is no setting: the nearest one may stand in a table that is not looked at here
    validated(_Early, table, EMBEDDED if path is None else str(path), overrides)
