"""The settings of the objective and the loss of a micro-batch."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from oncurve.algo import (
    AdvantageSettings,
    ObjectiveSettings,
    entropy_from_logits,
    policy_loss,
    sequence_weights,
    token_logprobs_from_logits,
    token_weights,
)

LENGTHS = [3, 1, 4, 2]
GROUPS = [0, 0, 1, 1]
AGGREGATIONS = ("seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "constant", "prompt-mean")


def step(settings: ObjectiveSettings, seed: int = 0) -> dict[str, Tensor]:
    """Return a padded step of four completions of two prompts; padding holds NaN."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.tensor(LENGTHS)
    mask = torch.arange(5) < lengths[:, None]

    def random(scale: float = 1.0) -> Tensor:
        return torch.where(mask, scale * torch.randn(4, 5, generator=rng, dtype=torch.float64), torch.nan)

    logprobs = random() - 2
    weights = sequence_weights(lengths, torch.tensor(GROUPS), settings.aggregation, max_tokens=6)
    return {
        "logprobs": logprobs,
        "old_logprobs": logprobs + random(0.3),
        "ref_logprobs": logprobs + random(0.3),
        "advantages": torch.where(mask, torch.tensor([1.0, -0.5, 0.7, -2.0]).double()[:, None], torch.nan),
        "entropy": random().abs(),
        "weights": token_weights(weights, mask),
    }


def rich(**changes: Any) -> ObjectiveSettings:
    return ObjectiveSettings(**{"clip_high": 0.3, "kl_coef": 0.1, "entropy_coef": 0.05, **changes})


def gradients(settings: ObjectiveSettings, batch: dict[str, Tensor]) -> tuple[float, Tensor, Tensor]:
    leaves = {name: batch[name].clone().requires_grad_() for name in ("logprobs", "entropy")}
    terms = policy_loss(settings, **{**batch, **leaves}, num_step_tokens=sum(LENGTHS))  # type: ignore[arg-type]
    terms.total.backward()
    grads = [leaves[name].grad for name in ("logprobs", "entropy")]
    assert grads[0] is not None
    assert grads[1] is not None
    return terms.total.item(), grads[0], grads[1]


def test_the_terms_on_paper() -> None:
    # Two tokens of weights 1/2 and 1/4; ratio 1; A = 2 and -1; d = log 2 and 0; entropies 0.3 and 0.5.
    settings = ObjectiveSettings(kl_coef=0.1, kl_estimator="k2", entropy_coef=0.2)
    logprobs = torch.tensor([-1.0, -2.0], dtype=torch.float64)
    terms = policy_loss(
        settings,
        logprobs=logprobs,
        old_logprobs=logprobs,
        advantages=torch.tensor([2.0, -1.0]),
        weights=torch.tensor([0.5, 0.25], dtype=torch.float64),
        ref_logprobs=logprobs - torch.tensor([2.0, 0.0]).log().nan_to_num(neginf=0.0),
        entropy=torch.tensor([0.3, 0.5], dtype=torch.float64),
        num_step_tokens=4,
    )
    kl = 0.5 * 0.6931471805599453**2 / 2
    assert terms.policy.item() == pytest.approx(-1.0 + 0.25)
    assert terms.kl.item() == pytest.approx(kl, abs=1e-6)
    assert terms.entropy.item() == pytest.approx(0.2)
    assert terms.total.item() == pytest.approx(-0.75 + 0.1 * kl - 0.2 * 0.2, abs=1e-6)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@given(data=st.data(), seed=st.integers(0, 1000))
def test_any_split_into_micro_batches_gives_the_same_gradient(aggregation: str, data: st.DataObject, seed: int) -> None:
    settings = rich(aggregation=aggregation)
    batch = step(settings, seed)
    whole = gradients(settings, batch)
    order = torch.tensor(data.draw(st.permutations(range(4))))
    cuts = sorted(data.draw(st.sets(st.integers(1, 3))))
    parts = [gradients(settings, {n: t[rows] for n, t in batch.items()}) for rows in order.tensor_split(cuts)]
    assert sum(part[0] for part in parts) == pytest.approx(whole[0])
    for place in (1, 2):
        joined = torch.cat([part[place] for part in parts])  # type: ignore[arg-type]
        assert torch.allclose(joined, whole[place][order])  # type: ignore[index]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_padding_never_matters_and_packed_tokens_are_the_same(aggregation: str) -> None:
    settings = rich(aggregation=aggregation)
    batch = step(settings)
    trained = batch["weights"] != 0
    padded, packed = gradients(settings, batch), gradients(settings, {n: t[trained] for n, t in batch.items()})
    assert padded[0] == pytest.approx(packed[0])
    for place in (1, 2):
        assert torch.allclose(padded[place][trained], packed[place])  # type: ignore[index]
        assert torch.equal(padded[place][~trained], torch.zeros(10).double())  # type: ignore[index]


def test_ratio_one_gives_the_gradient_of_reinforce() -> None:
    settings = ObjectiveSettings()
    batch = step(settings) | {"old_logprobs": step(settings)["logprobs"]}
    _, gradient, _ = gradients(settings.model_copy(update={"entropy_coef": 1e-9}), batch)
    expected = torch.where(batch["weights"] != 0, -batch["weights"] * batch["advantages"], 0.0)
    assert torch.allclose(gradient, expected)


def test_a_kl_in_the_reward_is_measured_but_not_added_to_the_loss() -> None:
    settings = ObjectiveSettings(kl_coef=0.1, kl_estimator="k1", kl_placement="reward")
    terms = policy_loss(settings, **step(settings), num_step_tokens=10)  # type: ignore[arg-type]
    assert terms.kl.item() != 0.0
    assert terms.total.item() == terms.policy.item()


def test_without_coefficients_reference_and_entropy_are_measured_only() -> None:
    settings = ObjectiveSettings()
    batch = step(settings)
    terms = policy_loss(settings, **batch, num_step_tokens=10)  # type: ignore[arg-type]
    assert terms.total.item() == terms.policy.item()
    assert terms.entropy.item() == pytest.approx(batch["entropy"].nansum().item() / 10)
    bare = {name: batch[name] for name in ("logprobs", "old_logprobs", "advantages", "weights")}
    alone = policy_loss(settings, **bare)
    assert (alone.kl.item(), alone.entropy.item()) == (0.0, 0.0)
    assert alone.total.item() == terms.total.item()


def test_the_entropy_bonus_raises_entropy_and_a_k2_pulls_to_the_reference() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0]], dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([0])
    logprobs = token_logprobs_from_logits(logits, ids, 1.0)
    shared = {"logprobs": logprobs, "old_logprobs": logprobs, "advantages": torch.zeros(1), "weights": torch.ones(1)}
    entropy = entropy_from_logits(logits, 1.0)
    bonus = policy_loss(ObjectiveSettings(entropy_coef=1.0), **shared, entropy=entropy, num_step_tokens=1)
    (push,) = torch.autograd.grad(bonus.total, logits, retain_graph=True)
    assert entropy_from_logits(logits - 0.1 * push, 1.0).item() > entropy.item()
    pull = policy_loss(ObjectiveSettings(kl_coef=1.0, kl_estimator="k2"), **shared, ref_logprobs=logprobs.detach() - 1)
    (push,) = torch.autograd.grad(pull.total, logits)
    assert token_logprobs_from_logits(logits - 0.1 * push, ids, 1.0).item() < logprobs.item()


@pytest.mark.parametrize(
    ("settings", "left_out", "message"),
    [
        (ObjectiveSettings(kl_coef=0.1), "ref_logprobs", "ref_logprobs is None"),
        (ObjectiveSettings(entropy_coef=0.1), "entropy", "entropy is None"),
    ],
)
def test_what_the_settings_need_must_be_there(settings: ObjectiveSettings, left_out: str, message: str) -> None:
    batch = step(settings)
    del batch[left_out]
    with pytest.raises(ValueError, match=message):
        policy_loss(settings, **batch, num_step_tokens=10)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_step_tokens", [None, 0])
def test_entropy_needs_the_tokens_of_the_step(num_step_tokens: int | None) -> None:
    with pytest.raises(ValueError, match="num_step_tokens"):
        policy_loss(ObjectiveSettings(), **step(ObjectiveSettings()), num_step_tokens=num_step_tokens)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["old_logprobs", "ref_logprobs", "advantages", "entropy", "weights"])
def test_another_shape_is_refused(name: str) -> None:
    settings = rich()
    batch = step(settings)
    batch[name] = batch[name][:, :1]
    with pytest.raises(ValueError, match="common shape"):
        policy_loss(settings, **batch, num_step_tokens=10)  # type: ignore[arg-type]


def test_k1_in_the_loss_is_refused_with_its_reason() -> None:
    with pytest.raises(ValidationError, match="expected gradient is 0"):
        ObjectiveSettings(kl_coef=0.1, kl_estimator="k1", kl_placement="loss")
    assert not ObjectiveSettings(kl_coef=0.0, kl_estimator="k1").needs_reference
    assert ObjectiveSettings(kl_coef=0.1, kl_estimator="k1", kl_placement="reward").needs_reference


def test_a_kl_alone_is_never_scaled_to_full_size() -> None:
    options: dict[str, Any] = {"kl_coef": 0.1, "kl_estimator": "k1", "kl_placement": "reward"}
    with pytest.raises(ValidationError, match="only spread"):
        ObjectiveSettings(**options, zero_variance="keep")
    ObjectiveSettings(**options, zero_variance="skip")
    ObjectiveSettings(**options, zero_variance="keep", advantage=AdvantageSettings(estimator="rloo"))
    ObjectiveSettings(**{**options, "kl_placement": "loss", "kl_estimator": "k3"}, zero_variance="keep")


@pytest.mark.parametrize(
    "values",
    [
        {"clip_low": 0.0},
        {"clip_low": 1.1},
        {"clip_high": 0.0},
        {"kl_coef": -0.1},
        {"entropy_coef": -0.1},
        {"resample_rounds": 0},
        {"aggregation": "mean"},
        {"clip_hi": 0.2},
        {"advantage": {"std_eps": -1.0}},
        {"advantage": {"tolerance": -1.0}},
        {"advantage": {"ddof": 2}},
    ],
)
def test_values_outside_their_range_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ObjectiveSettings(**values)


def test_the_defaults_are_stated() -> None:
    assert ObjectiveSettings().model_dump() == {
        "advantage": {"estimator": "group_zscore", "ddof": 0, "std_eps": 1e-6, "tolerance": 1e-6},
        "clip_low": 0.2,
        "clip_high": 0.2,
        "aggregation": "seq-mean-token-mean",
        "kl_coef": 0.0,
        "kl_estimator": "k3",
        "kl_placement": "loss",
        "entropy_coef": 0.0,
        "zero_variance": "skip",
        "resample_rounds": 4,
        "mask_truncated": False,
    }
