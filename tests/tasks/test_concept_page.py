"""The page about tasks tells the truth: its code runs, its sources and options exist."""

import re
from pathlib import Path

from oncurve.tasks import SOURCES, TaskSettings

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "tasks.md").read_text(encoding="utf-8")


def test_the_code_of_the_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, {})


def test_the_table_of_sources_is_complete() -> None:
    rows = re.findall(r"^\| (`.+?) \| .+? \| (.+?) \|$", PAGE.partition("## Sources")[2].partition("##")[0], flags=re.M)
    described = {
        name: set(re.findall(r"`(\w+)`", options)) for names, options in rows for name in re.findall(r"`(\w+)`", names)
    }
    file_options = described.pop("file")
    assert described == {name: set(source.options.model_fields) for name, source in SOURCES.items()}
    assert file_options <= set(TaskSettings.model_fields)
