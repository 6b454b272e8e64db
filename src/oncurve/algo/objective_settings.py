"""What one optimiser step minimises, as data that refuses nonsense."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from oncurve.algo.advantage_settings import AdvantageSettings, idle_numbers
from oncurve.algo.aggregation import Aggregation
from oncurve.algo.kl import KlPlacement
from oncurve.algo.presets import preset_settings
from oncurve.types import Settings

Loss = Literal["clip", "gspo", "gspo_token", "luspo", "gmpo", "cispo", "sapo", "vespo", "topr", "reinforce"]

KlChoice = Literal["k1", "k2", "k3", "k3_weighted"]

CLIPPED = frozenset({"clip", "gspo", "gspo_token", "luspo", "gmpo"})
"""Losses with a band of ratios, set by clip_low and clip_high."""

OF_COMPLETIONS = frozenset({"gspo", "gspo_token", "luspo", "gmpo", "vespo", "topr"})
"""Losses whose ratio belongs to the whole completion."""

_AGGREGATIONS: dict[str, tuple[tuple[Aggregation, ...], str]] = {
    "gspo": (("seq-mean-token-mean", "prompt-mean"), "the term is the same for every token of a completion"),
    "gspo_token": (("seq-mean-token-mean", "prompt-mean"), "its ratio is the geometric mean over the completion"),
    "gmpo": (("seq-mean-token-mean", "prompt-mean"), "the term is the same for every token of a completion"),
    "luspo": (("seq-mean-token-sum",), "LUSPO is GSPO with each term times its length"),
}

_USERS: dict[str, frozenset[str]] = {
    "clip_low": CLIPPED,
    "clip_high": CLIPPED,
    "dual_clip": frozenset({"clip"}),
    "ratio_cap": frozenset({"clip"}),
    "cispo": frozenset({"cispo"}),
    "sapo": frozenset({"sapo"}),
    "vespo": frozenset({"vespo"}),
}

_FILTER_USERS: dict[str, frozenset[str]] = {
    "frac": frozenset({"high_entropy", "clip_cov", "kl_cov"}),
    "low": frozenset({"clip_cov"}),
    "high": frozenset({"clip_cov"}),
    "coef": frozenset({"kl_cov"}),
}

_NOT_WITH_KL_IN_REWARD = {
    "gdpo": "normalises each reward component and adds them up: a KL in the reward would not be among them",
    "maxrl": "needs rewards of exactly 0 and 1, which a KL in the reward takes away",
    "pass_at_k": "needs rewards of exactly 0 and 1, which a KL in the reward takes away",
    "difficulty": "tells right from wrong by the sign of the reward, which a KL in the reward can turn",
    "raft": "compares rewards with a threshold, which a KL in the reward would let hardly any of them reach",
    "ngrpo": "divides by the std of the group, and in an all-right group a KL in the reward is the only spread",
}


class CispoSettings(Settings):
    """Absolute bounds of the ratio that weighs each token."""

    ratio_min: float = Field(0.0, ge=0)
    """Smallest weight; 0 for no lower bound."""

    ratio_max: float = Field(5.0, gt=0)
    """Largest weight. A band of 0.28 above 1 is 1.28 here."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.ratio_min >= self.ratio_max:
            raise ValueError(f"ratio_min {self.ratio_min} must be below ratio_max {self.ratio_max}")
        return self


class SapoSettings(Settings):
    """Sharpness of the soft gate."""

    tau_positive: float = Field(1.0, gt=0)
    """For A > 0."""

    tau_negative: float = Field(1.05, gt=0)
    """For A <= 0."""


class VespoSettings(Settings):
    """Weight of a completion: R^power * exp(rate * (1 - R)), R the product of its ratios."""

    power_positive: float = Field(2.0, ge=0)
    """For A >= 0."""

    rate_positive: float = Field(3.0, ge=0)
    """For A >= 0."""

    power_negative: float = Field(3.0, ge=0)
    """For A < 0."""

    rate_negative: float = Field(2.0, ge=0)
    """For A < 0."""


CorrectionMode = Literal["none", "token_truncate", "token_mask", "seq_truncate", "seq_mask", "seq_geo_mask"]


class CorrectionSettings(Settings):
    """Weight of the policy term for tokens that another implementation, or older weights, have sampled."""

    mode: CorrectionMode = "none"
    """Limit or mask the ratio of trainer to sampler, a token (``token_``) or a completion (``seq_``) at a time."""

    low: float = Field(0.0, ge=0)
    """Smallest weight."""

    high: float = Field(2.0, gt=0)
    """Largest weight."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low {self.low} must be below high {self.high}")
        if self.mode == "none" and (self.low, self.high) != (0.0, 2.0):
            raise ValueError(
                "correction.low and high do nothing without a mode: set objective.correction.mode or remove them"
            )
        return self


class TokenFilterSettings(Settings):
    """Which tokens keep their policy term, by entropy or by covariance of log-prob and advantage."""

    mode: Literal["all", "high_entropy", "clip_cov", "kl_cov"] = "all"
    """``high_entropy`` trains only the most uncertain tokens; ``clip_cov`` drops some tokens that lower the entropy
    most; ``kl_cov`` holds those back with a penalty."""

    frac: float = Field(0.2, gt=0, le=1)
    """Share of the tokens of the step: kept (high_entropy), dropped (clip_cov), penalised (kl_cov)."""

    low: float = 1.0
    """clip_cov: tokens whose covariance lies between low and high may be dropped."""

    high: float = 5.0
    """clip_cov: upper end."""

    coef: float = Field(1.0, ge=0)
    """kl_cov: weight of |logprobs - old_logprobs| on the penalised tokens."""

    @model_validator(mode="after")
    def _every_number_is_used(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low {self.low} must be below high {self.high}")
        for name, modes in _FILTER_USERS.items():
            if self.mode not in modes and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"token_filter.{name} does nothing with mode {self.mode}: it belongs to "
                    f"{', '.join(sorted(modes))}. Remove it, or set objective.token_filter.mode."
                )
        return self


class AdaptiveKlSettings(Settings):
    """After every rollout of n completions kl_coef is multiplied by
    1 + clip(KL / target - 1, -0.2, 0.2) * min(n, horizon) / horizon."""

    target: float = Field(0.1, gt=0)
    """Wanted KL to the reference in nats a token, as ``kl/reference`` measures it."""

    horizon: int = Field(10_000, ge=1)
    """Completions over which the coefficient can change by a fifth."""


class AdaptiveEntropySettings(Settings):
    """The bonus is on while the entropy of the step before is at most the target, and its weight creeps."""

    target: float = Field(0.2, gt=0)
    """In nats a token."""

    step: float = Field(0.005, gt=0)
    """Change of the weight after each optimiser step."""

    coef_max: float = Field(0.01, gt=0)
    """Largest weight; the smallest is 0."""


class ObjectiveSettings(Settings):
    """What one optimiser step minimises. ``oncurve explain`` prints it as a formula."""

    preset: str = ""
    """Name of a documented set of settings (grpo, dr_grpo, dapo, gspo, ppo, trl, verl, ...) that stands under the
    settings given here; empty takes the defaults. docs/concepts/presets.md lists them."""

    advantage: AdvantageSettings = AdvantageSettings()
    """How rewards become advantages."""

    loss: Loss = "clip"
    """``clip`` is the clipped surrogate of PPO and GRPO; the others stand in docs/concepts/objective.md."""

    clip_low: float = Field(0.2, gt=0, le=1)
    """Width of the ratio band below 1: a ratio under 1 - clip_low stops pushing a bad token down."""

    clip_high: float = Field(0.2, gt=0)
    """Width of the ratio band above 1: a ratio over 1 + clip_high stops pushing a good token up."""

    dual_clip: float | None = Field(None, gt=1)
    """For A < 0 the loss of a token is at most dual_clip * |A|. None: off."""

    ratio_cap: float | None = Field(None, gt=1)
    """The unclipped ratio is at most this, above 1 + clip_high. None: off."""

    cispo: CispoSettings = CispoSettings()
    sapo: SapoSettings = SapoSettings()
    vespo: VespoSettings = VespoSettings()

    correction: CorrectionSettings = CorrectionSettings()
    """Weight for the mismatch of sampler and trainer; needs learner.old_logprobs to be recomputed."""

    max_divergence: float | None = Field(None, gt=0)
    """Completions with A < 0 whose mean sampler - policy log-prob exceeds this leave the policy term. None: off."""

    token_filter: TokenFilterSettings = TokenFilterSettings()

    aggregation: Aggregation = "seq-mean-token-mean"
    """How token losses become one number; decides how hard long answers push."""

    kl_coef: float = Field(0.0, ge=0)
    """Weight of the KL to the starting policy; 0 switches the term off."""

    kl_estimator: KlChoice = "k3"
    """Estimator of the KL; the printed formula says what its gradient really is. ``k3_weighted`` is ratio * k3. Does
    nothing while kl_coef is 0."""

    kl_placement: KlPlacement = "loss"
    """``loss`` adds the KL to the token loss, ``reward`` subtracts it from the reward before the baseline. Does nothing
    while kl_coef is 0."""

    kl_adaptive: AdaptiveKlSettings | None = None
    """Steer kl_coef towards a target KL, starting from its value here. None keeps it."""

    entropy_coef: float = Field(0.0, ge=0)
    """Weight of the entropy bonus, a mean over tokens whatever the aggregation; 0 switches it off."""

    entropy_adaptive: AdaptiveEntropySettings | None = None
    """Steer entropy_coef, starting from its value here. None keeps it."""

    zero_variance: Literal["keep", "skip", "resample", "rescale"] = "skip"
    """Groups whose task rewards are all equal: ``keep`` them in the denominators, ``skip`` them, ``resample`` until
    the batch is full or the budget is spent, or keep them and ``rescale`` the loss by B / (B - their completions)."""

    resample_rounds: int = Field(4, ge=1, le=100)
    """Most extra rounds of rollouts a step when zero_variance is ``resample``; what is still missing is skipped."""

    mask_truncated: bool = False
    """True: a truncated completion counts in its group's statistics, but its tokens are not trained."""

    @model_validator(mode="before")
    @classmethod
    def _stand_on_the_preset(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not data.get("preset"):
            return data
        return _without_idle(_merged(preset_settings(data["preset"]), data), data)

    @model_validator(mode="after")
    def _refuse_nonsense(self) -> Self:
        for refusal in (self._refuse_loss, self._refuse_unused, self._refuse_kl, self._refuse_silence):
            refusal()
        return self

    def _refuse_loss(self) -> None:
        allowed, reason = _AGGREGATIONS.get(self.loss, ((self.aggregation,), ""))
        if self.aggregation not in allowed:
            raise ValueError(
                f"loss {self.loss} with aggregation {self.aggregation} is another objective: {reason}. "
                f'Set objective.aggregation = "{allowed[0]}".'
            )
        if self.advantage.is_token_level and self.loss in OF_COMPLETIONS - {"gspo_token"}:
            raise ValueError(
                f"loss {self.loss} has one ratio and one advantage a completion, but {self.advantage.estimator} gives "
                'one a token. Set objective.loss = "gspo_token" or "clip".'
            )
        if self.ratio_cap is not None and self.ratio_cap <= 1 + self.clip_high:
            raise ValueError(
                f"ratio_cap {self.ratio_cap} must be above 1 + clip_high = {1 + self.clip_high:g}: the clip acts first"
            )
        if self.dual_clip is not None and self.ratio_cap is not None:
            raise ValueError("dual_clip and ratio_cap bound the same thing in two ways: keep one of them")

    def _refuse_unused(self) -> None:
        for name, losses in _USERS.items():
            if self.loss not in losses and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name} does nothing with loss {self.loss}: it belongs to {', '.join(sorted(losses))}. Remove it."
                )
        if self.token_filter.mode.endswith("cov") and self.loss != "clip":
            raise ValueError(
                f"token_filter {self.token_filter.mode} acts on clipped tokens, got loss {self.loss}. "
                'Set objective.loss = "clip".'
            )
        if self.entropy_adaptive is not None and self.entropy_coef > self.entropy_adaptive.coef_max:
            raise ValueError(
                f"entropy_coef starts at {self.entropy_coef}, above entropy_adaptive.coef_max "
                f"{self.entropy_adaptive.coef_max}: raise coef_max or lower entropy_coef"
            )

    def _refuse_kl(self) -> None:
        if self.kl_coef == 0:
            if self.kl_adaptive is not None:
                raise ValueError("kl_adaptive multiplies kl_coef, and kl_coef is 0: it would stay 0. Set kl_coef.")
            return
        if self.kl_placement == "loss" and self.kl_estimator == "k1":
            raise ValueError(
                "kl_estimator k1 in the loss only adds noise: on samples of the policy its expected gradient is 0. "
                'Set objective.kl_placement = "reward", or objective.kl_estimator = "k2".'
            )
        if self.kl_placement == "reward":
            self._refuse_kl_in_reward()

    def _refuse_kl_in_reward(self) -> None:
        estimator = self.advantage.estimator
        if self.kl_estimator == "k3_weighted":
            raise ValueError(
                "k3_weighted acts through the gradient of its ratio, and a KL in the reward has no gradient. "
                'Set objective.kl_placement = "loss", or objective.kl_estimator = "k1".'
            )
        if estimator in _NOT_WITH_KL_IN_REWARD:
            raise ValueError(f'{estimator} {_NOT_WITH_KL_IN_REWARD[estimator]}. Set objective.kl_placement = "loss".')
        if self.zero_variance in ("keep", "rescale") and estimator in ("group_zscore", "top_gap"):
            raise ValueError(
                f"a KL in the reward with zero_variance {self.zero_variance} and {estimator} blows the KL of an "
                "all-equal group up to full size, because there it is the only spread. Set "
                'objective.zero_variance = "skip", or objective.advantage.estimator = "group_mean".'
            )

    def _refuse_silence(self) -> None:
        if self.advantage.learns_from_equal_groups and self.zero_variance != "keep":
            raise ValueError(
                f"the estimator {self.advantage.estimator} learns from groups whose rewards are all equal, and "
                f'zero_variance {self.zero_variance} leaves them out. Set objective.zero_variance = "keep".'
            )

    @property
    def needs_reference(self) -> bool:
        """True when the log-probs of the reference policy change the update."""
        return self.kl_coef > 0

    @property
    def has_kl_in_loss(self) -> bool:
        """True when the KL to the reference is a term of the loss."""
        return self.kl_coef > 0 and self.kl_placement == "loss"

    @property
    def has_kl_in_reward(self) -> bool:
        """True when the KL to the reference is subtracted from the reward."""
        return self.kl_coef > 0 and self.kl_placement == "reward"

    @property
    def has_entropy_bonus(self) -> bool:
        """True when the entropy is, or can become, a term of the loss."""
        return self.entropy_coef > 0 or self.entropy_adaptive is not None

    @property
    def needs_sampler_logprobs(self) -> bool:
        """True when the log-probs recorded at sampling matter beside those of the policy before the step."""
        return self.correction.mode != "none" or self.max_divergence is not None

    @property
    def couples_tokens(self) -> bool:
        """True when the loss of a token depends on other tokens, so that it needs all log-probs of the step at once."""
        return (
            self.loss in OF_COMPLETIONS
            or self.correction.mode.startswith("seq")
            or self.max_divergence is not None
            or self.token_filter.mode != "all"
        )


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables merged key by key; what is given wins."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged


def _without_idle(merged: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Take out the numbers of the preset, not those given, that do nothing under the loss and estimator given."""
    idle = {name for name, losses in _USERS.items() if merged.get("loss", "clip") not in losses}
    kept = {name: value for name, value in merged.items() if name in given or name not in idle}
    for name in ("advantage", "correction", "token_filter"):
        if isinstance(kept.get(name), dict) and isinstance(given.get(name), dict):
            out = _idle_of(name, kept[name])
            kept[name] = {key: value for key, value in kept[name].items() if key in given[name] or key not in out}
    return kept


def _idle_of(name: str, table: dict[str, Any]) -> set[str]:
    if name == "advantage":
        return set(idle_numbers(table.get("estimator", "group_zscore"), whiten=bool(table.get("whiten"))))
    if name == "correction":
        return {"low", "high"} if table.get("mode", "none") == "none" else set()
    return {key for key, modes in _FILTER_USERS.items() if table.get("mode", "all") not in modes}
