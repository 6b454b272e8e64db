"""Losses on pairs: golden numbers, finite differences, refusals."""

from math import exp, log
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oncurve.algo import PreferenceSettings, PreferenceTerms, preference_loss, reward_model_loss

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
