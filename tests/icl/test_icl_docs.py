"""The page on in-context regression is true: its code runs, its commands and settings exist."""

import re
from pathlib import Path

from oncurve.cli.icl import icl
from oncurve.cli.icl_run import lab_settings
from oncurve.icl.evaluate_run import Examination
from oncurve.icl.presets import PRESETS, preset_settings

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "icl.md").read_text(encoding="utf-8")


def test_the_code_on_the_page_runs():
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "icl.md", "exec"), {})


def test_every_command_on_the_page_exists():
    commands = set(re.findall(r"oncurve icl (\w+)", PAGE))
    assert commands == {"train", "eval", "probe", "shift", "sweep", "report", "resume"}
    assert commands <= set(icl)


def test_every_number_of_the_result_is_explained_on_the_page():
    explained = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert {"e_2d", "ratio_mean", "ratio_below_d", "ratio_reference", "averaging_ratio"} <= explained
    assert explained - {"linear", "sparse", "tree", "relu", *PRESETS} <= set(Examination.__dataclass_fields__)


def test_the_table_of_presets_is_that_of_the_code():
    for preset in PRESETS:
        settings = preset_settings(preset)
        (row,) = re.findall(rf"^\| `{preset}` \|(.*)\|$", PAGE, re.MULTILINE)
        dimension, network, steps, _ = (cell.strip() for cell in row.split("|"))
        assert int(dimension) == settings.functions.dimension
        assert network.startswith(f"{settings.network.layers} layers, width {settings.network.width}")
        assert int(steps.replace(" ", "")) == settings.steps


def test_the_settings_on_the_page_are_settings():
    words = ["--functions.kind", "sparse", "--functions.noise_std", "0.5"]
    assert all(word in PAGE for word in words)
    assert lab_settings(None, "full", words).functions.kind == "sparse"
