"""The code on the pages of the laboratory runs."""

import re
from pathlib import Path

import pytest

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
