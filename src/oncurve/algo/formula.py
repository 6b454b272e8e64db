"""The formula that a run optimises, written from the settings that compute it.

Every line fits 100 columns. ``text`` is the formula, ``gradient`` what its gradient really is, ``symbols`` where each
symbol lives in code. The lines themselves come from ``formula_loss``, ``formula_advantage`` and ``formula_gradient``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import fill
from types import MappingProxyType

from oncurve.algo.checks import require_temperature
from oncurve.algo.formula_advantage import advantage_lines
from oncurve.algo.formula_gradient import gradient_statements
from oncurve.algo.formula_loss import (
    advantage_symbol,
    batch_lines,
    entropy_lines,
    kl_lines,
    kl_symbol,
    legend,
    loss_line,
    term_lines,
)
from oncurve.algo.objective_settings import ObjectiveSettings

WIDTH = 100


@dataclass(frozen=True)
class Formula:
    """The objective in words and symbols; ``str()`` of it is what is printed and stored."""

    text: str
    gradient: str
    symbols: Mapping[str, str]

    def __str__(self) -> str:
        names = "; ".join(f"{symbol}={name}" for symbol, name in self.symbols.items())
        return "\n".join([self.text, "", "gradient", self.gradient, "", "in code", wrapped(names)])


def describe_objective(settings: ObjectiveSettings, *, group_size: int, max_tokens: int, temperature: float) -> Formula:
    """Write the objective with every choice substituted and every number in place.

    Args:
        settings: the same object that ``policy_loss`` computes with.
        group_size: completions a prompt; at least 2 when the estimator compares them.
        max_tokens: generation limit in tokens.
        temperature: of the sampler and the learner, > 0.

    Returns:
        The formula. Two settings that differ in anything that changes the update give different texts.

    Raises:
        ValueError: group_size or max_tokens is too small for the estimator, or temperature <= 0.
    """
    require_temperature(temperature)
    smallest = 2 if settings.advantage.needs_group else 1
    if group_size < smallest or max_tokens < 1:
        raise ValueError(
            f"a formula needs group_size >= {smallest} and max_tokens >= 1, got {group_size} and {max_tokens}. "
            "A group of one has no baseline."
        )
    if settings.advantage.estimator in ("pass_at_k", "pkpo") and settings.advantage.k > group_size:
        raise ValueError(
            f"objective.advantage.k is {settings.advantage.k} attempts, but group_size is {group_size}: there are not "
            "as many completions to choose from. Lower k or raise rollout.group_size."
        )
    ref = ", ref" if settings.needs_reference else ""
    definitions = [
        *term_lines(settings),
        f"l, old{ref} = log-probs of the sampled tokens at temperature {temperature!r}",
        *advantage_lines(settings),
        *kl_lines(settings),
        *entropy_lines(settings, temperature),
    ]
    definitions += [line for line in [legend(settings, definitions)] if line]
    definitions += batch_lines(settings, group_size=group_size, max_tokens=max_tokens)
    return Formula(
        text="\n".join(
            ["minimise", wrapped(loss_line(settings, max_tokens=max_tokens)), "where", *map(wrapped, definitions)]
        ),
        gradient="\n".join(map(wrapped, gradient_statements(settings))),
        symbols=MappingProxyType(_symbols(settings)),
    )


def wrapped(text: str) -> str:
    """One line of a formula, indented; continued lines are indented further."""
    return fill(
        text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _symbols(settings: ObjectiveSettings) -> dict[str, str]:
    estimate = "token_advantages" if settings.advantage.is_token_level else "estimate_advantages"
    symbols = {
        "lᵢₜ": "logprobs",
        "oldᵢₜ": "old_logprobs",
        "[ … ]": "policy_terms",
        advantage_symbol(settings): estimate,
    }
    symbols["1/…"] = "sequence_weights"
    if settings.needs_sampler_logprobs:
        symbols["sampledᵢₜ"] = "sampler_logprobs"
    if settings.needs_reference:
        weighted = settings.kl_estimator == "k3_weighted"
        symbols["refᵢₜ"] = "ref_logprobs"
        symbols[kl_symbol(settings)] = "importance_weighted_kl" if weighted else "kl_estimate"
    if settings.has_entropy_bonus:
        symbols["H"] = "entropy_from_logits"
    return symbols
