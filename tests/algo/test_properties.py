"""What holds for every objective: silence, locality, REINFORCE at ratio 1, the KL's gradient, padding, splitting."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oncurve.algo import (
    AdvantageSettings,
    GradedRewards,
    ObjectiveSettings,
    estimate_advantages,
    finish_advantages,
    kl_estimate,
    policy_loss,
    sequence_weights,
    token_advantages,
    token_weights,
)
from oncurve.algo.advantage_settings import BINARY
from tests.algo.objectives import CORRECTIONS, ESTIMATORS, LOSSES, ONLY_WHITENED, PAIRS, objectives

WHOLE = [name for name in ESTIMATORS if name not in ("gae", "reinforce_pp")]
CENTRED = [name for name in WHOLE if not AdvantageSettings(estimator=name).learns_from_equal_groups]  # type: ignore[arg-type]


def graded(rewards: Tensor) -> GradedRewards:
    lengths = 1 + 3 * torch.arange(rewards.numel()).view_as(rewards) % 5
    components = torch.stack([rewards, rewards.square() - 1], dim=-1)
    return GradedRewards(
        rewards=rewards,
        scored=torch.ones_like(rewards, dtype=torch.bool),
        lengths=lengths,
        trained_lengths=lengths,
        components=components,
        component_weights=torch.tensor([1.0, -0.5], dtype=rewards.dtype),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("estimator", CENTRED)
def test_equal_groups_are_exactly_zero_for_every_centred_estimator(estimator: str, dtype: torch.dtype) -> None:
    # Fifteen times 0.7 has a std of 1.2e-7 in float32; the third group differs.
    value = 1.0 if estimator in BINARY else 0.7
    rewards = torch.full((3, 15), value, dtype=dtype)
    rewards[2, 4:] = 0.0
    found = estimate_advantages(AdvantageSettings(estimator=estimator), graded(rewards))  # type: ignore[arg-type]
    assert found[:2].tolist() == [[0.0] * 15] * 2
    assert bool(found[2].abs().sum() > 0) or estimator == "top_gap"


def of_tokens(setting: AdvantageSettings, rewards: Tensor) -> Tensor:
    """[P, G * T] advantages of tokens: the reward comes with the last of two."""
    token_rewards = torch.stack([torch.zeros_like(rewards.flatten()), rewards.flatten()], dim=1)
    mask = torch.ones_like(token_rewards, dtype=torch.bool)
    values = torch.tensor([0.3, 0.6], dtype=rewards.dtype).expand_as(token_rewards)
    found = token_advantages(setting, token_rewards, mask, values).advantages
    return finish_advantages(setting, found, mask.long()).view(len(rewards), -1)


def advantages_of(setting: AdvantageSettings, rewards: Tensor) -> Tensor:
    if setting.is_token_level:
        return of_tokens(setting, rewards)
    known = graded(rewards)
    return finish_advantages(setting, estimate_advantages(setting, known), known.trained_lengths)


FIRST, SECOND, THIRD = [1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]


CASES = [(name, False) for name in ESTIMATORS] + [(name, True) for name in ESTIMATORS if name not in ONLY_WHITENED]


@pytest.mark.parametrize(("estimator", "whiten"), CASES)
def test_one_group_influences_another_exactly_when_the_estimator_says_so(estimator: str, whiten: bool) -> None:
    attempts = {"k": 2} if estimator in ("pass_at_k", "pkpo") else {}
    setting = AdvantageSettings(estimator=estimator, whiten=whiten, **attempts)  # type: ignore[arg-type]
    found = [advantages_of(setting, torch.tensor([FIRST, other]).double())[0] for other in (SECOND, THIRD)]
    assert torch.equal(*found) != setting.couples_groups


def step(
    objective: ObjectiveSettings, seed: int = 0, *, is_on_policy: bool = False, by_token: bool = False
) -> dict[str, Tensor]:
    """Six completions of three prompts, padded with NaN."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([3, 1, 4, 2, 5, 2])
    mask = torch.arange(6) < lengths[:, None]

    def table(scale: float) -> Tensor:
        return torch.where(mask, scale * torch.randn(6, 6, generator=rng, dtype=torch.float64), torch.nan)

    logprobs = table(1.0) - 2
    gains = table(1.0)
    weights = sequence_weights(lengths, torch.tensor([0, 0, 1, 1, 2, 2]), objective.aggregation, max_tokens=7)
    return {
        "logprobs": logprobs,
        "old_logprobs": logprobs if is_on_policy else logprobs + table(0.3),
        "sampler_logprobs": logprobs if is_on_policy else logprobs + table(0.3),
        "ref_logprobs": logprobs + table(0.3),
        "entropy": table(1.0).abs(),
        "uniforms": torch.where(mask, torch.rand(6, 6, generator=rng, dtype=torch.float64), torch.nan),
        "advantages": gains if by_token else torch.where(mask, gains[:, :1], torch.nan),
        "weights": token_weights(weights, mask),
    }


def gradient(objective: ObjectiveSettings, batch: dict[str, Tensor]) -> tuple[float, Tensor]:
    """The loss, and its derivatives by log-probs and entropies side by side."""
    leaves = {name: batch[name].clone().requires_grad_() for name in ("logprobs", "entropy")}
    total = policy_loss(objective, **{**batch, **leaves}, num_step_tokens=17).total  # type: ignore[arg-type]
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return total.item(), torch.cat([torch.zeros_like(batch["logprobs"]) if g is None else g for g in found], dim=1)


def form(loss: str, aggregation: str, **values: Any) -> ObjectiveSettings:
    return ObjectiveSettings(loss=loss, aggregation=aggregation, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(("loss", "aggregation"), PAIRS)
def test_at_ratio_one_every_loss_has_the_gradient_of_reinforce(loss: str, aggregation: str) -> None:
    objective = form(loss, aggregation)
    batch = step(objective, is_on_policy=True)
    expected = torch.where(batch["weights"] != 0, -batch["weights"] * batch["advantages"], 0.0)
    assert torch.allclose(gradient(objective, batch)[1][:, :6], expected, atol=1e-12)


@pytest.mark.parametrize("loss", ["clip", "cispo", "sapo", "reinforce", "gspo_token"])
def test_at_ratio_one_advantages_of_tokens_stay_apart(loss: str) -> None:
    objective = form(loss, "seq-mean-token-mean")
    batch = step(objective, is_on_policy=True, by_token=True)
    expected = torch.where(batch["weights"] != 0, -batch["weights"] * batch["advantages"], 0.0)
    assert torch.allclose(gradient(objective, batch)[1][:, :6], expected, atol=1e-12)


POLICY = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)
OLD = torch.tensor([0.2, 0.5, -0.3], dtype=torch.float64).log_softmax(0)
REFERENCE = torch.tensor([-0.5, 0.7, 0.1], dtype=torch.float64).log_softmax(0)


def divergence_gradient(*, of_policy_to_reference: bool) -> Tensor:
    """d KL / d logits by autograd of the definition."""
    logits = POLICY.clone().requires_grad_()
    policy = logits.log_softmax(0)
    first, second = (policy, REFERENCE) if of_policy_to_reference else (REFERENCE, policy)
    return torch.autograd.grad((first.exp() * (first - second)).sum(), logits)[0]


def expected_gradient(estimator: str, sampler: Tensor) -> Tensor:
    """Gradient of the KL term of ``policy_loss`` over all three tokens, weighed by how often they are sampled."""
    logits = POLICY.clone().requires_grad_()
    objective = ObjectiveSettings(kl_coef=1.0, kl_estimator=estimator)  # type: ignore[arg-type]
    total = policy_loss(
        objective,
        logprobs=logits.log_softmax(0),
        old_logprobs=sampler,
        advantages=torch.zeros(3),
        weights=sampler.exp(),
        ref_logprobs=REFERENCE,
    ).total
    return torch.autograd.grad(total, logits)[0]


def test_the_gradient_of_each_kl_in_the_loss_by_enumeration() -> None:
    on_policy = POLICY.log_softmax(0)
    towards, away = divergence_gradient(of_policy_to_reference=True), divergence_gradient(of_policy_to_reference=False)
    assert torch.allclose(expected_gradient("k2", on_policy), towards)
    assert torch.allclose(expected_gradient("k3", on_policy), away)
    assert torch.allclose(expected_gradient("k3_weighted", on_policy), towards)
    assert torch.allclose(expected_gradient("k3_weighted", OLD), towards)
    assert not torch.allclose(expected_gradient("k2", OLD), towards, atol=1e-2)
    assert not torch.allclose(expected_gradient("k3", OLD), away, atol=1e-2)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_gradient_of_each_kl_in_the_reward_by_enumeration(estimator: str) -> None:
    # The reward is -k, the gradient that of REINFORCE with it: the sum over tokens of p * k * d log p.
    logits = POLICY.clone().requires_grad_()
    policy = logits.log_softmax(0)
    constant = kl_estimate(policy.detach(), REFERENCE, estimator)  # type: ignore[arg-type]
    (found,) = torch.autograd.grad((policy.detach().exp() * constant * policy).sum(), logits)
    towards, away = divergence_gradient(of_policy_to_reference=True), divergence_gradient(of_policy_to_reference=False)
    claims = {"k1": towards, "k3": towards - away}
    if estimator in claims:
        assert torch.allclose(found, claims[estimator])
    else:
        assert not torch.allclose(found, towards, atol=1e-2)


@given(objective=objectives(), seed=st.integers(0, 1000))
@settings(max_examples=60)
def test_padding_never_matters(objective: ObjectiveSettings, seed: int) -> None:
    batch = step(objective, seed, by_token=objective.advantage.is_token_level)
    padding = batch["weights"] == 0
    total, found = gradient(objective, batch)
    filled = {name: torch.where(padding, 7.0, table) for name, table in batch.items()} | {"weights": batch["weights"]}
    same_total, same = gradient(objective, filled)
    assert total == same_total
    assert torch.equal(found, same)
    assert not bool(found[torch.cat([padding, padding], dim=1)].any())


def split(objective: ObjectiveSettings, batch: dict[str, Tensor], parts: list[Tensor]) -> tuple[float, Tensor]:
    """The sum over workers or micro-batches, each with its rows only."""
    total, joined = 0.0, torch.zeros(6, 12, dtype=torch.float64)
    for rows in parts:
        part, joined[rows] = gradient(objective, {name: table[rows] for name, table in batch.items()})
        total += part
    return total, joined


@given(objective=objectives(), data=st.data())
@settings(max_examples=80)
def test_no_split_into_micro_batches_changes_the_gradient(objective: ObjectiveSettings, data: st.DataObject) -> None:
    objective = objective.model_copy(update={"token_filter": ObjectiveSettings().token_filter})
    batch = step(objective, by_token=objective.advantage.is_token_level)
    order = torch.tensor(data.draw(st.permutations(range(6))))
    parts = list(order.tensor_split(sorted(data.draw(st.sets(st.integers(1, 5))))))
    whole, found = gradient(objective, batch)
    total, joined = split(objective, batch, parts)
    assert total == pytest.approx(whole, abs=1e-12)
    assert torch.allclose(joined, found, atol=1e-12)


@pytest.mark.parametrize("num_workers", [1, 2, 3])
@pytest.mark.parametrize(("loss", "aggregation"), PAIRS)
def test_no_number_of_workers_changes_the_gradient(loss: str, aggregation: str, num_workers: int) -> None:
    for mode in CORRECTIONS:
        correction = {} if mode == "none" else {"mode": mode, "low": 0.7, "high": 1.5}
        objective = form(loss, aggregation, correction=correction, max_divergence=0.1, kl_coef=0.1, entropy_coef=0.05)
        batch = step(objective)
        _, joined = split(objective, batch, [torch.arange(rank, 6, num_workers) for rank in range(num_workers)])
        assert torch.allclose(joined, gradient(objective, batch)[1], atol=1e-12)


@pytest.mark.parametrize("mode", ["high_entropy", "clip_cov", "kl_cov"])
def test_a_token_filter_couples_the_whole_step_and_says_so(mode: str) -> None:
    bounds = {"low": -0.5, "high": 0.5} if mode == "clip_cov" else {}
    objective = ObjectiveSettings(token_filter={"mode": mode, "frac": 0.2, **bounds})  # type: ignore[arg-type]
    batch = step(objective)
    assert objective.couples_tokens
    _, joined = split(objective, batch, [torch.arange(0, 3), torch.arange(3, 6)])
    assert not torch.allclose(joined, gradient(objective, batch)[1])


@pytest.mark.parametrize("loss", ["clip", "gspo", "luspo", "gmpo", "sapo", "reinforce"])
def test_finite_differences_agree_where_nothing_is_held_constant(loss: str) -> None:
    aggregation = dict(PAIRS)[loss]
    objective = form(loss, aggregation, kl_coef=0.1, kl_estimator="k3_weighted")
    batch = step(objective)
    _, found = gradient(objective, batch)
    for place in batch["weights"].nonzero().tolist():
        losses = []
        for by in (1e-5, -1e-5):
            moved = batch["logprobs"].clone()
            moved[tuple(place)] += by
            losses.append(gradient(objective, batch | {"logprobs": moved})[0])
        assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(found[tuple(place)].item(), abs=1e-9)


def test_every_loss_has_a_pair() -> None:
    assert {loss for loss, _ in PAIRS} == set(LOSSES)
