"""The adversarial validation set: what share of hostile completions the reward of a run pays.

Nothing of it is ever sampled or learned from, so it measures the reward and not the policy: it changes when a reward
function, its options or its machine does, and it is there to be compared with the accuracy beside it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oncurve.types import ConfigError, Task
from oncurve.verify import Scorer
from oncurve.verify.audit import AuditResult, AuditSettings, ScorerTarget, audit
from oncurve.verify.audit.settings import Family
from oncurve.verify.regressions import read_cases

BUILT_IN = "builtin"
MAX_EXAMPLES = 3


def examine_reward(scorer: Scorer, held_out: Sequence[Task], source: str) -> dict[str, Any] | None:
    """Score the adversarial set with the reward of a run.

    Args:
        scorer: the run's.
        held_out: tasks that are never trained on; the built-in set is made of the first 8 of them.
        source: ``builtin`` (changes of held-out golds, cheap completions, for code also tricks), a file or folder of
            cases as ``oncurve review`` writes them, or an empty text for none.

    Returns:
        ``source``; ``num_hostile`` and ``num_paid``; ``paid_frac`` of those with a verdict; ``num_right`` and
        ``refused_frac`` of the right ones beside them; ``no_verdict_frac`` of all; the first ``examples`` of what was
        paid. None for an empty source.

    Raises:
        ConfigError: the file holds no case.
        DataError: a line of it is none.
    """
    if not source:
        return None
    target = ScorerTarget(scorer, name=source, task=held_out[0])
    if source != BUILT_IN:
        cases = read_cases(Path(source))
        if not cases:
            raise ConfigError(f'evaluation.adversarial: {source} holds no case. Name a file, or "{BUILT_IN}".')
        return _figures(audit(target, held_out, AuditSettings(families=("regression",)), cases), source)
    families: tuple[Family, ...] = ("metamorphic", "policy", "program")
    return _figures(audit(target, held_out, AuditSettings(families=families, num_tasks=8, num_policy_tasks=2)), source)


def reward_metrics(found: Mapping[str, Any] | None) -> dict[str, float]:
    """The shares of an examination of the reward as metrics, ``adversarial/paid_frac`` first; without one, nothing."""
    names = ("paid_frac", "refused_frac", "no_verdict_frac")
    return {f"adversarial/{name}": float(found[name]) for name in names if found and found[name] is not None}


def _figures(found: AuditResult, source: str) -> dict[str, Any]:
    num_asked = found.num_asked - found.num_mutants
    paid = found.false_accepts
    return {
        "source": source,
        "num_hostile": found.num_wrong,
        "num_paid": len(paid),
        "paid_frac": len(paid) / found.num_wrong if found.num_wrong else None,
        "num_right": found.num_right,
        "refused_frac": len(found.false_refusals) / found.num_right if found.num_right else None,
        "no_verdict_frac": sum(found.no_verdicts.values()) / num_asked if num_asked else 0.0,
        "examples": [{"kind": one.kind, "gold": one.gold, "completion": one.completion} for one in paid[:MAX_EXAMPLES]],
    }
