"""Losses on pairs: golden numbers, finite differences, refusals."""

import math
import re
from math import exp, log
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oncurve.algo import (
    PreferenceSettings,
    PreferenceTerms,
    describe_preference,
    describe_supervised,
    preference_loss,
    reward_model_loss,
)

# One pair: log-probs -10 and -12, reference -11 and -11.5, 5 and 4 tokens.
# d = +1 and -0.5, so the gap of sums is 1.5, of averages 1/5 + 0.5/4 = 0.325; of SimPO -10/5 + 12/4 = 1.
GOLDEN = [
    ({"variant": "sigmoid"}, 0.620957, -0.046257, 0.046257, 0.15),  # -log s(0.15); 0.1 s(-0.15)
    ({"variant": "sigmoid", "label_smoothing": 0.1}, 0.635957, -0.036257, 0.036257, 0.15),  # + 0.1 * 0.15
    ({"variant": "ipo"}, 21.855625, -1.87, 2.3375, 0.15),  # (0.325 - 5)^2; 2 * 4.675 / 5 and / 4
    ({"variant": "hinge"}, 0.85, -0.1, 0.1, 0.15),  # 1 - 0.15
    ({"variant": "sigmoid_norm"}, 0.179745, -0.164516, 0.205646, 7.5),  # -log s(5 * 0.325)
    ({"variant": "simpo"}, 0.201413, -0.07297, 0.091213, 3.0),  # -log s(2 * 1 - 0.5)
]
VARIANTS = ["sigmoid", "ipo", "hinge", "sigmoid_norm", "simpo"]


def of_pair(settings: PreferenceSettings, chosen: Tensor, rejected: Tensor, **other: Any) -> PreferenceTerms:
    given = {
        "ref_chosen": torch.full_like(chosen, -11.0),
        "ref_rejected": torch.full_like(chosen, -11.5),
        "len_chosen": torch.full(chosen.shape, 5),
        "len_rejected": torch.full(chosen.shape, 4),
    }
    return preference_loss(settings, chosen=chosen, rejected=rejected, **(given | other))


def leaf(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(("changes", "loss", "grad_chosen", "grad_rejected", "margin"), GOLDEN)
def test_golden_numbers(
    changes: dict[str, Any], loss: float, grad_chosen: float, grad_rejected: float, margin: float
) -> None:
    chosen, rejected = leaf(-10.0), leaf(-12.0)
    terms = of_pair(PreferenceSettings(**changes), chosen, rejected)
    gradients = torch.autograd.grad(terms.loss.sum(), (chosen, rejected))
    found = [terms.loss.item(), gradients[0].item(), gradients[1].item(), terms.margin.item()]
    assert found == pytest.approx([loss, grad_chosen, grad_rejected, margin], abs=2e-6)
    assert (terms.chosen_reward - terms.rejected_reward).item() == pytest.approx(margin)
    assert not terms.margin.requires_grad


@pytest.mark.parametrize("variant", VARIANTS)
@given(
    beta=st.floats(0.05, 3),
    gamma=st.floats(0, 2),
    chosen=st.floats(-20, -0.1),
    rejected=st.floats(-20, -0.1),
    smoothing=st.floats(0, 0.49),
)
def test_the_gradient_is_that_of_the_value(
    variant: str, beta: float, gamma: float, chosen: float, rejected: float, smoothing: float
) -> None:
    changes = {"gamma": gamma} if variant == "simpo" else {}
    changes |= {} if variant in ("ipo", "hinge") else {"label_smoothing": smoothing}
    settings = PreferenceSettings(variant=variant, beta=beta, **changes)
    values, step = (leaf(chosen), leaf(rejected)), 1e-5
    if variant == "hinge" and abs(1 - beta * of_pair(settings, *values).gap.item()) < 2 * beta * step:
        return  # the kink
    gradients = torch.autograd.grad(of_pair(settings, *values).loss.sum(), values)
    for index, gradient in enumerate(gradients):
        moved = [value.detach() + step * (position == index) for position, value in enumerate(values)]
        back = [value.detach() - step * (position == index) for position, value in enumerate(values)]
        difference = of_pair(settings, *moved).loss.item() - of_pair(settings, *back).loss.item()
        assert gradient.item() == pytest.approx(difference / (2 * step), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("variant", ["sigmoid", "hinge", "ipo", "sigmoid_norm"])
@given(shift=st.floats(-5, 5))
def test_policy_and_reference_that_move_together_change_nothing(variant: str, shift: float) -> None:
    settings = PreferenceSettings(variant=variant)
    moved = of_pair(settings, leaf(-10 + shift), leaf(-12.0), ref_chosen=leaf(-11 + shift))
    assert moved.loss.item() == pytest.approx(of_pair(settings, leaf(-10.0), leaf(-12.0)).loss.item())


@pytest.mark.parametrize("variant", ["sigmoid", "hinge"])
def test_sums_do_not_see_lengths(variant: str) -> None:
    settings = PreferenceSettings(variant=variant)
    longer = of_pair(settings, leaf(-10.0), leaf(-12.0), len_chosen=torch.tensor([50]))
    assert longer.loss.item() == of_pair(settings, leaf(-10.0), leaf(-12.0)).loss.item()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pair_never_influences_another(variant: str) -> None:
    settings = PreferenceSettings(variant=variant)
    both = of_pair(settings, leaf(-10.0, -3.0), leaf(-12.0, -1.0)).loss
    alone = [of_pair(settings, leaf(c), leaf(r)).loss.item() for c, r in ((-10.0, -12.0), (-3.0, -1.0))]
    assert both.tolist() == alone


def test_the_reference_of_simpo_moves_its_margin_but_not_its_loss() -> None:
    settings = PreferenceSettings(variant="simpo")
    without = of_pair(settings, leaf(-10.0), leaf(-12.0), ref_chosen=None, ref_rejected=None)
    assert without.loss.item() == of_pair(settings, leaf(-10.0), leaf(-12.0)).loss.item()
    assert without.margin.item() == 4.0  # 2 * (-10 + 12): the reference counts as 0
    assert without.gap.item() == 1.0  # -10 / 5 + 12 / 4


def test_the_hinge_is_flat_once_the_margin_is_one() -> None:
    settings, chosen = PreferenceSettings(variant="hinge", beta=1.0), leaf(-10.0)
    terms = of_pair(settings, chosen, leaf(-12.0))  # beta * gap = 1.5
    assert torch.autograd.grad(terms.loss.sum(), chosen)[0].item() == 0.0
    assert terms.loss.item() == 0.0


def test_variants_without_beta_take_the_published_one() -> None:
    betas = {variant: PreferenceSettings(variant=variant).beta for variant in VARIANTS}
    assert betas == {"sigmoid": 0.1, "ipo": 0.1, "hinge": 0.1, "sigmoid_norm": 5.0, "simpo": 2.0}
    assert PreferenceSettings(variant="simpo").gamma == 0.5
    given = PreferenceSettings(variant="simpo", beta=0.3, gamma=0.0)
    assert (given.beta, given.gamma) == (0.3, 0.0)


def test_half_precision_log_probs_are_compared_in_float32() -> None:
    chosen = torch.tensor([-100.0], dtype=torch.bfloat16)
    terms = of_pair(PreferenceSettings(), chosen, chosen, ref_chosen=chosen, ref_rejected=chosen)
    assert terms.loss.dtype == torch.float32
    assert terms.loss.item() == pytest.approx(log(2), abs=1e-7)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"variant": "sigmoid", "gamma": 0.5}, "gamma is the margin of simpo"),
        ({"variant": "ipo", "label_smoothing": 0.1}, "ipo has no likelihood"),
        ({"variant": "hinge", "label_smoothing": 0.1}, "hinge has no likelihood"),
        ({"variant": "sigmoid", "label_smoothing": 0.5}, "at 0.5 the pairs say nothing"),
        ({"variant": "sigmoid", "beta": 0.0}, "greater than 0"),
        ({"variant": "dpo"}, "sigmoid"),
    ],
)
def test_senseless_settings_are_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        PreferenceSettings(**changes)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"ref_rejected": None}, "compares with a reference"),
        ({"len_rejected": torch.tensor([0])}, "at least 1, got 0"),
        ({"len_chosen": torch.tensor([5, 5])}, "one common shape"),
        ({"ref_chosen": torch.zeros(2)}, "one common shape"),
    ],
)
def test_impossible_pairs_are_refused(other: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        of_pair(PreferenceSettings(), leaf(-10.0), leaf(-12.0), **other)


def logistic(value: float) -> float:
    return 1 / (1 + exp(-value))


def test_reward_model_golden_numbers() -> None:
    scores = leaf(1.0, 0.2)
    terms = reward_model_loss(scores, leaf(0.0, 0.5))  # differences 1 and -0.3
    assert terms.loss.item() == pytest.approx(0.583808, abs=2e-6)
    assert terms.accuracy == 0.5
    [gradient] = torch.autograd.grad(terms.loss, scores)
    assert gradient.tolist() == pytest.approx([-0.134471, -0.287221], abs=2e-6)  # -s(-1) / 2, -s(0.3) / 2


def test_reward_model_margin_and_centre() -> None:
    terms = reward_model_loss(leaf(1.0, 0.2), leaf(0.0, 0.5), margin=torch.tensor([0.5, 0.0]).double(), center=0.1)
    ranking = (-log(logistic(1.0 - 0.5)) - log(logistic(-0.3))) / 2
    assert terms.loss.item() == pytest.approx(ranking + 0.1 * (1.0**2 + 0.7**2) / 2)
    assert terms.accuracy == 0.5  # of the scores themselves, margin or not


def test_a_tie_is_not_ranked_right() -> None:
    assert reward_model_loss(leaf(1.0), leaf(1.0)).accuracy == 0.0


@pytest.mark.parametrize(
    ("rejected", "options", "reason"),
    [
        (torch.zeros(3), {}, "one common shape"),
        (torch.zeros(2), {"margin": torch.zeros(3)}, "one common shape"),
        (torch.zeros(2), {"center": -0.1}, "center"),
    ],
)
def test_reward_model_refusals(rejected: Tensor, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        reward_model_loss(torch.zeros(2), rejected, **options)


def test_no_pair_no_reward_model_loss() -> None:
    with pytest.raises(ValueError, match="0 pairs"):
        reward_model_loss(torch.zeros(0), torch.zeros(0))


@st.composite
def preferences(draw: st.DrawFn) -> PreferenceSettings:
    variant = draw(st.sampled_from(VARIANTS))
    changes = {"gamma": draw(st.just(0.0) | st.floats(1e-3, 2))} if variant == "simpo" else {}
    if variant not in ("ipo", "hinge"):
        changes |= {"label_smoothing": draw(st.just(0.0) | st.floats(1e-3, 0.49))}
    return PreferenceSettings(variant=variant, beta=draw(st.floats(1e-3, 10)), **changes)  # type: ignore[arg-type]


def evaluated(expression: str, **names: Any) -> float:
    """A printed expression as Python reads it, once its signs are spelled out."""
    spelled = expression.translate(str.maketrans("−·Δ⁺⁻", "-*Dpm", "ᵢ"))
    spelled = spelled.replace("²", "**2").replace("log σ", "logs").replace("exp", "math.exp")
    value: float = eval(spelled, {"math": math, "max": max, **names})
    return value


def read_loss(text: str, pair: dict[str, float]) -> float:
    """The loss of a pair from the printed text alone."""
    text = " ".join(text.split())

    def after(start: str, end: str) -> str:
        found = re.search(f"{re.escape(start)} (.*?){end}", text)
        assert found is not None, start
        return found[1]

    def logs(x: float) -> float:
        return log(evaluated(after("σ(x) =", r" Δᵢ"), x=x))

    compared = after("d⁺ᵢ = Σₜ", r" over")
    assert compared in ("(l⁺ᵢₜ − ref⁺ᵢₜ)", "l⁺ᵢₜ")
    is_relative = "ref" in compared
    sums = {
        "dp": pair["chosen"] - pair["ref_chosen"] * is_relative,
        "dm": pair["rejected"] - pair["ref_rejected"] * is_relative,
    }
    gap = evaluated(after("Δᵢ =", r","), **sums, Lp=pair["len_chosen"], Lm=pair["len_rejected"])
    logit = evaluated(after("zᵢ =", ";"), D=gap) if "zᵢ" in text else 0.0
    return evaluated(after("· Σᵢ [", r" \]"), D=gap, z=logit, logs=logs)


@given(
    settings=preferences(),
    logprobs=st.lists(st.floats(-9, -0.1), min_size=4, max_size=4),
    lengths=st.lists(st.integers(1, 9), min_size=2, max_size=2),
)
def test_the_text_alone_is_enough_to_recompute_the_loss(
    settings: PreferenceSettings, logprobs: list[float], lengths: list[int]
) -> None:
    names = ("chosen", "rejected", "ref_chosen", "ref_rejected")
    pair = dict(zip((*names, "len_chosen", "len_rejected"), (*logprobs, *lengths), strict=True))
    tensors = {name: torch.tensor([value], dtype=torch.float64) for name, value in pair.items()}
    computed = preference_loss(settings, **tensors).loss.item()
    assert read_loss(describe_preference(settings).text, pair) == pytest.approx(computed, rel=1e-9, abs=1e-12)


@given(settings=preferences(), batch_size=st.integers(1, 10**6))
def test_every_setting_that_changes_the_loss_changes_the_text(settings: PreferenceSettings, batch_size: int) -> None:
    def other(**changes: Any) -> PreferenceSettings:
        kept = settings.model_dump() | changes
        return PreferenceSettings(**(kept | {"gamma": 0.0} if kept["variant"] != "simpo" else kept))

    logistic = ["sigmoid", "sigmoid_norm", "simpo"]
    changed = {
        "beta": other(beta=settings.beta * 1.0001),
        **({"gamma": other(gamma=settings.gamma * 1.0001 + 1e-9)} if settings.variant == "simpo" else {}),
        **{name: other(variant=name) for name in logistic if name != settings.variant},
        **{name: other(variant=name, label_smoothing=0.0) for name in ("ipo", "hinge") if name != settings.variant},
    }
    if settings.variant in logistic:
        changed["label_smoothing"] = other(label_smoothing=settings.label_smoothing * 1.0001 + 1e-9)
    own = describe_preference(settings, batch_size=batch_size)
    assert [
        name for name, new in changed.items() if describe_preference(new, batch_size=batch_size).text == own.text
    ] == []
    assert describe_preference(settings, batch_size=batch_size + 1).text != own.text
    assert max(map(len, str(own).splitlines())) <= 100


@given(
    settings=preferences(),
    chosen=st.floats(-9, -0.1),
    rejected=st.floats(-9, -0.1),
)
def test_the_stated_push_is_the_gradient(settings: PreferenceSettings, chosen: float, rejected: float) -> None:
    values = leaf(chosen), leaf(rejected)
    terms = of_pair(settings, *values)
    gap, length = terms.gap.item(), {"L": 5.0, "l": 4.0}
    stated = " ".join(describe_preference(settings).gradient.split())
    found = re.search(r"wᵢ = (.*?): −wᵢ(/L⁺ᵢ)?/B·∇l⁺ᵢₜ .* \+wᵢ(/L⁻ᵢ)?/B·∇l⁻ᵢₜ", stated)
    assert found is not None
    push, *when = found[1].split(" where ")
    if abs(1 - settings.beta * gap) < 1e-9:
        return  # the kink of the hinge
    weight = evaluated(push.replace("σ", "sigma"), D=gap, z=settings.beta * gap - settings.gamma, sigma=logistic)
    if when and not settings.beta * gap < 1:
        weight = 0.0
    expected = [-weight / (length["L"] if found[2] else 1), weight / (length["l"] if found[3] else 1)]
    gradients = [value.item() for value in torch.autograd.grad(terms.loss.sum(), values)]
    assert gradients == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("variant", "statement"),
    [
        ("sigmoid", "0.1·KL(policy ‖ ref)"),
        ("ipo", "the target 1/(2·0.1) nats per token holds the policy"),
        ("hinge", "a gap of 1/0.1 nats is enough"),
        ("sigmoid_norm", "the minimum is not that of a KL"),
        ("simpo", "none, so no KL holds the policy"),
    ],
)
def test_what_holds_the_policy_is_stated(variant: str, statement: str) -> None:
    formula = describe_preference(PreferenceSettings(variant=variant))
    assert statement in " ".join(formula.gradient.split())
    assert ("ref⁺ᵢₜ" in formula.symbols) == (variant != "simpo")


def test_supervised_learning_states_what_bounds_it() -> None:
    formula = describe_supervised(batch_size=32, steps=40, lr=2e-4)
    assert "L = 1/(Σᵢ Lᵢ) · Σᵢ Σₜ −lᵢₜ" in formula.text
    assert "32 completions in the step" in formula.text
    assert "40 steps at a learning rate of at most 0.0002" in " ".join(formula.gradient.split())
    assert max(map(len, str(formula).splitlines())) <= 100
