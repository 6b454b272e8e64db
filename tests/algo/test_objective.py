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


REFUSALS: list[tuple[dict[str, Any], str]] = [
    # what is set, and a piece of the message: what is wrong, then what to do
    (
        {"loss": "gspo", "aggregation": "token-mean"},
        r"same for every token .* Set objective.aggregation = \"seq-mean-tok",
    ),
    ({"loss": "gspo", "aggregation": "seq-mean-token-sum"}, r"another objective.* Set objective.aggregation"),
    ({"loss": "gspo_token", "aggregation": "constant"}, r"geometric mean over the completion\. Set"),
    ({"loss": "gmpo", "aggregation": "token-mean"}, r"same for every token of a completion\. Set"),
    ({"loss": "luspo"}, r"each term times its length\. Set objective.aggregation = \"seq-mean-token-sum\""),
    (
        {"loss": "gspo", "advantage": {"estimator": "gae"}},
        r"gae gives one a token\. Set objective.loss = \"gspo_token\"",
    ),
    ({"loss": "topr", "advantage": {"estimator": "reinforce_pp"}}, r"one advantage a completion.* Set objective.loss"),
    ({"ratio_cap": 1.2}, r"ratio_cap 1.2 must be above 1 \+ clip_high = 1.2"),
    ({"ratio_cap": 2.0, "dual_clip": 3.0}, r"same thing in two ways: keep one"),
    ({"loss": "cispo", "clip_low": 0.1}, r"clip_low does nothing with loss cispo: it belongs to clip, .*Remove it"),
    ({"loss": "reinforce", "clip_high": 0.3}, r"clip_high does nothing with loss reinforce.*Remove it"),
    ({"loss": "gspo", "dual_clip": 3.0}, r"dual_clip does nothing with loss gspo: it belongs to clip\. Remove it"),
    ({"loss": "sapo", "ratio_cap": 3.0}, r"ratio_cap does nothing with loss sapo.*Remove it"),
    ({"cispo": {"ratio_max": 2.0}}, r"cispo does nothing with loss clip.*Remove it"),
    ({"sapo": {"tau_positive": 2.0}}, r"sapo does nothing with loss clip.*Remove it"),
    ({"vespo": {"rate_negative": 1.0}}, r"vespo does nothing with loss clip.*Remove it"),
    ({"loss": "cispo", "cispo": {"ratio_min": 5.0}}, r"ratio_min 5.0 must be below ratio_max 5.0"),
    ({"correction": {"mode": "seq_mask", "low": 2.0}}, r"low 2.0 must be below high 2.0"),
    ({"correction": {"high": 3.0}}, r"do nothing without a mode: set objective.correction.mode or remove"),
    (
        {"loss": "gspo", "token_filter": {"mode": "clip_cov"}},
        r"acts on clipped tokens, got loss gspo\. Set objective.loss",
    ),
    ({"token_filter": {"frac": 0.1}}, r"token_filter.frac does nothing with mode all.*Remove it, or set"),
    ({"token_filter": {"mode": "kl_cov", "low": 0.5}}, r"token_filter.low does nothing with mode kl_cov.*clip_cov"),
    ({"token_filter": {"mode": "high_entropy", "coef": 0.5}}, r"token_filter.coef does nothing with mode high_entropy"),
    ({"token_filter": {"mode": "clip_cov", "low": 5.0}}, r"low 5.0 must be below high 5.0"),
    ({"kl_adaptive": {}}, r"kl_coef is 0: it would stay 0\. Set kl_coef"),
    ({"kl_coef": 0.1, "kl_estimator": "k1"}, r"expected gradient is 0\. Set objective.kl_placement = \"reward\""),
    (
        {"kl_coef": 0.1, "kl_placement": "reward", "kl_estimator": "k3_weighted"},
        r"no gradient\. Set objective.kl_placement = \"loss\", or objective.kl_estimator = \"k1\"",
    ),
    *(
        (
            {"kl_coef": 0.1, "kl_placement": "reward", "kl_estimator": "k1", "zero_variance": "keep"}
            | {"advantage": {"estimator": estimator}},
            rf"{estimator} {reason}.* Set objective.kl_placement = \"loss\"",
        )
        for estimator, reason in {
            "gdpo": "normalises each reward component",
            "maxrl": "needs rewards of exactly 0 and 1",
            "pass_at_k": "needs rewards of exactly 0 and 1",
            "difficulty": "tells right from wrong by the sign",
            "raft": "compares rewards with a threshold",
            "ngrpo": "divides by the std of the group",
        }.items()
    ),
    *(
        (
            {"kl_coef": 0.1, "kl_placement": "reward", "kl_estimator": "k1", "zero_variance": keeping}
            | {"advantage": {"estimator": estimator}},
            r"the only spread\. Set objective.zero_variance = \"skip\", or objective.advantage.estimator",
        )
        for keeping in ("keep", "rescale")
        for estimator in ("group_zscore", "top_gap")
    ),
    (
        {"entropy_coef": 0.1, "entropy_adaptive": {"coef_max": 0.05}},
        r"starts at 0.1, above entropy_adaptive.coef_max 0.05: raise coef_max or lower entropy_coef",
    ),
    *(
        ({"advantage": {"estimator": estimator}}, r"learns from groups .* Set objective.zero_variance = \"keep\"")
        for estimator in ("batch_loo", "shrink", "reinforce_pp", "reinforce_pp_baseline", "ngrpo", "gae", "raft")
    ),
    (
        {"advantage": {"estimator": "pkpo", "leave_one_out": False}},
        r"learns from groups .* Set objective.zero_variance",
    ),
    (
        {"advantage": {"k": 3}},
        r"k does nothing with the estimator group_zscore: it belongs to pass_at_k, pkpo\. Remove",
    ),
    ({"advantage": {"estimator": "rloo", "ddof": 1}}, r"ddof does nothing with the estimator rloo.*Remove it"),
    ({"advantage": {"estimator": "group_mean", "std_eps": 0.1}}, r"std_eps does nothing with .* group_mean.*Remove it"),
    ({"advantage": {"estimator": "gae", "lam": 0.9, "lam_alpha": 0.1}}, r"both set lambda: keep one of them"),
    ({"advantage": {"estimator": "pkpo", "k": 1}}, r"nothing remains\. Set k to 2 or more, or leave_one_out to false"),
    ({"advantage": {"estimator": "raft", "best_of_group": True, "max_per_group": 2}}, r"keeps one a group: remove it"),
    ({"advantage": {"estimator": "raft", "whiten": True}}, r"minus its mean it is 0\. Remove it"),
    ({"advantage": {"estimator": "reinforce_pp", "whiten": True}}, r"whitened by definition\. Remove it"),
    ({"advantage": {"estimator": "reinforce_pp_baseline", "whiten": True}}, r"whitened by definition\. Remove it"),
]


@pytest.mark.parametrize(("values", "message"), REFUSALS)
def test_a_senseless_combination_is_refused_with_reason_and_remedy(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ObjectiveSettings(**values)


def test_what_the_refusals_leave_possible() -> None:
    assert not ObjectiveSettings(kl_coef=0.0, kl_estimator="k1").needs_reference
    assert ObjectiveSettings(kl_coef=0.1, kl_estimator="k1", kl_placement="reward").needs_reference
    options: dict[str, Any] = {"kl_coef": 0.1, "kl_estimator": "k1", "kl_placement": "reward"}
    ObjectiveSettings(**options, zero_variance="skip")
    ObjectiveSettings(**options, zero_variance="keep", advantage=AdvantageSettings(estimator="rloo"))
    ObjectiveSettings(**{**options, "kl_placement": "loss", "kl_estimator": "k3"}, zero_variance="keep")
    AdvantageSettings(estimator="rloo", ddof=1, whiten=True)  # the std of the whitening


@pytest.mark.parametrize(
    "values",
    [
        {"clip_low": 0.0},
        {"clip_low": 1.1},
        {"clip_high": 0.0},
        {"dual_clip": 1.0},
        {"ratio_cap": 1.0},
        {"max_divergence": 0.0},
        {"kl_coef": -0.1},
        {"entropy_coef": -0.1},
        {"resample_rounds": 0},
        {"aggregation": "mean"},
        {"loss": "ppo"},
        {"clip_hi": 0.2},
        {"correction": {"mode": "token_mask", "low": -0.1}},
        {"token_filter": {"mode": "high_entropy", "frac": 0.0}},
        {"advantage": {"std_eps": -1.0}},
        {"advantage": {"tolerance": -1.0}},
        {"advantage": {"ddof": 2}},
        {"advantage": {"clip": 0.0}},
        {"advantage": {"estimator": "gae", "gamma": 0.0}},
        {"advantage": {"estimator": "gae", "lam": 1.1}},
    ],
)
def test_values_outside_their_range_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ObjectiveSettings(**values)


def test_the_defaults_are_stated() -> None:
    assert ObjectiveSettings().model_dump() == {
        "preset": "",
        "advantage": {
            "estimator": "group_zscore",
            "ddof": 0,
            "std_eps": 1e-6,
            "tolerance": 1e-6,
            "k": 4,
            "leave_one_out": True,
            "shrinkage": 0.25,
            "std_of": "rewards",
            "max_reward": 1.0,
            "num_virtual": 1,
            "gamma": 1.0,
            "lam": 1.0,
            "lam_alpha": None,
            "threshold": 1.0,
            "best_of_group": False,
            "max_per_group": None,
            "difficulty": {"weight_min": 0.4, "weight_max": 1.5, "midpoint": 0.75, "slope": 10.0},
            "whiten": False,
            "clip": None,
        },
        "loss": "clip",
        "clip_low": 0.2,
        "clip_high": 0.2,
        "dual_clip": None,
        "ratio_cap": None,
        "cispo": {"ratio_min": 0.0, "ratio_max": 5.0},
        "sapo": {"tau_positive": 1.0, "tau_negative": 1.05},
        "vespo": {"power_positive": 2.0, "rate_positive": 3.0, "power_negative": 3.0, "rate_negative": 2.0},
        "correction": {"mode": "none", "low": 0.0, "high": 2.0},
        "max_divergence": None,
        "token_filter": {"mode": "all", "frac": 0.2, "low": 1.0, "high": 5.0, "coef": 1.0},
        "aggregation": "seq-mean-token-mean",
        "kl_coef": 0.0,
        "kl_estimator": "k3",
        "kl_placement": "loss",
        "kl_adaptive": None,
        "entropy_coef": 0.0,
        "entropy_adaptive": None,
        "zero_variance": "skip",
        "resample_rounds": 4,
        "mask_truncated": False,
    }
