import re
from pathlib import Path

import pytest

CONCEPTS = Path(__file__).parents[2] / "docs" / "concepts"


@pytest.mark.parametrize("name", ["run-folder.md", "report.md"])
def test_the_code_on_the_page_runs(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (CONCEPTS / name).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {})
    if name == "report.md":
        page = (tmp_path / "runs" / "second" / "report.html").read_text()
        assert "rose from 34.0 % to 37.0 %" in page
        assert "this run alone does not show a change" in page
