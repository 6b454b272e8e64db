"""Attack a reward function before a policy does."""

from oncurve.verify.audit.result import AuditResult, Finding, PaidRecipe, by_kind
from oncurve.verify.audit.rows import default_tasks
from oncurve.verify.audit.run import audit
from oncurve.verify.audit.settings import AuditSettings
from oncurve.verify.audit.targets import Answer, FunctionTarget, RewardTarget, ScorerTarget, Target

__all__ = [
    "Answer",
    "AuditResult",
    "AuditSettings",
    "Finding",
    "FunctionTarget",
    "PaidRecipe",
    "RewardTarget",
    "ScorerTarget",
    "Target",
    "audit",
    "by_kind",
    "default_tasks",
]
