"""What became of the programs of a rollout, by cause: for the metrics of a run."""

from collections import Counter
from collections.abc import Sequence

from oncurve.types import Group, Status, Verdict
from oncurve.verify.code.verifier import CodeVerifier
from oncurve.verify.items import Item, Verifier
from oncurve.verify.scorer import Scorer, TaskVerifier

CAUSES = (
    *("no program", "syntax error", "error on load", "no entry point", "wrong answer", "raised", "no plain data"),
    *("ended early", "time-out", "memory", "too many processes", "too much output", "crash", "compile error"),
    *("test failed", "no answer"),
)
"""Heads of the evidence of a program that failed."""


class ProgramCounter:
    """Counts the programs that the primary component of a reward judges.

    Args:
        scorer: the run's.
    """

    def __init__(self, scorer: Scorer) -> None:
        self._primary: Verifier = scorer.primary

    def mark(self) -> None:
        """From here on programs are noted as they are run, until ``metrics``."""
        verifier = self._verifier_of(CodeVerifier.name)
        if verifier is not None:
            verifier.sandboxed = set()

    def metrics(self, groups: Sequence[Group]) -> dict[str, float]:
        """Figures of a rollout by metric name; empty when no completion of it is a program.

        ``code/distinct``, different programs with their tests; ``code/sandboxed``, how many of different ones the
        sandbox was seen to run since ``mark``: the same number, unless a program was not run. By completion:
        ``code/passed``, ``code/no_verdict`` and, of those that failed, each cause that occurred (``code/time_out``).
        """
        items: list[Item] = []
        verdicts: list[Verdict] = []
        for group in groups:
            if self._verifier_of(group.task.verifier) is not None:
                items += [Item.of(group.task, done) for done in group.completions]
                verdicts += group.verdicts
        verifier = self._verifier_of(items[0].task.verifier) if items else None
        if verifier is None:
            return {}
        sandboxed, verifier.sandboxed = verifier.sandboxed or set(), None
        causes = Counter(cause_of(verdict) for verdict in verdicts)
        counts = {"passed": causes.pop("passed", 0), "no verdict": causes.pop("no verdict", 0), **causes}
        return {
            "code/distinct": float(verifier.num_distinct(items)),
            "code/sandboxed": float(len(sandboxed)),
            **{f"code/{_metric_name(cause)}": float(count) for cause, count in sorted(counts.items())},
        }

    def _verifier_of(self, name: str) -> CodeVerifier | None:
        return code_verifier(self._primary, name)


def code_verifier(primary: Verifier, name: str) -> CodeVerifier | None:
    """The verifier of programs that judges tasks which name the verifier ``name``; None where another kind does."""
    if isinstance(primary, TaskVerifier) and name == CodeVerifier.name:
        primary = primary.verifier_of(name)
    return primary if isinstance(primary, CodeVerifier) else None


def cause_of(verdict: Verdict) -> str:
    """``passed``, ``no verdict``, one of ``CAUSES``, or ``other``."""
    if verdict.status is Status.CORRECT:
        return "passed"
    if verdict.status is Status.NO_VERDICT:
        return "no verdict"
    head = verdict.evidence.partition(":")[0]
    return head if head in CAUSES else "other"


def _metric_name(cause: str) -> str:
    return cause.replace(" ", "_").replace("-", "_")
