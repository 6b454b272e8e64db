"""The worked examples of the concept pages hold."""

import re
from pathlib import Path

import pytest

CONCEPTS = Path(__file__).parents[2] / "docs" / "concepts"
PAGES = (
    "advantage",
    "objective",
    "presets",
    "aggregation",
    "kl",
    "entropy",
    "estimators",
    "ppo",
    "dpo",
    "supervised",
    "resume",
)


@pytest.mark.parametrize("page", PAGES)
def test_the_worked_examples_hold(page: str) -> None:
    text = (CONCEPTS / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        assert "assert" in block
        exec(compile(block, f"{page}.md", "exec"), {})


@pytest.mark.parametrize("page", PAGES)
def test_the_links_lead_somewhere(page: str) -> None:
    text = (CONCEPTS / f"{page}.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links
    assert [link for link in links if not (CONCEPTS / link).exists()] == []
