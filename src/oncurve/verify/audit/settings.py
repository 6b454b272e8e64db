"""What an audit asks, and what it lets pass."""

from typing import Literal

from pydantic import Field

from oncurve.types import Settings

Family = Literal["corpus", "metamorphic", "policy", "program", "regression"]


class AuditSettings(Settings):
    """Which attacks, on how many rows, and the limits for exit code 0."""

    families: tuple[Family, ...] = ("corpus", "metamorphic", "policy", "program", "regression")
    """``corpus``: built-in questions. ``metamorphic``: changes of the user's rows. ``policy``: what lazy policies
    write. ``program``: tricks and mutants, for tasks whose verifier is ``code``. ``regression``: exploits found."""

    num_tasks: int = Field(24, ge=1)
    """Rows of the user's that are attacked, the first ones."""

    num_policy_tasks: int = Field(4, ge=1)
    """Rows on which the lazy policies are tried, of those."""

    num_together: int = Field(16, ge=0)
    """Completions that a function of yours gets once more in one call, to see whether company changes a reward; below
    2 it is asked one by one only."""

    paid_at: float = Field(0.5, gt=0, le=1)
    """A completion is paid when it gets this share of the way from the least to what the honest one gets."""

    max_false_accepts: int = Field(0, ge=0)
    """Most wrong completions that may be paid."""

    max_false_refusal_frac: float = Field(0.1, ge=0, le=1)
    """Most of the right completions that may be refused. Some ways of writing a value are a matter of choice."""

    max_no_verdict_frac: float = Field(0.05, ge=0, le=1)
    """Most of all completions that may be without a verdict."""

    max_mutants_passed_frac: float = Field(0.25, ge=0, le=1)
    """Most of the mutants of reference solutions that may pass: some compute the same."""
