"""A file of one trainer is not read as the other's."""

from pathlib import Path

import pytest

from oncurve.config.migrate import import_config
from oncurve.types import ConfigError

DATA = Path(__file__).with_name("data")


@pytest.mark.parametrize(
    ("trainer", "file", "other"),
    [("verl", "trl_grpo.json", "trl"), ("verl", "trl_script.yaml", "trl"), ("trl", "verl_nested.yaml", "verl")],
)
def test_a_file_of_the_other_trainer_is_sent_there(trainer, file, other):
    with pytest.raises(ConfigError, match=f"Did you mean `oncurve import {other} .*{file}`"):
        import_config(trainer, DATA / file)
