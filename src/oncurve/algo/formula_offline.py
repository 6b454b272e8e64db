"""The formulas of learning from given completions, written from the settings that compute them: pairs and examples."""

from types import MappingProxyType

from oncurve.algo.formula import Formula, wrapped
from oncurve.algo.preference import PreferenceSettings


def describe_preference(settings: PreferenceSettings, *, batch_size: int | None = None) -> Formula:
    """Write the loss of pairs with every choice substituted and every number in place.

    Args:
        settings: the same object that ``preference_loss`` computes with.
        batch_size: pairs of an optimiser step; None leaves it a letter.

    Returns:
        The formula. Two settings that differ in anything that changes the update give different texts.
    """
    pairs = "B" if batch_size is None else str(batch_size)
    lines = [
        *_logit_lines(settings),
        *_gap_lines(settings),
        f"l{', ref' if settings.needs_reference else ''} = log-probs of the given tokens at temperature 1; the "
        "prompt is not among them, the terminator is",
        *_reference_lines(settings),
        f"{pairs} pairs in the step; every sum runs over the whole optimiser step, never over a micro-batch",
    ]
    return Formula(
        text="\n".join(
            ["minimise", wrapped(f"L = 1/{pairs} · Σᵢ [ {_loss(settings)} ]"), "where", *map(wrapped, lines)]
        ),
        gradient="\n".join(map(wrapped, [_push_statement(settings, pairs), _DIFFERENCE, _hold_statement(settings)])),
        symbols=MappingProxyType(
            {"l⁺ᵢₜ": "logprobs", "Δᵢ": "preference_loss(...).gap", "[ … ]": "preference_loss(...).loss"}
            | ({"ref⁺ᵢₜ": "ref_logprobs"} if settings.needs_reference else {})
        ),
    )


def describe_supervised(*, batch_size: int, steps: int, lr: float) -> Formula:
    """Write the loss of supervised learning.

    Args:
        batch_size: examples of an optimiser step.
        steps: optimiser steps of the run.
        lr: peak learning rate.
    """
    lines = [
        "lᵢₜ = log-prob of token t of the given completion i at temperature 1; the prompt is not among the tokens, the "
        "terminator is",
        f"Lᵢ tokens of completion i; {batch_size} completions in the step; every sum runs over the whole optimiser "
        "step, never over a micro-batch",
    ]
    statements = [
        "Imitation: −∇lᵢₜ with the same weight for every token of the step, whatever the policy would have written; "
        "long completions weigh more. That of the policy gradient with A = 1 on completions that somebody chose.",
        f"Reference: none in the loss. What holds the policy near its start is that it takes {steps} steps at a "
        f"learning rate of at most {lr!r}; drift/kl measures how far that went.",
    ]
    return Formula(
        text="\n".join(["minimise", wrapped("L = 1/(Σᵢ Lᵢ) · Σᵢ Σₜ −lᵢₜ"), "where", *map(wrapped, lines)]),
        gradient="\n".join(map(wrapped, statements)),
        symbols=MappingProxyType({"lᵢₜ": "token_logprobs_from_logits", "L": "mean_nll"}),
    )


def _loss(settings: PreferenceSettings) -> str:
    if settings.variant == "ipo":
        return f"(Δᵢ − 1/(2·{settings.beta!r}))²"
    if settings.variant == "hinge":
        return f"max(0, 1 − {settings.beta!r}·Δᵢ)"
    if settings.label_smoothing == 0:
        return "−log σ(zᵢ)"
    return f"−(1 − {settings.label_smoothing!r})·log σ(zᵢ) − {settings.label_smoothing!r}·log σ(−zᵢ)"


def _logit_lines(settings: PreferenceSettings) -> list[str]:
    if settings.variant in ("ipo", "hinge"):
        return []
    margin = f" − {settings.gamma!r}" if settings.variant == "simpo" else ""
    return [f"zᵢ = {settings.beta!r}·Δᵢ{margin}; σ(x) = 1/(1 + exp(−x))"]


def _gap_lines(settings: PreferenceSettings) -> list[str]:
    summed = "(l⁺ᵢₜ − ref⁺ᵢₜ)" if settings.needs_reference else "l⁺ᵢₜ"
    lines = [
        f"d⁺ᵢ = Σₜ {summed} over the L⁺ᵢ tokens of the chosen completion; d⁻ᵢ likewise over the L⁻ᵢ tokens of the "
        "rejected one"
    ]
    if settings.uses_token_averages:
        return ["Δᵢ = d⁺ᵢ/L⁺ᵢ − d⁻ᵢ/L⁻ᵢ, averages over tokens", *lines]
    return ["Δᵢ = d⁺ᵢ − d⁻ᵢ, sums over tokens", *lines]


def _reference_lines(settings: PreferenceSettings) -> list[str]:
    if settings.needs_reference:
        return ["ref = the policy before the first step, frozen"]
    return ["no reference"]


_DIFFERENCE = (
    "Only the difference of the two completions counts: both log-probs may fall while the gap grows, and what they "
    "lose goes to completions that are in no pair. dpo/chosen_logprob shows it."
)


def _push_statement(settings: PreferenceSettings, pairs: str) -> str:
    plus, minus = ("/L⁺ᵢ", "/L⁻ᵢ") if settings.uses_token_averages else ("", "")
    push = {
        "ipo": f"2·(1/(2·{settings.beta!r}) − Δᵢ)",
        "hinge": f"{settings.beta!r} where {settings.beta!r}·Δᵢ < 1 and 0 elsewhere",
    }.get(settings.variant, f"{settings.beta!r}·σ(−zᵢ)")
    fades = {
        "ipo": "It pulls the gap back once it is larger than its target.",
        "hinge": "A pair that has reached the hinge teaches nothing.",
    }.get(settings.variant, "It fades as the order of the pair comes right.")
    if settings.label_smoothing:
        push = f"{settings.beta!r}·(σ(−zᵢ) − {settings.label_smoothing!r})"
        fades = f"It turns round once σ(−zᵢ) is below {settings.label_smoothing!r}."
    return (
        f"Pair i pushes with wᵢ = {push}: −wᵢ{plus}/{pairs}·∇l⁺ᵢₜ on each token of the chosen completion, "
        f"+wᵢ{minus}/{pairs}·∇l⁻ᵢₜ on each of the rejected one. {fades}"
    )


def _hold_statement(settings: PreferenceSettings) -> str:
    beta, smoothing = settings.beta, settings.label_smoothing
    end = (
        f"Label smoothing stops each pair at zᵢ = log((1 − {smoothing!r})/{smoothing!r})."
        if smoothing
        else "On pairs that never contradict each other there is no minimum: the number of steps holds the policy."
    )
    return {
        "sigmoid": "Reference: where pairs are drawn by the Bradley-Terry model of a reward r, the minimum is the "
        f"policy proportional to ref·exp(r/{beta!r}), that of r with {beta!r}·KL(policy ‖ ref) subtracted. {end}",
        "sigmoid_norm": f"Reference: {beta!r} scales log-ratios per token, so the pull does not depend on lengths, and "
        f"the minimum is not that of a KL of whole completions. {end}",
        "ipo": f"Reference: the target 1/(2·{beta!r}) nats per token holds the policy, also on pairs that never "
        "contradict each other.",
        "hinge": f"Reference: a gap of 1/{beta!r} nats is enough, and holds the policy, also on pairs that never "
        "contradict each other.",
        "simpo": "Reference: none, so no KL holds the policy. What does is that the push fades with zᵢ, the number of "
        f"steps and the learning rate; drift/kl measures how far that went. {end}",
    }[settings.variant]
