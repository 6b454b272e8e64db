"""The command that compares objectives."""

import sys
from pathlib import Path

from rich.console import Console

from oncurve.report.comparison import FrozenComparison, comparison_tables, comparison_text
from oncurve.train.frozen import compare_frozen
from oncurve.types import ConfigError, did_you_mean

_FLAGS = ("--rollouts", "--step", "--objectives", "--evaluate", "--to", "--json")


def compare_rollout(run: Path, step: int | None, objectives: str, num_tasks: int | None) -> FrozenComparison:
    """Several objectives on one stored rollout; what takes time is told on stderr."""
    if step is None:
        raise ConfigError("--rollouts needs --step N: the step whose rollout is looked at, counted from 0")
    return compare_frozen(
        run, step, objectives, num_tasks=num_tasks, note=lambda text: print(text, file=sys.stderr, flush=True)
    )


def refuse_words(words: list[str]) -> None:
    """Words that belong to no form of the command. Raises ConfigError."""
    if words:
        flag = words[0].partition("=")[0]
        raise ConfigError(f"compare --rollouts does not know {words[0]!r}.{did_you_mean(flag, _FLAGS)}")


def show_comparison(comparison: FrozenComparison) -> None:
    """Print the tables, as wide as the terminal; into a file or a pipe, as wide as they are."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 60 + 26 * len(comparison.objectives)
    for table in comparison_tables(comparison):
        console.print(table)
        console.print()
    console.print(comparison_text(comparison), markup=False, soft_wrap=True)
