"""What an audit found, for people, programs and exit codes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from oncurve.verify.attacks import Attack
from oncurve.verify.attacks.cheap import last_turn
from oncurve.verify.audit.settings import AuditSettings
from oncurve.verify.audit.targets import Answer
from oncurve.verify.audit.together import Together


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One completion that was judged unjustly, word for word."""

    id: str
    family: str
    kind: str
    prompt: str
    gold: str
    completion: str
    reward: float
    share: float
    """0 is what wrong answers get, 1 what the honest one gets."""
    why: str
    """Why the just verdict is the other one."""
    evidence: str
    """What the reward function says for itself, if anything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PaidRecipe:
    """A cheap recipe that earns something on average."""

    recipe: str
    completion: str
    share: float


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """The account of one audit. Fractions are of the completions that had a verdict, asked one by one."""

    target: str
    wrapper: str
    """How answers were stated: the form of the gold that was paid best."""
    floor: float
    """The reward that counts as share 0: of a typical wrong completion, at most 0."""
    full: float
    """The reward that counts as share 1: the best that a gold got."""
    is_full_assumed: bool
    """No gold was paid, and ``full`` is what an honest answer should get: 1 above the floor."""
    num_right: int
    """Right completions with a verdict."""
    num_wrong: int
    """Wrong completions with a verdict."""
    false_accepts: tuple[Finding, ...]
    false_refusals: tuple[Finding, ...]
    no_verdicts: dict[str, int]
    """By cause."""
    no_verdict_examples: dict[str, str]
    """The first evidence of each cause."""
    num_mutants: int
    mutants_passed: tuple[Finding, ...]
    recipes: tuple[PaidRecipe, ...]
    """Cheap recipes that earn more than a fifth on average."""
    together: Together
    """Whether company changes a reward."""
    counts: dict[str, int]
    """Completions asked, by family."""
    notes: tuple[str, ...]
    settings: AuditSettings

    @property
    def num_asked(self) -> int:
        return self.num_right + self.num_wrong + sum(self.no_verdicts.values()) + self.num_mutants

    @property
    def faults(self) -> list[str]:
        """The limits that are exceeded, and rewards that company changes; a sentence each."""
        limits, mutants = self.settings, len(self.mutants_passed)
        refused = _share(len(self.false_refusals), self.num_right)
        unscored = _share(sum(self.no_verdicts.values()), self.num_asked - self.num_mutants)
        passed = _share(mutants, self.num_mutants)
        checks = [
            (
                len(self.false_accepts) > limits.max_false_accepts,
                f"{len(self.false_accepts)} of {self.num_wrong} wrong completions are paid, limit "
                f"{limits.max_false_accepts}",
            ),
            (
                refused > limits.max_false_refusal_frac,
                f"{len(self.false_refusals)} of {self.num_right} right completions are refused, limit "
                f"{limits.max_false_refusal_frac:.0%}",
            ),
            (
                unscored > limits.max_no_verdict_frac,
                f"{sum(self.no_verdicts.values())} of {self.num_asked - self.num_mutants} completions have no verdict, "
                f"limit {limits.max_no_verdict_frac:.0%}",
            ),
            (
                passed > limits.max_mutants_passed_frac,
                f"{mutants} of {self.num_mutants} mutants of reference solutions pass, limit "
                f"{limits.max_mutants_passed_frac:.0%}: the tests are weak",
            ),
            (
                bool(self.no_verdicts) and self.num_right + self.num_wrong == 0,
                "no completion had a verdict: nothing is known of this function",
            ),
        ]
        return [*(text for is_exceeded, text in checks if is_exceeded), *self.together.faults]

    @property
    def passed(self) -> bool:
        """True when there is no fault."""
        return not self.faults

    def as_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        found = {name: value for name, value in asdict(self).items() if name != "settings"}
        limits = self.settings.model_dump(mode="json")
        return {"passed": self.passed, "faults": self.faults, "num_asked": self.num_asked, **found, "limits": limits}


def finding(attack: Attack, answer: Answer, reward: float, share: float) -> Finding:
    """An attack and its unjust answer."""
    return Finding(
        id=attack.id,
        family=attack.family,
        kind=attack.kind,
        prompt=last_turn(attack.item.task.prompt),
        gold=attack.item.task.gold,
        completion=attack.item.text,
        reward=reward,
        share=share,
        why=attack.why,
        evidence=answer.evidence,
    )


def by_kind(findings: Sequence[Finding]) -> list[tuple[str, str, int]]:
    """(family, kind, how many), the most frequent first."""
    counted = Counter((one.family, one.kind) for one in findings)
    return [(family, kind, count) for (family, kind), count in counted.most_common()]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
