"""The command that compares whole runs."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from oncurve.cli.interrupt import SAME_COMMAND, Interrupt
from oncurve.config import ComparisonPlan, load_comparison
from oncurve.report.arms import READING, ArmsComparison, arms_table, lead_sentences
from oncurve.train.arms import RunProgress, is_finished, run_arms
from oncurve.train.arms_result import compare_arms


def compare_config(path: Path, overrides: Sequence[str]) -> tuple[ArmsComparison | None, Path]:
    """Make the runs of a comparison that are missing, telling on stderr how far they are.

    Returns:
        The result, None when Ctrl-C came before all runs were done; and the folder of the runs.
    """
    plan = load_comparison(path, overrides)
    _say(f"{len(plan.runs)} runs in {plan.config.output}, {plan.config.tokens:,} sampled tokens each")
    with Interrupt(SAME_COMMAND) as is_interrupted:
        for progress in run_arms(plan.runs, should_stop=is_interrupted):
            _say(_line(progress, plan))
    if not all(is_finished(run) for run in plan.runs):
        _say(f"stopped; {SAME_COMMAND}")
        return None, plan.config.output
    return compare_arms(plan), plan.config.output


def show_arms(comparison: ArmsComparison) -> None:
    """Print the table, as wide as the terminal; into a file or a pipe, as wide as it is."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 44 + 26 * len(comparison.arms)
    console.print(arms_table(comparison))
    for text in (*lead_sentences(comparison), READING):
        console.print(f"\n{text}", markup=False, soft_wrap=True)


def _line(progress: RunProgress, plan: ComparisonPlan) -> str:
    place = plan.runs.index(progress.run) + 1
    parts = [time.strftime("%H:%M:%S"), f"{place}/{len(plan.runs)}", progress.run.name, progress.state]
    if progress.steps:
        parts.append(f"after {progress.steps} steps, {progress.tokens / plan.config.tokens:.0%} of the tokens")
    if progress.greedy is not None and progress.run.arm in plan.config.arms:
        parts.append(f"held out {progress.greedy:.1%} at step {progress.examined}")
    return "  ".join(parts)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
