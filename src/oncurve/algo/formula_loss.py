"""The printed lines of the policy loss, the KL, the entropy and the batch.

A definition reads ``symbol = expression``, and a remark may follow behind a dash. Expressions use ``exp sqrt abs min
max clip sigmoid log``, ``x if condition else y``, sg (stop gradient), sums Σ over the index below them, and means:
mean_t over the trained tokens of completion i, mean_tokens over all trained tokens of the step.
"""

import re
from collections.abc import Callable

from oncurve.algo.clipping import MAX_LOG_RATIO
from oncurve.algo.objective_settings import ObjectiveSettings

_LIMIT = f"{MAX_LOG_RATIO:g}"


def advantage_symbol(settings: ObjectiveSettings) -> str:
    """Aᵢₜ when tokens of one completion get different advantages, Aᵢ otherwise."""
    return "Aᵢₜ" if settings.advantage.is_token_level else "Aᵢ"


def loss_line(settings: ObjectiveSettings, *, max_tokens: int) -> str:
    """L = aggregation [ token loss + KL ] - entropy."""
    aggregation = {
        "seq-mean-token-mean": "1/B · Σᵢ 1/Lᵢ · Σₜ",
        "token-mean": "1/(Σᵢ Lᵢ) · Σᵢ Σₜ",
        "seq-mean-token-sum": "1/B · Σᵢ Σₜ",
        "constant": f"1/(B · {max_tokens}) · Σᵢ Σₜ",
        "prompt-mean": "1/N · Σg 1/(Σ_{i∈g} Lᵢ) · Σ_{i∈g} Σₜ",
    }[settings.aggregation]
    scale = "α · " if settings.zero_variance == "rescale" else ""
    inner = "ℓᵢₜ" if _is_modified(settings) else _form(settings)
    penalty = f" + {_coefficient(settings)} · {kl_symbol(settings)}" if settings.has_kl_in_loss else ""
    bonus = f" − {_bonus(settings)} · H" if settings.has_entropy_bonus else ""
    return f"L = {scale}{aggregation} [ {inner}{penalty} ]{bonus}"


def term_lines(settings: ObjectiveSettings) -> list[str]:
    """Definitions behind the loss line: corrections and filters, then the ratio and what it needs."""
    return [*_modification_lines(settings), *_ratio_lines(settings)]


def kl_symbol(settings: ObjectiveSettings) -> str:
    """Name of the token KL; that of k3_weighted is k3, too, with ρ in its definition."""
    return f"{settings.kl_estimator.removesuffix('_weighted')}ᵢₜ"


def kl_lines(settings: ObjectiveSettings) -> list[str]:
    """Definition of the token KL and its coefficient."""
    if not settings.needs_reference:
        return ["no KL to the reference (kl_coef 0)"]
    new = "lᵢₜ" if settings.has_kl_in_loss else "oldᵢₜ"
    value = {
        "k1": "dᵢₜ",
        "k2": "dᵢₜ^2 / 2",
        "k3": "exp(−dᵢₜ) − 1 + dᵢₜ",
        "k3_weighted": "ρᵢₜ · (exp(−dᵢₜ) − 1 + dᵢₜ)",
    }[settings.kl_estimator]
    difference = f"{new} − refᵢₜ"
    if settings.kl_estimator.startswith("k3"):
        difference = f"clip({difference}, −{_LIMIT}, {_LIMIT})"
    lines = [
        f"{kl_symbol(settings)} = {value}",
        f"dᵢₜ = {difference} — ref: the policy before the first step, frozen",
    ]
    if settings.kl_adaptive is not None:
        adaptive = settings.kl_adaptive
        lines.append(
            f"β starts at {settings.kl_coef!r}; after a rollout of n completions it is multiplied by "
            f"1 + clip(KL/{adaptive.target!r} − 1, −0.2, 0.2) · min(n, {adaptive.horizon})/{adaptive.horizon}, KL the "
            "mean k3 a token"
        )
    return lines


def entropy_lines(settings: ObjectiveSettings, temperature: float) -> list[str]:
    """Definition of the entropy bonus and of the entropies that a filter needs."""
    entropy = f"hᵢₜ: entropy of softmax(logits / {temperature!r}) over the whole vocabulary"
    if not settings.has_entropy_bonus:
        silent = ["no entropy bonus (entropy_coef 0)"]
        return [*silent, entropy] if settings.token_filter.mode == "high_entropy" else silent
    lines = [f"H = mean_tokens(hᵢₜ) — {entropy}"]
    if settings.entropy_adaptive is not None:
        adaptive = settings.entropy_adaptive
        lines.append(
            f"η starts at {settings.entropy_coef!r}; it acts while the mean entropy of the step before is at most "
            f"{adaptive.target!r} and then grows by {adaptive.step!r} a step, to at most {adaptive.coef_max!r}; above "
            f"the target it is switched off and falls by {adaptive.step!r}"
        )
    return lines


def batch_lines(settings: ObjectiveSettings, *, group_size: int, max_tokens: int) -> list[str]:
    """Who is in the sums."""
    equal = f"groups whose task rewards span at most {settings.advantage.tolerance!r}"
    groups = {
        "keep": "groups with equal task rewards stay in the batch and in every denominator",
        "skip": f"{equal} are left out of the step",
        "resample": f"{equal} are replaced by new ones, at most {settings.resample_rounds} rounds, then left out of "
        "the step",
        "rescale": f"α = B / (B − M) if M < B else 1 — M: completions of {equal}, which stay in the batch",
    }[settings.zero_variance]
    fewest = "fewer than 2 verdicts" if settings.advantage.needs_group else "no verdict"
    idle = ["completions without a verdict"]
    if settings.advantage.estimator == "raft":
        idle.append("those with selectedᵢ = 0")
    if settings.mask_truncated:
        idle.append("truncated ones, which count in mean and std")
    return [
        f"B completions of N prompts in the step, G = {group_size} a prompt, each of nᵢ tokens, at most {max_tokens}",
        f"not trained, with Lᵢ = 0, but counted in B and N: {', '.join(idle)}; all others have Lᵢ = nᵢ",
        groups,
        f"groups with {fewest} are left out of the step",
        "the sums of L run over the whole optimiser step, never over a micro-batch",
    ]


def legend(settings: ObjectiveSettings, lines: list[str]) -> str:
    """Say over what the means and sums in the lines run; empty when there are none."""
    text = " ".join(lines)
    tokens = "all trained tokens, of the rollout in A, of the step in L"
    if settings.advantage.estimator == "reinforce_pp":
        tokens = "in A all tokens of completions with a verdict, in L the trained tokens of the step"
    over = {
        "_t": "the tokens of completion i",
        "_g": "the completions of its group with a verdict",
        "_all": "those of the rollout",
        "_groups": "the groups of the rollout with a verdict",
        "_tokens": tokens,
    }
    found = [
        f"{name} {place}"
        for name, place in over.items()
        if re.search(rf"(mean|sum|max|min|second|count|std|var|quantile){name}\b", text)
    ]
    return f"means, sums, counts run over: {', '.join(found)}" if found else ""


def _coefficient(settings: ObjectiveSettings) -> str:
    return "β" if settings.kl_adaptive is not None else repr(settings.kl_coef)


def _bonus(settings: ObjectiveSettings) -> str:
    return "η" if settings.entropy_adaptive is not None else repr(settings.entropy_coef)


def _is_modified(settings: ObjectiveSettings) -> bool:
    return settings.dual_clip is not None or settings.needs_sampler_logprobs or settings.token_filter.mode != "all"


def _band(settings: ObjectiveSettings, ratio: str) -> str:
    return f"clip({ratio}, 1 − {settings.clip_low!r}, 1 + {settings.clip_high!r})"


def _form(settings: ObjectiveSettings) -> str:
    """The loss of a token before corrections and filters."""
    a = advantage_symbol(settings)
    ratio = {"gspo": "sᵢ", "luspo": "sᵢ", "gspo_token": "sᵢₜ"}.get(settings.loss, "ρᵢₜ")
    unclipped = ratio if settings.ratio_cap is None else f"min({ratio}, {settings.ratio_cap!r})"
    cispo = settings.cispo
    return {
        "gmpo": f"−{a}·exp(mean_t(cᵢₜ))",
        "cispo": f"−sg(clip(ρᵢₜ, {cispo.ratio_min!r}, {cispo.ratio_max!r}))·{a}·lᵢₜ",
        "sapo": f"−4/τᵢₜ·sigmoid(τᵢₜ·(ρᵢₜ − 1))·{a}",
        "vespo": f"−sg(φᵢ)·{a}·lᵢₜ",
        "topr": f"−sg(φᵢ)·{a}·lᵢₜ",
        "reinforce": f"−{a}·lᵢₜ",
    }.get(settings.loss, f"−min({unclipped}·{a}, {_band(settings, ratio)}·{a})")


def _modification_lines(settings: ObjectiveSettings) -> list[str]:
    """From the plain loss pᵢₜ to ℓᵢₜ, one line a change; each change reads the one before."""
    if not _is_modified(settings):
        return []
    changes = _changes(settings)
    names = ["pᵢₜ", *(f"p{number}ᵢₜ" for number in range(2, len(changes) + 1)), "ℓᵢₜ"]
    steps = [f"{names[place + 1]} = {change(names[place])}" for place, change in enumerate(changes)]
    return [*reversed(steps), f"pᵢₜ = {_form(settings)}", *_correction_lines(settings), *_filter_lines(settings)]


def _changes(settings: ObjectiveSettings) -> list[Callable[[str], str]]:
    """In the order in which they act, each a function of the name of the loss before it."""
    a, found = advantage_symbol(settings), list[Callable[[str], str]]()
    if settings.dual_clip is not None:
        found.append(lambda p: f"min({p}, {settings.dual_clip!r}·abs({a})) if {a} < 0 else {p}")
    if settings.correction.mode != "none":
        found.append(lambda p: f"vᵢₜ·{p}")
    if settings.max_divergence is not None:
        gain = f"mean_t({a})" if settings.advantage.is_token_level else a
        left = f"sg(mean_t(sampledᵢₜ − lᵢₜ)) > {settings.max_divergence!r}"
        found.append(lambda p: f"0 if {gain} < 0 and {left} else {p}")
    chosen = settings.token_filter
    if chosen.mode == "high_entropy":
        found.append(lambda p: f"{p} if hᵢₜ ≥ quantile_tokens(hᵢₜ, 1 − {chosen.frac!r}) else 0")
    if chosen.mode == "clip_cov":
        found.append(lambda p: f"0 if dropᵢₜ = 1 else {p}")
    if chosen.mode == "kl_cov":
        found.append(lambda p: f"{p} + holdᵢₜ·{chosen.coef!r}·abs(lᵢₜ − oldᵢₜ)")
    return found


def _correction_lines(settings: ObjectiveSettings) -> list[str]:
    correction = settings.correction
    bounds = f"{correction.low!r}, {correction.high!r}"
    inside = f"{correction.low!r} ≤ {{0}} and {{0}} ≤ {correction.high!r}"
    token, product = "eᵢₜ", "Wᵢ"
    value = {
        "none": "",
        "token_truncate": f"clip({token}, {bounds})",
        "token_mask": f"{token} if {inside.format(token)} else 0",
        "seq_truncate": f"clip({product}, {bounds})",
        "seq_mask": f"{product} if {inside.format(product)} else 0",
        "seq_geo_mask": f"{token} if {inside.format('Mᵢ')} else 0",
    }[correction.mode]
    lines = [f"vᵢₜ = {value} — a constant for the gradient"] if value else []
    difference = f"clip(oldᵢₜ − sampledᵢₜ, −{_LIMIT}, {_LIMIT})"
    if token in value:
        lines.append(f"eᵢₜ = exp({difference})")
    if product in value:
        lines.append(f"Wᵢ = exp(clip(sum_t({difference}), −{_LIMIT}, {_LIMIT}))")
    if "Mᵢ" in value:
        lines.append(f"Mᵢ = exp(mean_t({difference}))")
    if settings.needs_sampler_logprobs:
        lines.append("sampledᵢₜ: log-probs as recorded by the sampler; old: those of the trainer before the step")
    return lines


def _filter_lines(settings: ObjectiveSettings) -> list[str]:
    chosen, a = settings.token_filter, advantage_symbol(settings)
    covariance = f"covᵢₜ = ({a} − mean_tokens({a}))·(lᵢₜ − mean_tokens(lᵢₜ))"
    count = f"max(1, floor({chosen.frac!r} · trained tokens))"
    if chosen.mode == "clip_cov":
        return [
            f"dropᵢₜ: 1 for {count} tokens drawn at random from those with {chosen.low!r} < covᵢₜ < {chosen.high!r} "
            f"that "
            "the clip leaves alone, else 0",
            covariance,
        ]
    if chosen.mode == "kl_cov":
        return [f"holdᵢₜ: 1 for the {count} tokens of largest covᵢₜ, else 0", covariance]
    return []


def _ratio_lines(settings: ObjectiveSettings) -> list[str]:
    a, log_ratio = advantage_symbol(settings), f"clip(lᵢₜ − oldᵢₜ, −{_LIMIT}, {_LIMIT})"
    token_ratio = f"ρᵢₜ = exp({log_ratio})"
    gate, shape = settings.sapo, settings.vespo
    lines = {
        "gspo": [f"sᵢ = exp(mean_t({log_ratio}))"],
        "luspo": [f"sᵢ = exp(mean_t({log_ratio}))"],
        "gspo_token": [f"sᵢₜ = sg(exp(mean_t({log_ratio})))·exp(lᵢₜ − sg(lᵢₜ))"],
        "gmpo": [
            f"cᵢₜ = min({log_ratio}, {settings.clip_high!r}) if {a} > 0 else max({log_ratio}, −{settings.clip_low!r})"
        ],
        "sapo": [token_ratio, f"τᵢₜ = {gate.tau_positive!r} if {a} > 0 else {gate.tau_negative!r}"],
        "vespo": [
            f"φᵢ = Rᵢ^{shape.power_positive!r}·exp({shape.rate_positive!r}·(1 − Rᵢ)) if {a} ≥ 0 "
            f"else Rᵢ^{shape.power_negative!r}·exp({shape.rate_negative!r}·(1 − Rᵢ))",
            f"Rᵢ = exp(clip(sum_t({log_ratio}), log(1e-08), {_LIMIT}))",
        ],
        "topr": [f"φᵢ = 1 if {a} ≥ 0 else min(exp(sum_t({log_ratio})), 1)"],
        "reinforce": [],
    }.get(settings.loss, [token_ratio])
    if settings.kl_estimator == "k3_weighted" and settings.has_kl_in_loss and token_ratio not in lines:
        lines = [*lines, token_ratio]
    return lines
