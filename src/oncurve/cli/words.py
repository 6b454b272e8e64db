"""What stands behind a command: at most one path, then settings such as ``--learner.lr 1e-4``."""

import tomllib
from collections.abc import Sequence
from pathlib import Path


def split_words(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Separate the leading path from the settings; settings are checked where they are applied."""
    if words and not words[0].startswith("-"):
        return Path(words[0]), list(words[1:])
    return None, list(words)


def is_laboratory_run(run: Path) -> bool:
    """True for a folder that `oncurve icl train` made; anything that cannot be read is left to those who complain."""
    try:
        return "functions" in tomllib.loads((run / "config.toml").read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return False
