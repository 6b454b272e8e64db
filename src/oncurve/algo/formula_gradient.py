"""What the gradient of an objective really is, in sentences."""

from oncurve.algo.formula_loss import advantage_symbol
from oncurve.algo.objective_settings import ObjectiveSettings


def gradient_statements(settings: ObjectiveSettings) -> list[str]:
    """One statement on the policy term, each correction or filter, the advantage, the KL, the entropy."""
    statements = [
        _policy(settings),
        *_changes(settings),
        _advantage(settings),
        *_between_groups(settings),
        _kl(settings),
    ]
    if settings.has_entropy_bonus:
        statements.append(
            "Entropy: the exact gradient of the mean entropy over the vocabulary at the trained positions."
        )
    return statements


def _policy(settings: ObjectiveSettings) -> str:
    a, low, high = advantage_symbol(settings), settings.clip_low, settings.clip_high
    first = (
        "at ρ = 1, which is every token of the first update after sampling, the gradient is that of REINFORCE, "
        f"−{a}·∇lᵢₜ under the same sum"
    )
    later = "In later updates on the same rollouts it is"
    match settings.loss:
        case "clip":
            dual = f", or A < 0 and ρ > {settings.dual_clip!r}" if settings.dual_clip is not None else ""
            cap = f", or A < 0 and ρ > {settings.ratio_cap!r}" if settings.ratio_cap is not None else ""
            return (
                f"Policy: at ρ = 1, which is every token of the first update after sampling, nothing is clipped and "
                f"the "
                f"gradient is that of REINFORCE, −{a}·∇lᵢₜ under the same sum. {later} −ρᵢₜ·{a}·∇lᵢₜ, but 0 where A > "
                f"0 "
                f"and ρ > 1 + {high!r}, or A < 0 and ρ < 1 − {low!r}{dual}{cap}."
            )
        case "gspo" | "gspo_token":
            return (
                f"Policy: {first}. {later} −sᵢ·{a}·∇lᵢₜ, the same factor for all tokens of a completion, but 0 for the "
                f"whole completion where A > 0 and s > 1 + {high!r}, or A < 0 and s < 1 − {low!r}."
            )
        case "luspo":
            return (
                f"Policy: {first}: every token counts alike, and long completions more. {later} −sᵢ·{a}·∇lᵢₜ, but 0 "
                f"for "
                f"the whole completion where A > 0 and s > 1 + {high!r}, or A < 0 and s < 1 − {low!r}."
            )
        case "gmpo":
            return (
                f"Policy: {first}. {later} −exp(mean_t(cᵢₜ))·{a}·∇lᵢₜ, but 0 for a token whose own log-ratio is "
                f"clipped: "
                f"above {high!r} for A > 0, below −{low!r} for A < 0."
            )
        case "cispo":
            bounds = settings.cispo
            return (
                f"Policy: {first}. {later} −clip(ρᵢₜ, {bounds.ratio_min!r}, {bounds.ratio_max!r})·{a}·∇lᵢₜ: no token "
                f"is "
                "ever left out. The value of the loss depends on l itself and says nothing."
            )
        case "sapo":
            return (
                f"Policy: {first}. {later} −4·σ(1 − σ)·ρᵢₜ·{a}·∇lᵢₜ with σ = sigmoid(τᵢₜ·(ρᵢₜ − 1)): it fades on both "
                "sides and is never 0."
            )
        case "vespo":
            return (
                f"Policy: {first}. {later} −φᵢ·{a}·∇lᵢₜ: it fades as the product of the ratios of a completion leaves "
                f"1, "
                "and is never 0. The value of the loss depends on l itself and says nothing."
            )
        case "topr":
            return (
                f"Policy: {first}. {later} −{a}·∇lᵢₜ for A ≥ 0 whatever the ratio, and −min(Rᵢ, 1)·{a}·∇lᵢₜ for A < "
                f"0, R "
                "the product of the ratios: bad completions that the policy has left are forgotten."
            )
        case _:
            return (
                f"Policy: −{a}·∇lᵢₜ under the same sum, whatever the ratio: that of REINFORCE. It is the policy "
                f"gradient "
                "only on data of the policy itself; later updates on the same rollouts are not corrected."
            )


def _changes(settings: ObjectiveSettings) -> list[str]:
    found = []
    if settings.correction.mode != "none":
        found.append(
            f"Correction: each token's policy gradient is multiplied by vᵢₜ ({settings.correction.mode}), a constant; "
            f"KL, "
            "entropy and all denominators stay as they are, so masking never enlarges the step of the others."
        )
    if settings.max_divergence is not None:
        found.append(
            f"Divergence: a completion with A < 0 that the policy has left by more than {settings.max_divergence!r} "
            f"nats a "
            "token has no policy gradient; its KL term and its place in the denominators stay."
        )
    frac = settings.token_filter.frac
    if settings.token_filter.mode == "high_entropy":
        found.append(
            f"Filter: only the {frac!r} most uncertain tokens have a policy gradient; the denominators count all "
            f"tokens."
        )
    if settings.token_filter.mode == "clip_cov":
        found.append(f"Filter: a random {frac!r} of the tokens, among those that lower the entropy most, have none.")
    if settings.token_filter.mode == "kl_cov":
        found.append(
            f"Filter: the {frac!r} of the tokens that lower the entropy most are pulled back towards old, with slope "
            f"{settings.token_filter.coef!r}; exactly at ρ = 1 that pull is 0."
        )
    return found


_OF_ADVANTAGE = {
    "group_zscore": "dividing by the std weighs prompts unequally, those with rare successes or rare failures most; "
    "this is "
    "not the gradient of the mean reward.",
    "group_mean": "the mean contains the completion itself, which shrinks the expected gradient by the constant (G − "
    "1)/G "
    "and leaves its direction.",
    "rloo": "the baseline does not contain the completion itself: it adds no bias.",
    "length_weighted": "the baseline weighs completions by length and contains the completion itself; on data of the "
    "policy "
    "itself it lowers the variance where gradients grow with length.",
    "batch_std": "one std for the whole rollout: prompts are weighed alike, and the scale of the step follows the "
    "spread of "
    "the rewards.",
    "batch_loo": "the baseline is the same for all prompts: unbiased, but easy prompts get positive advantages even "
    "where all "
    "their completions are right.",
    "shrink": "neither part of the baseline contains the completion itself: unbiased, but no longer centred in a "
    "group.",
    "reinforce_pp": "one mean and one std over all tokens: prompts that are easier than average get positive "
    "advantages.",
    "reinforce_pp_baseline": "whitened over tokens, so long completions set mean and std; where lengths go with "
    "rewards an "
    "all-right group gets an advantage other than 0.",
    "maxrl": "in expectation the gradient of Σₖ 1/k · pass@k for k up to G − 1: rare successes weigh most.",
    "ngrpo": "virtual completions of full reward in the statistics: a group that is all wrong is pushed down.",
    "pass_at_k": "the gradient of pass@k, scaled by its std in the group; 0 once every subset of k holds a right one.",
    "pkpo": "in expectation exactly the gradient of the expected best of k, up to the constant of the sum.",
    "top_gap": "only the best completion of a group is pushed, by its lead over the second.",
    "gdpo": "each reward component is normalised in its group before they are added, so weights act on components of "
    "one "
    "scale.",
    "difficulty": "right answers to hard prompts and wrong ones to easy prompts weigh more; a group no longer sums to "
    "0.",
    "gae": "bias falls and variance rises with λ; at λ = 1 the critic is only a baseline and adds no bias.",
    "raft": "the likelihood of the selected completions: there is no baseline and nothing is pushed down.",
}


def _advantage(settings: ObjectiveSettings) -> str:
    return f"Advantage: {_OF_ADVANTAGE[settings.advantage.estimator]}"


def _between_groups(settings: ObjectiveSettings) -> list[str]:
    found = []
    if settings.advantage.whiten:
        found.append(
            "Whitening: subtracts one constant from every token's advantage and divides by another. Where lengths go "
            "with rewards, that constant pushes groups with equal rewards, too."
        )
    if settings.advantage.couples_groups:
        found.append("Groups: the rewards of one group change the advantages of the others.")
    return found


def _kl(settings: ObjectiveSettings) -> str:
    if not settings.needs_reference:
        return "KL: none."
    return {
        ("k2", "loss"): "KL: k2 in the loss pulls, in expectation over the policy's own samples, along the gradient of "
        "KL(policy ‖ ref) at each token; its value is a biased estimate of it. How a token changes later prefixes is "
        "left out. Tokens from an older policy bias it; clipping does not touch it.",
        ("k3", "loss"): "KL: k3 in the loss has the value of KL(policy ‖ ref) but, in expectation over the policy's "
        "own samples, the gradient of KL(ref ‖ policy) at each token. How a token changes later prefixes is left out. "
        "Tokens from an older policy bias it; clipping does not touch it.",
        ("k3_weighted", "loss"): "KL: ρ times k3 in the loss has, in expectation, the gradient of KL(policy ‖ ref) at "
        "each token, also for tokens of an older policy. How a token changes later prefixes is left out; clipping does "
        "not touch it.",
        ("k1", "reward"): "KL: k1 in the reward is a constant for autograd and acts through A. In expectation it "
        "adds the gradient of KL(policy ‖ ref) of whole completions, scaled and clipped like every reward.",
        ("k2", "reward"): "KL: k2 in the reward acts through A, without the part that differentiates k2 itself. "
        "Near the reference its pull vanishes to first order: it is not the gradient of KL(policy ‖ ref); k1 is.",
        ("k3", "reward"): "KL: k3 in the reward acts through A. At each token it adds the gradient of KL(policy ‖ ref) "
        "minus that of KL(ref ‖ policy): near the reference the two cancel and nothing pulls back; k1 would.",
    }[settings.kl_estimator, settings.kl_placement]
