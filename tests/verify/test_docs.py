"""The examples of the concept pages are true."""

from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "concepts"


@pytest.mark.parametrize("page", ["verifiers.md", "answers.md", "formats.md", "rewards.md"])
def test_the_code_of_the_page_runs(page: str):
    blocks = (PAGES / page).read_text().split("```python\n")[1:]
    source = "\n".join(block.split("```")[0] for block in blocks)
    assert source.count("assert") >= 2
    exec(compile(source, page, "exec"), {})
