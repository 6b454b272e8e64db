"""The other policy losses: what they share, and what sets them apart."""

from collections.abc import Callable
from math import exp, inf, log, nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oncurve import algo

MASK = torch.tensor([[True, True, True], [True, True, False]])
OLD = torch.tensor([[-1.2, -0.4, -2.5], [-0.9, -0.8, -7.0]], dtype=torch.float64)
NEW = torch.tensor([[-1.0, -0.5, -2.0], [-0.7, -1.2, -7.0]], dtype=torch.float64)
ADVANTAGES = torch.tensor([1.0, -0.5], dtype=torch.float64)
WIDE = {"clip_low": 0.3, "clip_high": 0.4}


def tokens(advantages: Tensor) -> Tensor:
    return advantages[:, None].expand(MASK.shape)


LOSSES: dict[str, tuple[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]]] = {
    "cispo": ("token-mean", lambda new, old, a, m: algo.cispo_loss(new, old, tokens(a), ratio_min=0.0, ratio_max=5.0)),
    "decoupled": (
        "token-mean",
        lambda new, old, a, m: algo.decoupled_loss(new, old, old, tokens(a), **WIDE, cap=5.0),
    ),
    "gmpo": ("seq-mean-token-mean", lambda new, old, a, m: algo.gmpo_loss(new, old, a, m, **WIDE)),
    "gspo": ("seq-mean-token-mean", lambda new, old, a, m: algo.gspo_loss(new, old, a, m, **WIDE)),
    "gspo_token": ("seq-mean-token-mean", lambda new, old, a, m: algo.gspo_token_loss(new, old, tokens(a), m, **WIDE)),
    "luspo": ("seq-mean-token-sum", lambda new, old, a, m: algo.gspo_loss(new, old, a, m, **WIDE)),
    "ppo": ("token-mean", lambda new, old, a, m: algo.clipped_surrogate(new, old, tokens(a), **WIDE)),
    "reinforce": ("token-mean", lambda new, old, a, m: algo.reinforce_loss(new, tokens(a))),
    "sapo": ("seq-mean-token-mean", lambda new, old, a, m: algo.sapo_loss(new, old, tokens(a))),
    "topr": ("seq-mean-token-sum", lambda new, old, a, m: algo.topr_loss(new, old, a, m)),
    "vespo": ("token-mean", lambda new, old, a, m: algo.vespo_loss(new, old, a, m)),
}
SEQUENCE_LOSSES = ("gmpo", "gspo", "gspo_token", "luspo", "topr", "vespo")


def weights(aggregation: str) -> Tensor:
    found = algo.sequence_weights(MASK.sum(dim=1), torch.tensor([0, 0]), aggregation, max_tokens=3)  # type: ignore[arg-type]
    return algo.token_weights(found, MASK)


def gradient(name: str, new: Tensor, old: Tensor, advantages: Tensor = ADVANTAGES) -> Tensor:
    aggregation, loss = LOSSES[name]
    logprobs = new.clone().requires_grad_()
    total = (weights(aggregation) * loss(logprobs, old, advantages, MASK))[MASK].sum()
    return torch.autograd.grad(total, logprobs)[0]


@pytest.mark.parametrize("name", LOSSES)
def test_at_ratio_one_every_loss_has_the_gradient_of_reinforce(name: str) -> None:
    aggregation, _ = LOSSES[name]
    scale = MASK.sum(dim=1, keepdim=True) / 1.0 if name == "luspo" else 1.0
    if name == "luspo":
        aggregation = "seq-mean-token-mean"
    expected = -weights(aggregation) * tokens(ADVANTAGES) * scale
    assert torch.allclose(gradient(name, NEW, NEW), expected)


@pytest.mark.parametrize("name", LOSSES)
def test_no_gradient_reaches_the_old_policy_or_the_advantages(name: str) -> None:
    old, advantages = OLD.clone().requires_grad_(), ADVANTAGES.clone().requires_grad_()
    LOSSES[name][1](NEW.clone().requires_grad_(), old, advantages, MASK).sum().backward()
    assert old.grad is None
    assert advantages.grad is None


@pytest.mark.parametrize("name", SEQUENCE_LOSSES)
@pytest.mark.parametrize("garbage", [nan, inf, 3.0])
def test_padding_never_matters(name: str, garbage: float) -> None:
    spoiled = [torch.where(MASK, tensor, garbage) for tensor in (NEW, OLD)]
    assert torch.allclose(gradient(name, *spoiled), gradient(name, NEW, OLD))


@pytest.mark.parametrize("name", SEQUENCE_LOSSES)
def test_another_completion_never_matters(name: str) -> None:
    moved = OLD + torch.tensor([[0.0], [0.3]])
    assert torch.allclose(gradient(name, NEW, OLD)[0], gradient(name, NEW, moved)[0])


@pytest.mark.parametrize("name", SEQUENCE_LOSSES)
def test_shapes_are_checked(name: str) -> None:
    loss = LOSSES[name][1]
    with pytest.raises(ValueError, match=r"common shape|needs \[B, T\]"):
        loss(NEW, OLD[:, :2], ADVANTAGES, MASK)
    if name != "gspo_token":
        with pytest.raises(ValueError, match=r"\[B\] advantages, got \[2, 3\] and \[2, 3\]"):
            loss(NEW, OLD, tokens(ADVANTAGES), MASK)


@given(seed=st.integers(0, 10**6), low=st.floats(0.01, 0.9), high=st.floats(0.01, 2.0))
def test_gspo_token_with_equal_advantages_is_gspo(seed: int, low: float, high: float) -> None:
    rng = torch.Generator().manual_seed(seed)
    new, old = (torch.randn(2, 3, generator=rng, dtype=torch.float64) for _ in range(2))
    grads = []
    for loss, advantages in ((algo.gspo_loss, ADVANTAGES), (algo.gspo_token_loss, tokens(ADVANTAGES))):
        logprobs = new.clone().requires_grad_()
        total = (
            weights("seq-mean-token-mean") * loss(logprobs, old, advantages, MASK, clip_low=low, clip_high=high)
        ).sum()
        grads.append(torch.autograd.grad(total, logprobs)[0])
    assert torch.allclose(*grads)


@given(seed=st.integers(0, 10**6))
def test_a_decoupled_loss_around_the_sampler_is_the_clipped_surrogate(seed: int) -> None:
    new, old, advantages = torch.randn(3, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    decoupled = algo.decoupled_loss(new, old, old, advantages, **WIDE, cap=5.0)
    assert torch.allclose(decoupled, algo.clipped_surrogate(new, old, advantages, **WIDE))


@pytest.mark.parametrize(
    ("weight", "mode", "expected"),
    [(4.0, "mask", 4.0), (6.0, "mask", 0.0), (4.0, "truncate", 4.0), (6.0, "truncate", 5.0), (0.1, "truncate", 0.1)],
)
def test_the_decoupled_weight_is_capped(weight: float, mode: str, expected: float) -> None:
    # Ratio 1.2 around the proximal policy, A = 2: the surrogate is -2.4.
    proximal = torch.tensor([-1.0], dtype=torch.float64)
    found = algo.decoupled_loss(
        proximal + log(1.2),
        proximal,
        proximal - log(weight),
        torch.tensor([2.0]),
        **WIDE,
        cap=5.0,
        cap_mode=mode,  # type: ignore[arg-type]
    )
    assert found.item() == pytest.approx(-2.4 * expected)


def one(ratio: float) -> tuple[Tensor, Tensor]:
    old = torch.tensor([-3.0], dtype=torch.float64)
    return (old + log(ratio)).requires_grad_(), old


@pytest.mark.parametrize(("ratio", "kept"), [(0.5, 0.8), (1.1, 1.1), (9.0, 1.5)])
def test_cispo_limits_the_weight_and_drops_no_token(ratio: float, kept: float) -> None:
    new, old = one(ratio)
    loss = algo.cispo_loss(new, old, torch.tensor([-2.0]), ratio_min=0.8, ratio_max=1.5)
    assert loss.item() == pytest.approx(2 * kept * (log(ratio) - 3))
    assert torch.autograd.grad(loss, new)[0].item() == pytest.approx(2 * kept)


@pytest.mark.parametrize(("advantage", "tau"), [(2.0, 3.0), (-2.0, 0.5), (0.0, 0.5)])
def test_sapo_on_paper(advantage: float, tau: float) -> None:
    new, old = one(1.5)
    loss = algo.sapo_loss(new, old, torch.tensor([advantage]), tau_positive=3.0, tau_negative=0.5)
    gate = 1 / (1 + exp(-tau * 0.5))
    assert loss.item() == pytest.approx(-4 / tau * gate * advantage, rel=1e-6)
    assert torch.autograd.grad(loss, new)[0].item() == pytest.approx(-4 * gate * (1 - gate) * 1.5 * advantage, rel=1e-6)


def test_reinforce_is_scaled() -> None:
    found = algo.reinforce_loss(torch.tensor([-1.5, -2.0]), torch.tensor([2.0, -1.0]), scale=3.0)
    assert found.tolist() == pytest.approx([9.0, -6.0])


PAIR = torch.tensor([[True, True]])


def pair(*ratios: float) -> tuple[Tensor, Tensor]:
    old = torch.tensor([[-3.0, -4.0]], dtype=torch.float64)
    return (old + torch.tensor([ratios], dtype=torch.float64).log()).requires_grad_(), old


@pytest.mark.parametrize(
    ("ratios", "advantage", "loss"),
    [
        ((1.2, 1.2), 2.0, -2.4),
        ((4.0, 1.0), 2.0, -2.8),  # geometric mean 2, clipped to 1.4
        ((4.0, 1.0), -2.0, 4.0),
        ((0.25, 1.0), -2.0, 1.4),  # geometric mean 0.5, clipped to 0.7
        ((0.25, 1.0), 2.0, -1.0),
    ],
)
def test_gspo_clips_the_geometric_mean(ratios: tuple[float, float], advantage: float, loss: float) -> None:
    new, old = pair(*ratios)
    gain = torch.tensor([advantage], dtype=torch.float64)
    assert algo.gspo_loss(new, old, gain, PAIR, **WIDE)[0].tolist() == pytest.approx([loss, loss])
    assert algo.gspo_token_loss(new, old, gain[:, None].expand(1, 2), PAIR, **WIDE)[0].tolist() == pytest.approx(
        [loss, loss]
    )


@pytest.mark.parametrize(
    ("ratios", "advantage", "log_mean"),
    [
        ((4.0, 1.0), 2.0, 0.2),  # log 4 is cut to 0.4
        ((4.0, 1.0), -2.0, log(4) / 2),
        ((0.25, 1.0), -2.0, -0.15),  # cut to -0.3
        ((0.25, 1.0), 2.0, -log(4) / 2),
    ],
)
def test_gmpo_clips_before_it_averages(ratios: tuple[float, float], advantage: float, log_mean: float) -> None:
    new, old = pair(*ratios)
    found = algo.gmpo_loss(new, old, torch.tensor([advantage], dtype=torch.float64), PAIR, **WIDE)
    assert found[0].tolist() == pytest.approx([-advantage * exp(log_mean)] * 2)


@pytest.mark.parametrize(
    ("ratios", "advantage", "weight"),
    [((4.0, 2.0), 2.0, 1.0), ((0.25, 0.5), 2.0, 1.0), ((4.0, 2.0), -2.0, 1.0), ((0.5, 0.25), -2.0, 0.125)],
)
def test_topr_fades_only_bad_completions(ratios: tuple[float, float], advantage: float, weight: float) -> None:
    new, old = pair(*ratios)
    found = algo.topr_loss(new, old, torch.tensor([advantage], dtype=torch.float64), PAIR)
    assert found[0].tolist() == pytest.approx((-weight * advantage * new.detach()[0]).tolist())


@pytest.mark.parametrize(
    ("ratios", "advantage", "weight"),
    [((2.0, 1.5), 2.0, 9 * exp(-6)), ((2.0, 1.5), -2.0, 27 * exp(-4)), ((0.5, 1.0), 0.0, 0.0)],
)
def test_vespo_weighs_by_the_product(ratios: tuple[float, float], advantage: float, weight: float) -> None:
    new, old = pair(*ratios)
    found = algo.vespo_loss(new, old, torch.tensor([advantage], dtype=torch.float64), PAIR)
    assert found[0].tolist() == pytest.approx((-weight * advantage * new.detach()[0]).tolist())


def test_extreme_products_stay_finite() -> None:
    for difference in (-30.0, 30.0):
        new = torch.full((1, 2), -40.0 + difference, dtype=torch.float64)
        old = torch.full((1, 2), -40.0, dtype=torch.float64)
        gain = torch.tensor([-1.0], dtype=torch.float64)
        for loss in (algo.vespo_loss, algo.topr_loss):
            assert bool(torch.isfinite(loss(new, old, gain, PAIR)).all())
    faded = algo.vespo_loss(torch.full((1, 2), -60.0).double(), torch.full((1, 2), -40.0).double(), -gain, PAIR)
    assert faded[0].tolist() == pytest.approx([60 * 1e-16 * exp(3)] * 2, rel=1e-6)  # the product is floored at 1e-8
