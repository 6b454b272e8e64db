"""The formula that a run optimises, written from the settings that compute it.

Every line fits 100 columns. ``text`` is the formula, ``gradient`` what its gradient really is, ``symbols`` where each
symbol lives in code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import fill
from types import MappingProxyType

from oncurve.algo.checks import require_temperature
from oncurve.algo.clipping import MAX_LOG_RATIO
from oncurve.algo.objective import ObjectiveSettings

WIDTH = 100


@dataclass(frozen=True)
class Formula:
    """The objective in words and symbols; ``str()`` of it is what is printed and stored."""

    text: str
    gradient: str
    symbols: Mapping[str, str]

    def __str__(self) -> str:
        names = "; ".join(f"{symbol}={name}" for symbol, name in self.symbols.items())
        return "\n".join([self.text, "", "gradient", self.gradient, "", "in code", _wrap(names)])


def describe_objective(settings: ObjectiveSettings, *, group_size: int, max_tokens: int, temperature: float) -> Formula:
    """Write the objective with every choice substituted and every number in place.

    Args:
        settings: the same object that ``policy_loss`` computes with.
        group_size: completions a prompt, >= 2.
        max_tokens: generation limit in tokens.
        temperature: of the sampler and the learner, > 0.

    Returns:
        The formula. Two settings that differ in anything that changes the update give different texts.

    Raises:
        ValueError: group_size < 2, max_tokens < 1 or temperature <= 0.
    """
    require_temperature(temperature)
    if group_size < 2 or max_tokens < 1:
        raise ValueError(
            f"a formula needs group_size >= 2 and max_tokens >= 1, got {group_size} and {max_tokens}. "
            "A group of one has no baseline."
        )
    definitions = [
        *_ratio_lines(settings, temperature),
        *_advantage_lines(settings, group_size),
        *_kl_lines(settings),
        *_entropy_lines(settings, temperature),
        *_batch_lines(settings, group_size, max_tokens),
    ]
    loss = f"L = {_aggregation(settings, max_tokens)} [ {_token_loss(settings)} ]{_entropy_bonus(settings)}"
    statements = [_clip_statement(settings), _advantage_statement(settings), _kl_statement(settings)]
    return Formula(
        text="\n".join(["minimise", _wrap(loss), "where", *map(_wrap, definitions)]),
        gradient="\n".join(map(_wrap, statements)),
        symbols=_symbols(settings),
    )


def _aggregation(settings: ObjectiveSettings, max_tokens: int) -> str:
    return {
        "seq-mean-token-mean": "1/B · Σᵢ 1/Lᵢ · Σₜ",
        "token-mean": "1/(Σᵢ Lᵢ) · Σᵢ Σₜ",
        "seq-mean-token-sum": "1/B · Σᵢ Σₜ",
        "constant": f"1/(B · {max_tokens}) · Σᵢ Σₜ",
        "prompt-mean": "1/N · Σg 1/(Σ_{i∈g} Lᵢ) · Σ_{i∈g} Σₜ",
    }[settings.aggregation]


def _token_loss(settings: ObjectiveSettings) -> str:
    penalty = f" + {settings.kl_coef!r} · {settings.kl_estimator}ᵢₜ" if _has_kl_in(settings, "loss") else ""
    return f"−min(ρᵢₜ·Aᵢ, clip(ρᵢₜ)·Aᵢ){penalty}"


def _entropy_bonus(settings: ObjectiveSettings) -> str:
    return f" − {settings.entropy_coef!r} · H" if settings.entropy_coef > 0 else ""


def _ratio_lines(settings: ObjectiveSettings, temperature: float) -> list[str]:
    return [
        f"ρᵢₜ = exp(lᵢₜ − oldᵢₜ), the log-ratio clamped to ±{MAX_LOG_RATIO:g}",
        f"l, old{', ref' if settings.needs_reference else ''} = log-probs of the sampled tokens at "
        f"temperature {temperature!r}",
        f"clip(ρ) = ρ limited to [1 − {settings.clip_low!r}, 1 + {settings.clip_high!r}]; no dual clip",
    ]


def _advantage_lines(settings: ObjectiveSettings, group_size: int) -> list[str]:
    advantage = settings.advantage
    reward = "r̃" if _has_kl_in(settings, "reward") else "r"
    if advantage.estimator == "group_zscore":
        divisor = "G" if advantage.ddof == 0 else "G − 1"
        lines = [
            f"Aᵢ = ({reward}ᵢ − mean {reward}) / (std {reward} + {advantage.std_eps!r}) over its group",
            f"std divides by {divisor} = {group_size - advantage.ddof} (ddof {advantage.ddof})",
        ]
    elif advantage.estimator == "group_mean":
        lines = [f"Aᵢ = {reward}ᵢ − mean {reward} over its group, not divided by a std"]
    else:
        lines = [f"Aᵢ = {reward}ᵢ − mean {reward} over the {group_size - 1} others of its group, no std"]
    if reward == "r̃":
        lines.append(f"r̃ᵢ = rᵢ − {settings.kl_coef!r} · Σₜ {settings.kl_estimator}ᵢₜ, with oldᵢₜ in place of lᵢₜ")
    return [
        *lines,
        f"Aᵢ = 0 exactly if max − min of {reward} in the group is at most {advantage.tolerance!r}",
        "a completion without verdict is outside the mean and the std and has Aᵢ = 0; no whitening",
    ]


def _kl_lines(settings: ObjectiveSettings) -> list[str]:
    if not settings.needs_reference:
        return ["no KL to the reference (kl_coef 0)"]
    value = {"k1": "d", "k2": "d²/2", "k3": "exp(−d) − 1 + d"}[settings.kl_estimator]
    return [f"{settings.kl_estimator}ᵢₜ = {value} with d = lᵢₜ − refᵢₜ; ref = the policy before the first step, frozen"]


def _entropy_lines(settings: ObjectiveSettings, temperature: float) -> list[str]:
    if settings.entropy_coef == 0:
        return ["no entropy bonus (entropy_coef 0)"]
    return [f"H = 1/(Σᵢ Lᵢ) · Σᵢ Σₜ entropy of softmax(logitsᵢₜ / {temperature!r}), over the whole vocabulary"]


def _batch_lines(settings: ObjectiveSettings, group_size: int, max_tokens: int) -> list[str]:
    groups = {
        "keep": "groups with equal task rewards stay in the batch and in every denominator",
        "skip": "groups with equal task rewards are left out of the batch and of every denominator",
        "resample": "groups with equal task rewards are replaced by new ones, at most "
        f"{settings.resample_rounds} rounds, then left out",
    }[settings.zero_variance]
    truncated = (
        "truncated completions count in mean, std, B and N, but their tokens are not trained: Lᵢ = 0"
        if settings.mask_truncated
        else "truncated completions are trained like the others"
    )
    return [
        f"B completions of N prompts in the step, G = {group_size} a prompt; Lᵢ trained tokens, at most {max_tokens}",
        groups,
        truncated,
        "every sum runs over the whole optimiser step, never over a micro-batch",
    ]


def _clip_statement(settings: ObjectiveSettings) -> str:
    return (
        "Policy: at ρ = 1, which is every token of the first update after sampling, nothing is clipped and the "
        "gradient is that of REINFORCE, −Aᵢ·∇lᵢₜ under the same sum. In later updates on the same rollouts it is "
        f"−ρᵢₜ·Aᵢ·∇lᵢₜ, but 0 where A > 0 and ρ > 1 + {settings.clip_high!r}, or A < 0 and "
        f"ρ < 1 − {settings.clip_low!r}."
    )


def _advantage_statement(settings: ObjectiveSettings) -> str:
    return {
        "group_zscore": "Advantage: dividing by the std weighs prompts unequally, those with rare successes or rare "
        "failures most; this is not the gradient of the mean reward.",
        "group_mean": "Advantage: the mean contains the completion itself, which shrinks the expected gradient by the "
        "constant (G − 1)/G and leaves its direction.",
        "rloo": "Advantage: the baseline does not contain the completion itself: it adds no bias.",
    }[settings.advantage.estimator]


def _kl_statement(settings: ObjectiveSettings) -> str:
    if not settings.needs_reference:
        return "KL: none."
    return {
        ("k2", "loss"): "KL: k2 in the loss pulls, in expectation over the policy's own samples, along the gradient of "
        "KL(policy ‖ ref) at each token; its value is a biased estimate of it. How a token changes later prefixes is "
        "left out. Tokens from an older policy bias it; clipping does not touch it.",
        ("k3", "loss"): "KL: k3 in the loss has the value of KL(policy ‖ ref) but, in expectation over the policy's "
        "own samples, the gradient of KL(ref ‖ policy) at each token. How a token changes later prefixes is left out. "
        "Tokens from an older policy bias it; clipping does not touch it.",
        ("k1", "reward"): "KL: k1 in the reward is a constant for autograd and acts through A. In expectation it "
        "adds the gradient of KL(policy ‖ ref) of whole completions, scaled and clipped like every reward.",
        ("k2", "reward"): "KL: k2 in the reward acts through A, without the part that differentiates k2 itself. "
        "Near the reference its pull vanishes to first order: it is not the gradient of KL(policy ‖ ref); k1 is.",
        ("k3", "reward"): "KL: k3 in the reward acts through A. At each token it adds the gradient of KL(policy ‖ ref) "
        "minus that of KL(ref ‖ policy): near the reference the two cancel and nothing pulls back; k1 would.",
    }[settings.kl_estimator, settings.kl_placement]


def _symbols(settings: ObjectiveSettings) -> Mapping[str, str]:
    symbols = {"lᵢₜ": "logprobs", "oldᵢₜ": "old_logprobs", "ρᵢₜ": "importance_ratio", "Aᵢ": "group_advantages"}
    symbols |= {"1/…": "sequence_weights", "min(…)": "clipped_surrogate"}
    if settings.needs_reference:
        symbols |= {"refᵢₜ": "ref_logprobs", f"{settings.kl_estimator}ᵢₜ": "kl_estimate"}
    if settings.entropy_coef > 0:
        symbols |= {"H": "entropy_from_logits"}
    return MappingProxyType(symbols)


def _has_kl_in(settings: ObjectiveSettings, placement: str) -> bool:
    return settings.needs_reference and settings.kl_placement == placement


def _wrap(text: str) -> str:
    return fill(
        text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
