"""The README is true: its commands exist and its settings are settings."""

import re
import tomllib
from pathlib import Path

import pytest

from oncurve.algo import describe_objective
from oncurve.cli.app import app
from oncurve.config import RunConfig, load_config

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)


def test_it_is_short() -> None:
    assert len(README.splitlines()) < 200


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"\bmake (\w+)\b", README)) - {"makes"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"train", "test", "env"} <= targets
    assert [target for target in sorted(targets) if not re.search(rf"^{target}:", makefile, flags=re.MULTILINE)] == []


def test_every_command_exists() -> None:
    quoted = re.findall(r"`([^`\n]+)`", README)
    commands = {found for text in quoted for found in re.findall(r"^oncurve ([a-z]+)", text)}
    assert {"train", "resume", "explain", "check", "eval", "report", "verify", "sft"} <= commands
    assert commands <= set(app)


def test_the_settings_example_is_valid(tmp_path: Path) -> None:
    (block,) = [text for language, text in BLOCKS if language == "toml"]
    config = RunConfig.model_validate(tomllib.loads(block))
    assert config.tasks.is_file
    assert list(config.reward.components) == ["correct", "brevity"]


@pytest.mark.parametrize("words", re.findall(r"oncurve train ((?:--[\w.]+ \S+ ?)+)`", README))
def test_settings_on_the_command_line_are_settings(words: str) -> None:
    load_config(None, words.split())


def test_the_formula_shown_is_the_one_a_run_prints() -> None:
    (block,) = [text for _, text in BLOCKS if text.startswith("minimise")]
    config = load_config(None)
    sampling = config.rollout.sampling
    printed = str(
        describe_objective(
            config.objective,
            group_size=config.rollout.group_size,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
        )
    )
    for line in block.splitlines():
        assert line.strip() in printed or line.strip() == "..."


@pytest.mark.parametrize(
    "document", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")], ids=str
)
def test_every_link_leads_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (document.parent / link).exists()] == []
