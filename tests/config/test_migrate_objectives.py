"""A migrated objective computes what the other trainer computes: each loss against its formula, on a batch for paper.

Rows of 3 and 2 tokens; the last entry of row 2 is padding that must not matter.
"""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from oncurve.algo import GradedRewards, estimate_advantages, policy_loss, sequence_weights, token_weights
from oncurve.config import RunConfig
from oncurve.config.migrate import Migration, import_config

LOGPROBS = torch.tensor([[-1.0, -0.5, -2.0], [-0.7, -1.2, -3.3]], dtype=torch.float64)
OLD = torch.tensor([[-1.2, -0.4, -2.5], [-0.9, -0.8, -1.1]], dtype=torch.float64)
REF = torch.tensor([[-1.1, -0.5, -1.5], [-0.7, -1.0, -9.0]], dtype=torch.float64)
SAMPLER = torch.tensor([[-1.3, -0.4, -2.4], [-2.9, -0.8, -9.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, True, False]])
ADVANTAGES = torch.tensor([1.0, -0.5], dtype=torch.float64)
RATIO = (LOGPROBS - OLD).exp()
GEOMETRIC = ((LOGPROBS - OLD) * MASK).sum(1, keepdim=True).div(MASK.sum(1, keepdim=True)).exp()
GAIN = ADVANTAGES[:, None].expand(2, 3)
MAX_TOKENS = 4


def computed(config: RunConfig) -> tuple[float, Tensor]:
    """Loss of the batch and its gradient by log-prob, as the learner would take them."""
    objective = config.objective
    logprobs = LOGPROBS.clone().requires_grad_()
    weights = sequence_weights(
        MASK.sum(1), torch.tensor([0, 1]), objective.aggregation, max_tokens=config.rollout.sampling.max_tokens
    )
    terms = policy_loss(
        objective,
        logprobs=logprobs,
        old_logprobs=OLD,
        advantages=GAIN,
        weights=token_weights(weights, MASK),
        ref_logprobs=REF,
        sampler_logprobs=SAMPLER,
    )
    (gradient,) = torch.autograd.grad(terms.total, logprobs)
    return terms.total.item(), gradient


def token_mean(values: Tensor) -> float:
    return float((values * MASK).sum() / MASK.sum())


def sequence_mean(values: Tensor) -> float:
    return float(((values * MASK).sum(1) / MASK.sum(1)).mean())


def sequence_sum(values: Tensor) -> float:
    return float((values * MASK).sum(1).mean())


def clipped(ratio: Tensor, low: float, high: float) -> Tensor:
    return -torch.minimum(ratio * GAIN, ratio.clamp(1 - low, 1 + high) * GAIN)


def trl(tmp_path: Path, **keys: object) -> Migration:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"max_completion_length": MAX_TOKENS, "max_steps": 1, **keys}))
    return import_config("trl", path)


def verl(tmp_path: Path, *overrides: str) -> Migration:
    path = tmp_path / "overrides.txt"
    base = ["actor_rollout_ref.rollout.n=4", f"data.max_response_length={MAX_TOKENS}", "algorithm.adv_estimator=grpo"]
    path.write_text("\n".join([*base, "trainer.total_training_steps=1", *overrides]))
    return import_config("verl", path)


def fate(found: Migration, key: str) -> str:
    return next(entry.fate for entry in found.entries if entry.key == key)


TAU = torch.tensor([[1.0], [1.05]], dtype=torch.float64)
SAPO = -4 / TAU * torch.sigmoid(TAU * (RATIO - 1)) * GAIN
PRODUCT = ((LOGPROBS - OLD) * MASK).sum(1, keepdim=True).exp()
POWER = torch.tensor([[2.0], [3.0]], dtype=torch.float64)
RATE = torch.tensor([[3.0], [2.0]], dtype=torch.float64)
VESPO = -(RATE.exp() * PRODUCT**POWER * (-RATE * PRODUCT).exp()) * GAIN * LOGPROBS


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, token_mean(clipped(RATIO, 0.2, 0.2))),
        ({"epsilon": 0.1, "epsilon_high": 0.5}, token_mean(clipped(RATIO, 0.1, 0.5))),
        ({"loss_type": "grpo"}, sequence_mean(clipped(RATIO, 0.2, 0.2))),
        ({"loss_type": "bnpo", "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
         sequence_mean(clipped(RATIO, 0.2, 0.2))),
        ({"loss_type": "dr_grpo"}, sequence_sum(clipped(RATIO, 0.2, 0.2)) / MAX_TOKENS),
        ({"loss_type": "luspo"}, sequence_sum(clipped(RATIO, 0.2, 0.2))),
        ({"loss_type": "luspo", "importance_sampling_level": "sequence"},
         sequence_sum(clipped(GEOMETRIC.expand(2, 3), 0.2, 0.2))),
        ({"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon_high": 0.28},
         sequence_mean(clipped(GEOMETRIC.expand(2, 3), 0.2, 0.28))),
        ({"loss_type": "cispo", "epsilon_high": 1.5}, token_mean(-RATIO.clamp(max=1.5) * GAIN * LOGPROBS)),
        ({"loss_type": "cispo"}, token_mean(-RATIO.clamp(max=0.2) * GAIN * LOGPROBS)),
        ({"loss_type": "sapo"}, sequence_mean(SAPO)),
        ({"loss_type": "vespo"}, token_mean(VESPO)),
        ({"delta": 1.21}, token_mean(-torch.minimum(RATIO.clamp(max=1.21) * GAIN, RATIO.clamp(0.8, 1.2) * GAIN))),
    ],
)  # fmt: skip
def test_a_loss_type_of_trl_computes_its_formula(tmp_path, keys, expected):
    assert computed(trl(tmp_path, **keys).config)[0] == pytest.approx(expected, abs=1e-9)


def test_the_cap_of_trl_acts_on_a_bad_token_only(tmp_path):
    # ratio 1.2214 > 1.21 with A = -0.5: without the cap the loss of that token is 0.6107, with it 0.605
    plain, capped = computed(trl(tmp_path).config)[0], computed(trl(tmp_path, delta=1.21).config)[0]
    assert capped - plain == pytest.approx((0.605 - 0.5 * RATIO[1, 0].item()) / 5)


D = LOGPROBS - REF
K3 = (-D).exp() - 1 + D


@pytest.mark.parametrize(("weighted", "kl"), [(True, RATIO * K3), (False, K3)])
def test_beta_of_trl_weighs_k3_with_or_without_the_ratio(tmp_path, weighted, kl):
    found = trl(tmp_path, beta=0.3, use_bias_correction_kl=weighted)
    expected = token_mean(clipped(RATIO, 0.2, 0.2) + 0.3 * kl)
    assert computed(found.config)[0] == pytest.approx(expected, abs=1e-9)


W = (OLD - SAMPLER).exp()
SEQUENCE_W = ((OLD - SAMPLER) * MASK).sum(1, keepdim=True).exp()  # 1.0 and e^2 = 7.39


@pytest.mark.parametrize(
    ("keys", "weights"),
    [
        ({}, torch.where(SEQUENCE_W <= 3, SEQUENCE_W, 0.0)),
        ({"vllm_importance_sampling_clip_max": None}, SEQUENCE_W),
        ({"vllm_importance_sampling_mode": "sequence_truncate"}, SEQUENCE_W.clamp(max=3)),
        ({"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_cap": 1.05}, W.clamp(max=1.05)),
        ({"vllm_importance_sampling_mode": "token_mask", "vllm_importance_sampling_clip_min": 0.95},
         torch.where((W >= 0.95) & (W <= 3), W, 0.0)),
        ({"vllm_importance_sampling_correction": False}, torch.ones(2, 1)),
    ],
)  # fmt: skip
def test_the_sampler_weight_of_trl_multiplies_the_policy_term(tmp_path, keys, weights):
    found = trl(tmp_path, use_vllm=True, **keys)
    assert computed(found.config)[0] == pytest.approx(token_mean(weights * clipped(RATIO, 0.2, 0.2)), abs=1e-9)


def test_without_vllm_trl_weighs_nothing(tmp_path):
    found = trl(tmp_path, vllm_importance_sampling_mode="token_truncate")
    assert found.config.objective.correction.mode == "none"
    assert fate(found, "vllm_importance_sampling_mode") == "same"


@pytest.mark.parametrize(("kind", "factor"), [("dapo", 5 / 2), ("dr_grpo", MAX_TOKENS)])
def test_summed_sequence_losses_of_trl_keep_their_direction(tmp_path, kind, factor):
    # theirs: the same term on every token, over all 5 tokens or over 2 * 4; ours: over 2 completions
    found = trl(tmp_path, loss_type=kind, importance_sampling_level="sequence")
    theirs = sequence_sum(clipped(GEOMETRIC.expand(2, 3), 0.2, 0.2)) / factor
    assert computed(found.config)[0] == pytest.approx(theirs * factor)
    assert fate(found, "loss_type") == "absent"


REWARDS = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)


def advantages(config: RunConfig, lengths: Tensor | None = None) -> list[list[float]]:
    count = torch.full((2, 4), 5) if lengths is None else lengths
    graded = GradedRewards(
        rewards=REWARDS, scored=torch.ones(2, 4, dtype=torch.bool), lengths=count.double(), trained_lengths=count
    )
    return estimate_advantages(config.objective.advantage, graded).tolist()


@pytest.mark.parametrize(
    ("scale", "first", "others"),
    [
        ("group", 0.75 / 0.5001, -0.25 / 0.5001),  # std of 1, 0, 0, 0 over n - 1: 0.5
        (True, 0.75 / 0.5001, -0.25 / 0.5001),
        ("batch", 0.75 / (0.51754917 + 1e-4), -0.25 / (0.51754917 + 1e-4)),  # five of eight are 1: sqrt(1.875 / 7)
        ("none", 0.75, -0.25),
        (False, 0.75, -0.25),
    ],
)
def test_the_scale_of_rewards_in_trl(tmp_path, scale, first, others):
    found = advantages(trl(tmp_path, scale_rewards=scale).config)
    assert found[0] == pytest.approx([first, others, others, others], rel=1e-7)
    assert found[1] == [0.0, 0.0, 0.0, 0.0]


def test_normalise_then_sum_is_gdpo(tmp_path):
    settings = trl(tmp_path, multi_objective_aggregation="normalize_then_sum").config.objective.advantage
    graded = GradedRewards(
        rewards=torch.zeros(2, 2),
        scored=torch.ones(2, 2, dtype=torch.bool),
        lengths=torch.ones(2, 2),
        trained_lengths=torch.ones(2, 2, dtype=torch.long),
        components=torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [0.0, 0.0]]], dtype=torch.float64),
        component_weights=torch.tensor([1.0, 0.5], dtype=torch.float64),
    )
    # z = +-0.70711 (0.707007 with eps 1e-4); sums +-0.3535, +-1.0605; std_1 of the four 0.91275
    found = estimate_advantages(settings, graded).flatten().tolist()
    assert found == pytest.approx([0.387256, -0.387256, 1.161768, -1.161768], abs=2e-6)


DUAL = torch.where(GAIN < 0, torch.minimum(clipped(RATIO, 0.2, 0.2), -1.1 * GAIN), clipped(RATIO, 0.2, 0.2))
GMPO = torch.stack(
    [  # row 1, A > 0: log-ratios 0.2, -0.1, 0.5 cut above at 0.3; row 2, A < 0: 0.2, -0.4 cut below at -0.2
        torch.tensor((0.2 - 0.1 + 0.3) / 3).exp() * -1.0,
        torch.tensor((0.2 - 0.2) / 2).exp() * 0.5,
    ]
)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], token_mean(clipped(RATIO, 0.2, 0.2))),
        (["clip_ratio_low=0.1", "clip_ratio_high=0.5"], token_mean(clipped(RATIO, 0.1, 0.5))),
        (["clip_ratio=0.1", "clip_ratio_low=null", "clip_ratio_high=null"], token_mean(clipped(RATIO, 0.1, 0.1))),
        (["clip_ratio=0.1"], token_mean(clipped(RATIO, 0.2, 0.2))),  # the other two win
        (["clip_ratio_c=1.1"], token_mean(DUAL)),
        (["loss_agg_mode=seq-mean-token-mean"], sequence_mean(clipped(RATIO, 0.2, 0.2))),
        (["loss_agg_mode=seq-mean-token-sum"], sequence_sum(clipped(RATIO, 0.2, 0.2))),
        (["loss_agg_mode=seq-mean-token-sum-norm"], sequence_sum(clipped(RATIO, 0.2, 0.2)) / MAX_TOKENS),
        (["use_token_level_loss=False"], sequence_mean(clipped(RATIO, 0.2, 0.2))),
        (["policy_loss.loss_mode=gpg"], token_mean(-LOGPROBS * GAIN)),
        (["policy_loss.loss_mode=sapo"], sequence_mean(SAPO)),
        (["policy_loss.loss_mode=cispo", "clip_ratio_low=0.05", "clip_ratio_high=0.28"],
         token_mean(-RATIO.clamp(0.95, 1.28) * GAIN * LOGPROBS)),
        (["policy_loss.loss_mode=gspo", "loss_agg_mode=seq-mean-token-mean", "clip_ratio_high=0.1"],
         sequence_mean(clipped(GEOMETRIC.expand(2, 3), 0.2, 0.1))),
        (["policy_loss.loss_mode=gspo", "loss_agg_mode=seq-mean-token-sum"],
         sequence_sum(clipped(GEOMETRIC.expand(2, 3), 0.2, 0.2))),
        (["policy_loss.loss_mode=geo_mean", "clip_ratio_high=0.3"], float(GMPO.mean())),
    ],
)  # fmt: skip
def test_a_loss_mode_of_verl_computes_its_formula(tmp_path, overrides, expected):
    found = verl(tmp_path, *(f"actor_rollout_ref.actor.{override}" for override in overrides))
    assert computed(found.config)[0] == pytest.approx(expected, abs=1e-6)


def test_kl_cov_of_verl_does_not_clip(tmp_path):
    # N = 5, f = 0.2: the one token with the largest covariance pays 0.1 * |l - old|. l: mean -1.08; A: mean 0.4.
    # (A - mean)(l - mean): 0.048, 0.348, -0.552 | -0.342, 0.108: the second token, |l - old| = 0.1
    found = verl(
        tmp_path,
        "actor_rollout_ref.actor.policy_loss.loss_mode=kl_cov",
        "actor_rollout_ref.actor.policy_loss.kl_cov_ratio=0.2",
    )
    penalty = torch.tensor([[0.0, 0.01, 0.0], [0.0, 0.0, 0.0]])
    assert computed(found.config)[0] == pytest.approx(token_mean(-RATIO * GAIN + penalty), abs=1e-9)


@pytest.mark.parametrize(
    ("kind", "gradient"),
    [("low_var_kl", 1 - (-D).exp()), ("mse", D), ("k3+", D), ("k1+", D)],
)
def test_a_kl_in_the_loss_of_verl_has_its_gradient(tmp_path, kind, gradient):
    group = "actor_rollout_ref.actor."
    with_kl = verl(tmp_path, f"{group}use_kl_loss=True", f"{group}kl_loss_coef=0.5", f"{group}kl_loss_type={kind}")
    difference = computed(with_kl.config)[1] - computed(verl(tmp_path).config)[1]
    assert torch.allclose(difference, 0.5 * gradient * MASK / 5)


def test_a_kl_without_gradient_is_left_out_and_said(tmp_path):
    found = verl(tmp_path, "actor_rollout_ref.actor.use_kl_loss=True", "actor_rollout_ref.actor.kl_loss_type=kl")
    assert found.config.objective.kl_coef == 0
    assert fate(found, "actor_rollout_ref.actor.kl_loss_type") == "absent"


@pytest.mark.parametrize(
    ("overrides", "first"),
    [
        (["adv_estimator=grpo"], [1.5, -0.5, -0.5, -0.5]),
        (["adv_estimator=grpo", "norm_adv_by_std_in_grpo=False"], [0.75, -0.25, -0.25, -0.25]),
        (["adv_estimator=rloo"], [1.0, -1 / 3, -1 / 3, -1 / 3]),
        (["adv_estimator=opo"], [0.9, -0.1, -0.1, -0.1]),  # lengths 1, 3, 3, 3: baseline 1/10
        (["adv_estimator=grpo_passk"], [2.0, 0.0, 0.0, 0.0]),
        (["adv_estimator=gpg"], [0.75, -0.25, -0.25, -0.25]),
    ],
)
def test_an_estimator_of_verl(tmp_path, overrides, first):
    found = verl(tmp_path, *(f"algorithm.{override}" for override in overrides)).config
    lengths = torch.tensor([[1, 3, 3, 3], [1, 1, 1, 1]])
    assert advantages(found, lengths)[0] == pytest.approx(first, abs=1e-5)


def test_the_baseline_of_reinforce_pp_is_whitened_over_tokens(tmp_path):
    found = verl(tmp_path, "algorithm.adv_estimator=reinforce_plus_plus_baseline").config
    # centred: 0.75 once, -0.25 three times, 0 four times, one token each: mean 0, var_1 = 0.75 / 7
    assert advantages(found, torch.ones(2, 4, dtype=torch.long))[0][0] == pytest.approx(0.75 / (0.75 / 7) ** 0.5)


def test_the_kl_in_the_reward_of_verl(tmp_path):
    found = verl(
        tmp_path,
        "algorithm.adv_estimator=reinforce_plus_plus",
        "algorithm.use_kl_in_reward=True",
        "algorithm.kl_penalty=k1",
        "algorithm.kl_ctrl.kl_coef=0.02",
    )
    objective = found.config.objective
    assert (objective.has_kl_in_reward, objective.kl_coef, objective.kl_estimator) == (True, 0.02, "k1")
    assert objective.kl_adaptive is None


def test_a_kl_in_the_reward_leaves_equal_groups_out_and_says_so(tmp_path):
    found = verl(tmp_path, "algorithm.use_kl_in_reward=True")
    assert found.config.objective.zero_variance == "skip"
    assert fate(found, "algorithm.use_kl_in_reward") == "absent"


@pytest.mark.parametrize(
    ("threshold", "weights"),
    [("1.05", W.clamp(max=1.05)), ("0.95_3.0", torch.where((W >= 0.95) & (W <= 3), W, 0.0))],
)
def test_the_rollout_correction_of_verl(tmp_path, threshold, weights):
    group = "algorithm.rollout_correction."
    found = verl(tmp_path, f"{group}rollout_is=token", f'{group}rollout_is_threshold="{threshold}"')
    assert computed(found.config)[0] == pytest.approx(token_mean(weights * clipped(RATIO, 0.2, 0.2)), abs=1e-9)


def test_bypass_puts_the_sampler_into_the_ratio(tmp_path):
    assert verl(tmp_path).config.learner.old_logprobs == "recompute"
    bypass = verl(tmp_path, "algorithm.rollout_correction.bypass_mode=True")
    assert bypass.config.learner.old_logprobs == "sampler"


@pytest.mark.parametrize("mode", ["dppo_tv", "dro"])
def test_an_unknown_loss_of_verl_is_named(tmp_path, mode):
    found = verl(tmp_path, f"actor_rollout_ref.actor.policy_loss.loss_mode={mode}")
    assert fate(found, "actor_rollout_ref.actor.policy_loss.loss_mode") == "absent"
    assert found.config.objective.loss == "clip"
