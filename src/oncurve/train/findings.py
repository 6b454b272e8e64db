"""What a rollout shows that a user should know before it is trained on. Pure functions of the groups."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from oncurve.rollout import Rollout, is_informative
from oncurve.types import Status, Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that was noticed."""

    kind: str
    message: str
    counts: dict[str, int] = field(default_factory=dict)


def inspect_rollout(rollout: Rollout, *, primary: str, tolerance: float) -> list[Finding]:
    """Completions without a verdict by cause, components without any value, a step without any signal."""
    verdicts = [verdict for group in rollout.all_groups for verdict in group.verdicts]
    found = [*_without_verdict(verdicts), *_without_value(verdicts, primary)]
    groups = rollout.all_groups
    if not any(is_informative(group, primary=primary, tolerance=tolerance) for group in groups):
        right = sum(all(verdict.status is Status.CORRECT for verdict in group.verdicts) for group in groups)
        found.append(
            Finding(
                kind="no_signal",
                message=f"no group has both right and wrong answers ({right} of {len(groups)} all right): {primary} "
                "teaches nothing in this step. Look at the report's rollouts, and at the prompts with `oncurve check`.",
            )
        )
    return found


def share_without_verdict(rollout: Rollout) -> float:
    """Share of the completions that have no verdict."""
    statuses = [verdict.status for group in rollout.all_groups for verdict in group.verdicts]
    return statuses.count(Status.NO_VERDICT) / len(statuses)


def _without_verdict(verdicts: Sequence[Verdict]) -> list[Finding]:
    unscored = [verdict for verdict in verdicts if verdict.status is Status.NO_VERDICT]
    if not unscored:
        return []
    causes = dict(Counter(str(verdict.cause) for verdict in unscored).most_common())
    listed = ", ".join(f"{cause} {count}" for cause, count in causes.items())
    message = (
        f"{len(unscored)} of {len(verdicts)} completions have no verdict ({listed}). First: {unscored[0].evidence}"
    )
    return [Finding(kind="no_verdict", message=message, counts=causes)]


def _without_value(verdicts: Sequence[Verdict], primary: str) -> list[Finding]:
    """Components that gave no value at all: a function that fails on every call looks just like that."""
    scored = [verdict for verdict in verdicts if verdict.status is not Status.NO_VERDICT]
    names = [name for name in (scored[0].components if scored else ()) if name != primary]
    return [
        Finding(
            kind="component_without_value",
            message=f"component {name} gave no value for any of {len(scored)} completions: it adds nothing to the "
            f"reward. First: {scored[0].evidence}",
        )
        for name in names
        if all(verdict.components[name] is None for verdict in scored)
    ]
