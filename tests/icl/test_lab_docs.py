"""The code on the pages of the laboratory runs."""

import re
from pathlib import Path

import pytest

from oncurve.cli.icl_run import lab_settings
from oncurve.cli.words import split_words
from oncurve.icl.presets import PRESETS

CONCEPTS = Path(__file__).parents[2] / "docs" / "concepts"


@pytest.mark.parametrize(
    ("name", "printed"),
    [("icl-sweep.md", "('L1c16', "), ("traces.md", "-0.77 True")],
)
def test_the_code_on_the_page_runs(tmp_path, monkeypatch, capsys, name, printed):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (CONCEPTS / name).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {})
    assert printed in capsys.readouterr().out


def test_every_training_on_the_pages_has_settings_that_exist():
    text = "\n".join(page.read_text(encoding="utf-8") for page in CONCEPTS.glob("icl*.md"))
    found = re.findall(r"oncurve icl train((?: (?!#)[\w.\-\[\]\"]+)*)", text)
    assert any("--functions.sparsity 2 --steps 20000" in words for words in found)
    for words in found:
        path, overrides = split_words(words.split())
        preset = "ci"
        if "--preset" in overrides:
            place = overrides.index("--preset")
            preset = overrides[place + 1]
            del overrides[place : place + 2]
        assert preset in PRESETS
        assert path is None or path.name == "my.toml"
        lab_settings(None, preset, overrides)
