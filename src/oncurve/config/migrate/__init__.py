"""Configurations of other trainers, read as ours: nothing of them is dropped in silence."""

from oncurve.config.migrate.imported import Migration, import_config

__all__ = ["Migration", "import_config"]
