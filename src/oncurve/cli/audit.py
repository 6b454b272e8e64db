"""``oncurve audit``: attack a reward function before a policy does."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape

from oncurve.cli.early import refuse_early
from oncurve.tasks import TaskSettings, load_tasks
from oncurve.types import ConfigError, Task, did_you_mean
from oncurve.verify.audit import AuditResult, AuditSettings, Finding, FunctionTarget, RewardTarget, audit, by_kind
from oncurve.verify.audit.settings import Family
from oncurve.verify.regressions import RegressionCase, read_cases

MAX_SHOWN = 30
MAX_CHARS = 240


def audit_target(
    target: str | None,
    overrides: Sequence[str],
    *,
    tasks: Path | None,
    settings: AuditSettings,
    exploits: Path,
    timeout_s: float,
) -> AuditResult:
    """Audit a config's reward, or a function.

    Args:
        target: a .toml file, ``file.py:function``, ``module:Rubric``; None takes the embedded default.
        overrides: settings such as ``--reward.components.format.weight 2``; of a config only.
        tasks: rows of the user's, for a function.
        settings: attacks and limits.
        exploits: folder of the exploits that were found before.
        timeout_s: wall seconds for one call of a function.

    Raises:
        ConfigError, DataError: the target, the rows or a case cannot be used.
    """
    cases = read_cases(exploits)
    if target is None or ":" not in target:
        return _audit_config(None if target is None else Path(target), overrides, tasks, settings, cases)
    if overrides:
        raise ConfigError(f"{overrides[0]}: settings belong to a config file, and {target} is a function")
    rows = [] if tasks is None else _rows(TaskSettings.model_validate({"path": tasks}))
    with FunctionTarget(target, timeout_s=timeout_s) as function:
        return audit(function, rows, settings, cases)


def read_audit_settings(*, families: str, **limits: float) -> AuditSettings:
    """The settings of what was typed.

    Raises:
        ConfigError: a family is unknown, or a limit is out of range.
    """
    known = get_args(Family)
    named = [name.strip() for name in families.split(",") if name.strip()]
    for name in named:
        if name not in known:
            raise ConfigError(
                f"--families: unknown family {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}"
            )
    try:
        return AuditSettings.model_validate(limits | ({"families": tuple(named)} if named else {}))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{first['loc'][0]}: {first['msg']}, got {first['input']!r}") from None


def _audit_config(
    path: Path | None,
    overrides: Sequence[str],
    tasks: Path | None,
    settings: AuditSettings,
    cases: Sequence[RegressionCase],
) -> AuditResult:
    refuse_early(path, overrides)
    from oncurve.config import load_config  # needs the training half: a config names a model
    from oncurve.rollout.reward_model import NETWORK_VERIFIERS

    config = load_config(path, overrides)
    if tasks is None:
        rows = list(load_tasks(config.tasks, seed=config.seed).held_out)
    else:
        rows = _rows(TaskSettings.model_validate({"path": tasks}))
    name = "the embedded default" if path is None else str(path)
    with RewardTarget(config.reward, name=name, task=rows[0], builders=NETWORK_VERIFIERS) as reward:
        return audit(reward, rows, settings, cases)


def _rows(settings: TaskSettings) -> list[Task]:
    """Every row of a file: nothing is trained, so nothing is held out."""
    found = load_tasks(settings, seed=0)
    return [*found.train, *found.held_out]


def show_audit(found: AuditResult) -> None:
    """Print the account of an audit."""
    console = Console(soft_wrap=True)
    asked = ", ".join(f"{family} {count}" for family, count in found.counts.items())
    console.print(f"[bold]{escape(found.target)}[/]: {found.num_asked} completions asked ({asked})")
    console.print(
        f"answers stated in the form: {escape(found.wrapper)}; shares count from a reward of {found.floor:g} to "
        f"{found.full:g}, {_full_is(found)}; paid from {found.settings.paid_at:.0%} of the way"
    )
    for note in found.notes:
        console.print(f"note: {escape(note)}")
    _print_findings(console, "false accepts: wrong and paid", found.false_accepts, found.num_wrong)
    _print_findings(console, "false refusals: right and not paid", found.false_refusals, found.num_right)
    if found.num_mutants:
        _print_findings(console, "mutants of reference solutions that pass", found.mutants_passed, found.num_mutants)
    _print_no_verdicts(console, found)
    if found.recipes:
        best = found.recipes[0]
        console.print(
            f"\nbest cheap recipe: {escape(best.recipe)}, {best.share:.0%} of the honest reward on average: "
            f"{escape(_quoted(best.completion))}"
        )
    if found.together.num_asked and not (found.together.faults or found.together.notes):
        console.print(f"\nin company: {found.together.num_asked} completions got the reward that they get alone")
    console.print("\n[green]passed[/]: no limit is exceeded" if found.passed else "\n[red bold]not passed[/]")
    for fault in found.faults:
        console.print(f"  {escape(fault)}")


def _full_is(found: AuditResult) -> str:
    return "taken for the honest one since no gold is paid" if found.is_full_assumed else "the best that a gold gets"


def _print_findings(console: Console, title: str, findings: Sequence[Finding], asked: int) -> None:
    console.print(f"\n[bold]{title}[/]: {len(findings)} of {asked}")
    if not findings:
        return
    console.print("  times  share  kind, gold, completion (the first of its kind)")
    kinds = by_kind(findings)
    for family, kind, count in kinds[:MAX_SHOWN]:
        first = next(one for one in findings if (one.family, one.kind) == (family, kind))
        console.print(f"  {count:5}  {first.share:5.2f}  {escape(f'{family}: {kind}')}", highlight=False)
        console.print(
            f"                {escape(_quoted(first.gold))}  {escape(_quoted(first.completion))}", highlight=False
        )
    if len(kinds) > MAX_SHOWN:
        console.print(f"  and {len(kinds) - MAX_SHOWN} more kinds; --json has every string")


def _print_no_verdicts(console: Console, found: AuditResult) -> None:
    if not found.no_verdicts:
        return
    console.print(f"\n[bold]no verdict[/]: {sum(found.no_verdicts.values())}")
    for cause, count in found.no_verdicts.items():
        console.print(f"  {escape(cause)} {count}: {escape(found.no_verdict_examples.get(cause, ''))}")


def _quoted(text: str) -> str:
    shown = repr(text[:MAX_CHARS])
    return shown if len(text) <= MAX_CHARS else f"{shown}… ({len(text)} characters)"
