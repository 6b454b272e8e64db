"""Losses on pairs of completions, one preferred to the other: the DPO family, and the reward model behind it.

Shapes: B pairs. A log-prob here belongs to a whole completion: the sum over its tokens, in nats, at temperature 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import logsigmoid

from oncurve.algo.checks import at_least_float32, require_same_shape
from oncurve.types import Settings

PreferenceVariant = Literal["sigmoid", "ipo", "hinge", "sigmoid_norm", "simpo"]
_PUBLISHED: Mapping[str, Mapping[str, float]] = {"sigmoid_norm": {"beta": 5.0}, "simpo": {"beta": 2.0, "gamma": 0.5}}
"""Where a variant's usual numbers are not the defaults of the fields."""
_AVERAGES = frozenset({"ipo", "sigmoid_norm", "simpo"})
_LOGISTIC = frozenset({"sigmoid", "sigmoid_norm", "simpo"})


class PreferenceSettings(Settings):
    """What one optimiser step on pairs minimises. ``oncurve explain`` prints it as a formula."""

    variant: PreferenceVariant = "sigmoid"
    """``sigmoid`` is DPO as published, ``ipo`` aims at a fixed gap, ``hinge`` stops at one, ``sigmoid_norm`` compares
    averages over tokens, ``simpo`` does too, without a reference."""

    beta: float = Field(0.1, gt=0)
    """Scale of the gap; the strength of the pull to the reference, where there is one. When left out: 5 for
    ``sigmoid_norm``, 2 for ``simpo``, 0.1 otherwise."""

    gamma: float = Field(0.0, ge=0)
    """``simpo`` only: by how much beta times the gap must exceed 0 for an even chance. When left out: 0.5 there."""

    label_smoothing: float = Field(0.0, ge=0)
    """Share of the pairs that are assumed to be the wrong way round (conservative DPO), below 0.5."""

    @model_validator(mode="before")
    @classmethod
    def _take_published_values(cls, data: Any) -> Any:
        return {**_PUBLISHED.get(str(data.get("variant")), {}), **data} if isinstance(data, Mapping) else data

    @model_validator(mode="after")
    def _refuse_nonsense(self) -> Self:
        if self.gamma and self.variant != "simpo":
            raise ValueError(
                f"gamma is the margin of simpo; {self.variant} has none: its reference, its target or its hinge says "
                'how far to go. Leave gamma out, or set variant = "simpo".'
            )
        if self.label_smoothing and self.variant not in _LOGISTIC:
            raise ValueError(
                f"label_smoothing mixes the log-likelihoods of both orders, and {self.variant} has no likelihood. "
                'Leave label_smoothing out, or set variant = "sigmoid".'
            )
        if self.label_smoothing >= 0.5:
            raise ValueError(
                f"label_smoothing must be below 0.5, got {self.label_smoothing}: at 0.5 the pairs say nothing, above "
                "it the rejected completion is the preferred one. Exchange chosen and rejected instead."
            )
        return self

    @property
    def needs_reference(self) -> bool:
        """True when the log-probs of the reference policy change the update."""
        return self.variant != "simpo"

    @property
    def uses_token_averages(self) -> bool:
        """True when the log-prob of a completion is divided by its number of tokens."""
        return self.variant in _AVERAGES


@dataclass(frozen=True)
class PreferenceTerms:
    """The loss of each pair and what it came from, each [B]. Only ``loss`` and ``gap`` carry a gradient."""

    loss: Tensor
    """One a pair; the objective is their mean over the pairs of the optimiser step."""
    gap: Tensor
    """What the loss is a function of, before beta: above 0 the policy prefers the chosen completion."""
    chosen_reward: Tensor
    """Implicit reward beta * (chosen - ref_chosen), of sums in every variant: one scale for all. Without a reference,
    ref is 0."""
    rejected_reward: Tensor
    """The same of the rejected completion."""
    margin: Tensor
    """chosen_reward - rejected_reward."""


def preference_loss(
    settings: PreferenceSettings,
    *,
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor | None,
    ref_rejected: Tensor | None,
    len_chosen: Tensor,
    len_rejected: Tensor,
) -> PreferenceTerms:
    """Return the loss of each pair.

    d_c = chosen - ref_chosen, d_r = rejected - ref_rejected, e = label_smoothing

    - ``sigmoid``:      gap = d_c - d_r,             loss = -(1 - e) log s(beta gap) - e log s(-beta gap)
    - ``hinge``:        gap = d_c - d_r,             loss = max(0, 1 - beta gap)
    - ``ipo``:          gap = d_c / L_c - d_r / L_r, loss = (gap - 1 / (2 beta))^2
    - ``sigmoid_norm``: gap = d_c / L_c - d_r / L_r, loss as ``sigmoid``
    - ``simpo``:        gap = chosen / L_c - rejected / L_r, loss as ``sigmoid`` with beta gap - gamma

    s is the logistic function. IPO takes token averages, as its authors confirmed; summed log-probs have another value
    and another optimum.

    Args:
        settings: variant, beta, gamma, label_smoothing.
        chosen: [B] log-probs of the preferred completions under the policy; carries the gradient.
        rejected: [B] of the others; carries the gradient.
        ref_chosen: [B] under the frozen reference. None only for ``simpo``, whose loss ignores it.
        ref_rejected: [B] likewise.
        len_chosen: [B] tokens of the preferred completions, terminator included.
        len_rejected: [B] tokens of the others.

    Returns:
        Loss, gap and implicit rewards of each pair, in float32 or better.

    Raises:
        ValueError: the shapes differ, a length is below 1, or the reference is missing.

    Source:
        DPO arXiv:2305.18290, IPO arXiv:2310.12036, hinge arXiv:2305.10425, length-normalised arXiv:2411.15124,
        SimPO arXiv:2405.14734.
    """
    if settings.needs_reference and (ref_chosen is None or ref_rejected is None):
        raise ValueError(
            f"{settings.variant} compares with a reference: give ref_chosen and ref_rejected. Only simpo does without."
        )
    start_chosen = torch.zeros_like(chosen) if ref_chosen is None else ref_chosen.detach()
    start_rejected = torch.zeros_like(rejected) if ref_rejected is None else ref_rejected.detach()
    require_same_shape(
        chosen=chosen,
        rejected=rejected,
        ref_chosen=start_chosen,
        ref_rejected=start_rejected,
        len_chosen=len_chosen,
        len_rejected=len_rejected,
    )
    _require_lengths(len_chosen, len_rejected)
    up, down = at_least_float32(chosen), at_least_float32(rejected)
    up_change, down_change = up - at_least_float32(start_chosen), down - at_least_float32(start_rejected)
    scored = (up_change, down_change) if settings.needs_reference else (up, down)
    gap = scored[0] / len_chosen - scored[1] / len_rejected if settings.uses_token_averages else scored[0] - scored[1]
    rewards = settings.beta * up_change.detach(), settings.beta * down_change.detach()
    return PreferenceTerms(
        loss=_loss_of_gap(settings, gap),
        gap=gap,
        chosen_reward=rewards[0],
        rejected_reward=rewards[1],
        margin=rewards[0] - rewards[1],
    )


def _loss_of_gap(settings: PreferenceSettings, gap: Tensor) -> Tensor:
    if settings.variant == "ipo":
        return (gap - 1 / (2 * settings.beta)).square()
    if settings.variant == "hinge":
        return (1 - settings.beta * gap).clamp(min=0)
    logit, smoothing = settings.beta * gap - settings.gamma, settings.label_smoothing
    return -(1 - smoothing) * logsigmoid(logit) - smoothing * logsigmoid(-logit)


def _require_lengths(*lengths: Tensor) -> None:
    shortest = min((int(length.min()) for length in lengths if length.numel()), default=1)
    if shortest < 1:
        raise ValueError(
            f"len_chosen and len_rejected must be at least 1, got {shortest}: a completion without tokens has no "
            "log-prob to compare. Leave its pair out."
        )


@dataclass(frozen=True)
class RewardModelTerms:
    """What a reward model is trained and judged by."""

    loss: Tensor
    """Scalar; carries the gradient."""
    accuracy: float
    """Share of the pairs whose chosen completion has the higher score; a tie is not higher."""


def reward_model_loss(
    chosen: Tensor, rejected: Tensor, *, margin: Tensor | None = None, center: float = 0.0
) -> RewardModelTerms:
    """Return the Bradley-Terry loss of scores.

    loss = mean(-log s(chosen - rejected - margin)) + center * mean((chosen + rejected)^2)

    Only differences of scores are learned: centre them before they are mixed with other rewards.

    Args:
        chosen: [B] scores of the preferred completions, B >= 1.
        rejected: [B] scores of the others.
        margin: [B] by how much each should win; None is 0.
        center: weight of the pull of both scores towards 0; at least 0.

    Raises:
        ValueError: the shapes differ, there is no pair, or center is negative.

    Source:
        InstructGPT, arXiv:2203.02155; margins arXiv:2307.09288; centring arXiv:2312.09244.
    """
    wanted = torch.zeros_like(chosen) if margin is None else margin.detach()
    require_same_shape(chosen=chosen, rejected=rejected, margin=wanted)
    if chosen.numel() == 0 or not 0 <= center < float("inf"):
        raise ValueError(f"a reward model needs a pair and center >= 0, got {chosen.numel()} pairs and center {center}")
    up, down = at_least_float32(chosen), at_least_float32(rejected)
    loss = -logsigmoid(up - down - wanted).mean() + center * (up + down).square().mean()
    return RewardModelTerms(loss=loss, accuracy=(up > down).double().mean().item())
