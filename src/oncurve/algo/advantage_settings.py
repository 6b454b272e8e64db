"""Which estimator turns rewards into advantages, and its numbers."""

from typing import Literal, Self

from pydantic import Field, model_validator

from oncurve.types import Settings

Estimator = Literal[
    "group_zscore",
    "group_mean",
    "rloo",
    "length_weighted",
    "batch_std",
    "batch_loo",
    "shrink",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "maxrl",
    "ngrpo",
    "pass_at_k",
    "pkpo",
    "top_gap",
    "gdpo",
    "difficulty",
    "gae",
    "raft",
]

TOKEN_LEVEL = frozenset({"gae", "reinforce_pp"})
"""Estimators whose advantage differs from token to token."""

NEEDS_NO_GROUP = frozenset({"gae", "reinforce_pp", "batch_loo", "raft"})
"""Estimators that can grade a completion without others of its prompt."""

BINARY = frozenset({"maxrl", "pass_at_k"})
"""Estimators that are defined for rewards of exactly 0 and 1."""

_SIGNAL_IN_EQUAL_GROUPS = frozenset(
    {"batch_loo", "shrink", "reinforce_pp", "reinforce_pp_baseline", "ngrpo", "gae", "raft"}
)
"""Estimators under which a group whose rewards are all equal still teaches something, on purpose."""

_LOOKS_AT_OTHER_GROUPS = frozenset(
    {"batch_std", "batch_loo", "shrink", "reinforce_pp", "reinforce_pp_baseline", "gdpo"}
)
"""Estimators whose baseline or scale comes from the whole rollout."""

_NEVER_WHITENED = {
    "raft": "every advantage is 1, and minus its mean it is 0",
    "reinforce_pp": "it is whitened by definition",
    "reinforce_pp_baseline": "it is whitened by definition",
}

_DIVIDES_BY_STD = frozenset({"group_zscore", "batch_std", "ngrpo", "top_gap", "gdpo", "difficulty"})

_USERS: dict[str, frozenset[str]] = {
    "ddof": _DIVIDES_BY_STD | {"reinforce_pp", "reinforce_pp_baseline"},
    "std_eps": _DIVIDES_BY_STD | {"maxrl", "pass_at_k"},
    "k": frozenset({"pass_at_k", "pkpo"}),
    "leave_one_out": frozenset({"pkpo"}),
    "shrinkage": frozenset({"shrink"}),
    "std_of": frozenset({"batch_std"}),
    "max_reward": frozenset({"ngrpo"}),
    "num_virtual": frozenset({"ngrpo"}),
    "gamma": TOKEN_LEVEL,
    "lam": frozenset({"gae"}),
    "lam_alpha": frozenset({"gae"}),
    "threshold": frozenset({"raft"}),
    "best_of_group": frozenset({"raft"}),
    "max_per_group": frozenset({"raft"}),
    "difficulty": frozenset({"difficulty"}),
}


class DifficultySettings(Settings):
    """w(x) = weight_min + (weight_max - weight_min) / (1 + exp(slope * (x - midpoint))), x a pass rate."""

    weight_min: float = Field(0.4, ge=0)
    """Weight of a prompt that is always solved."""

    weight_max: float = Field(1.5, gt=0)
    """Weight of a prompt that is never solved."""

    midpoint: float = Field(0.75, ge=0, le=1)
    """Pass rate at which the weight is half-way."""

    slope: float = Field(10.0, ge=0)
    """How sharply the weight falls there."""


class AdvantageSettings(Settings):
    """How the rewards of a group become advantages. A number that the estimator does not use is refused."""

    estimator: Estimator = "group_zscore"
    """``group_zscore`` divides by the group's std (GRPO), ``group_mean`` does not (Dr. GRPO), ``rloo`` leaves the
    completion itself out of its baseline; the others stand in docs/concepts/advantage.md."""

    ddof: Literal[0, 1] = 0
    """Every std divides by its count - ddof, also that of ``whiten``: 0 is the population std, 1 the sample std (the
    default of torch)."""

    std_eps: float = Field(1e-6, ge=0)
    """Added to the std (maxrl: to the mean; pass_at_k: to the std of the best of k), in units of reward."""

    tolerance: float = Field(1e-6, ge=0)
    """A group whose rewards span at most this is all-equal: its advantages are exactly 0. Also decides which groups
    ``zero_variance`` acts on."""

    k: int = Field(4, ge=1)
    """pass_at_k, pkpo: attempts whose best counts; at most the group size."""

    leave_one_out: bool = True
    """pkpo: subtract the best of the other k - 1 from the best of the k."""

    shrinkage: float = Field(0.25, ge=0, le=1)
    """shrink: weight of the other prompts' means in the baseline."""

    std_of: Literal["rewards", "centered"] = "rewards"
    """batch_std: the std of the rewards, which includes the spread between prompts, or of rewards minus their group's
    mean."""

    max_reward: float = 1.0
    """ngrpo: reward of the virtual completions."""

    num_virtual: int = Field(1, ge=1)
    """ngrpo: virtual completions a group, in its statistics only."""

    gamma: float = Field(1.0, gt=0, le=1)
    """gae, reinforce_pp: discount a token."""

    lam: float = Field(1.0, ge=0, le=1)
    """gae: 1 uses the whole return, 0 one step of the critic."""

    lam_alpha: float | None = Field(None, gt=0)
    """gae: lambda of a completion of L tokens becomes 1 - 1 / (lam_alpha * L), and the critic learns the whole return
    (VAPO); None uses ``lam`` for both."""

    threshold: float = 1.0
    """raft: completions with at least this reward are imitated."""

    best_of_group: bool = False
    """raft: imitate only the best completion of each group, the first of several, if it reaches the threshold."""

    max_per_group: int | None = Field(None, ge=1)
    """raft: imitate at most so many of a group, or easy prompts would dominate. None: all."""

    difficulty: DifficultySettings = DifficultySettings()
    """difficulty: how the weight of a prompt follows from its pass rate."""

    whiten: bool = False
    """Subtract the mean and divide by the std of the advantages over all trained tokens of the rollout."""

    clip: float | None = Field(None, gt=0)
    """Limit advantages to [-clip, clip], last of all. None: off."""

    @model_validator(mode="after")
    def _every_number_is_used(self) -> Self:
        for name in idle_numbers(self.estimator, whiten=self.whiten):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name} does nothing with the estimator {self.estimator}: it belongs to "
                    f"{', '.join(sorted(_USERS[name]))}. Remove it, or choose that estimator."
                )
        return self

    @model_validator(mode="after")
    def _numbers_fit_each_other(self) -> Self:
        if self.lam_alpha is not None and self.lam != 1.0:
            raise ValueError("lam and lam_alpha both set lambda: keep one of them")
        if self.estimator == "pkpo" and self.leave_one_out and self.k < 2:
            raise ValueError(
                f"pkpo leaves one of the k attempts out, and k is {self.k}: nothing remains. Set k to 2 or more, or "
                "leave_one_out to false."
            )
        if self.best_of_group and self.max_per_group is not None:
            raise ValueError("max_per_group does nothing with best_of_group, which keeps one a group: remove it")
        if self.whiten and self.estimator in _NEVER_WHITENED:
            raise ValueError(
                f"whiten with the estimator {self.estimator} makes no sense: {_NEVER_WHITENED[self.estimator]}. "
                "Remove it."
            )
        return self

    @property
    def is_token_level(self) -> bool:
        """True when tokens of one completion get different advantages."""
        return self.estimator in TOKEN_LEVEL

    @property
    def needs_group(self) -> bool:
        """True when a completion is graded against others of its prompt: groups of one are refused."""
        return self.estimator not in NEEDS_NO_GROUP

    @property
    def couples_groups(self) -> bool:
        """True when the rewards of one group change the advantages of another."""
        return self.estimator in _LOOKS_AT_OTHER_GROUPS or self.whiten

    @property
    def learns_from_equal_groups(self) -> bool:
        """True when a group whose rewards are all equal still teaches something, so that it must not be left out."""
        is_plain_pkpo = self.estimator == "pkpo" and not self.leave_one_out
        return self.estimator in _SIGNAL_IN_EQUAL_GROUPS or is_plain_pkpo


def idle_numbers(estimator: str, *, whiten: bool) -> list[str]:
    """Names of the settings of ``AdvantageSettings`` that do nothing under an estimator."""
    idle = [name for name, users in _USERS.items() if estimator not in users]
    return [name for name in idle if not (whiten and name == "ddof")]
