"""Sections 4 and 5: KL to the reference, entropy, whitening."""

from collections.abc import Callable

import torch
from torch import Tensor

from oncurve import algo
from tests.golden.operations.shared import Inputs, Operation, Outputs, flags, real, value_and_gradient


def kl_estimators(inputs: Inputs) -> Outputs:
    outputs: Outputs = {}
    reference = real(inputs["logp_ref"])
    for name in ("k1", "k2", "k3"):
        value, gradient = value_and_gradient(
            lambda new, name=name: algo.kl_estimate(new, reference, name), inputs["logp"]
        )
        outputs |= {name: value.tolist(), f"grad_{name}": gradient}
    return outputs


def kl_expected_gradients(inputs: Inputs) -> Outputs:
    reference = real(inputs["logits_ref"]).log_softmax(-1)

    def gradient(value: Callable[[Tensor], Tensor], *, through_sampling: bool = False) -> list[float]:
        def expectation(logits: Tensor) -> Tensor:
            logprobs = logits.log_softmax(-1)
            probabilities = logprobs.exp() if through_sampling else logprobs.exp().detach()
            return (probabilities * value(logprobs)).sum()

        return value_and_gradient(expectation, inputs["logits"])[1]

    return {
        "true_reverse_kl": gradient(lambda new: algo.kl_estimate(new, reference, "k1"), through_sampling=True),
        "k1_loss": gradient(lambda new: algo.kl_estimate(new, reference, "k1")),
        "k2_loss": gradient(lambda new: algo.kl_estimate(new, reference, "k2")),
        "k3_loss": gradient(lambda new: algo.kl_estimate(new, reference, "k3")),
        "k3_loss_importance_weighted": gradient(lambda new: algo.importance_weighted_kl(new, new.detach(), reference)),
    }


def kl_importance_weighted(inputs: Inputs) -> Outputs:
    old, reference = real(inputs["logp_old"]), real(inputs["logp_ref"])

    def detached(logprobs: Tensor) -> Tensor:
        return algo.importance_ratio(logprobs, old).detach() * algo.kl_estimate(logprobs, reference, "k3")

    value, gradient = value_and_gradient(
        lambda logprobs: algo.importance_weighted_kl(logprobs, old, reference), inputs["logp"]
    )
    return {
        "value": value.tolist(),
        "grad": gradient,
        "grad_ratio_detached": value_and_gradient(detached, inputs["logp"])[1],
    }


def kl_in_reward(inputs: Inputs) -> Outputs:
    old = real([inputs["logp"]])
    rewards = algo.kl_token_rewards(
        real([inputs["reward"]]),
        old,
        real([inputs["logp_ref"]]),
        torch.ones_like(old, dtype=torch.bool),
        kl_coef=inputs["coef"],
    )
    return {
        "token_rewards": rewards[0].tolist(),
        "returns": algo.rewards_to_go(rewards)[0].tolist(),
        "sequence_reward": rewards.sum().item(),
    }


def kl_exact(inputs: Inputs) -> Outputs:
    reference = real(inputs["logits_ref"])
    value, gradient = value_and_gradient(lambda logits: algo.exact_kl(logits, reference), inputs["logits"])
    outputs = {"kl": value.item(), "grad": gradient}
    if "top_k" in inputs:
        outputs["kl_topk"] = algo.exact_kl(real(inputs["logits"]), reference, top_k=inputs["top_k"]).item()
    return outputs


def kl_adaptive(inputs: Inputs) -> Outputs:
    coef, coefs = inputs["coef"], []
    for divergence in inputs["kl"]:
        coef = algo.adapted_kl_coef(
            coef, divergence, target=inputs["target"], horizon=inputs["horizon"], num_samples=inputs["n_steps"]
        )
        coefs.append(coef)
    return {"coef": coefs}


def ent_exact(inputs: Inputs) -> Outputs:
    temperature = inputs.get("temperature", 1.0)
    value, gradient = value_and_gradient(lambda logits: algo.entropy_from_logits(logits, temperature), inputs["logits"])
    return {"entropy": value.tolist(), "grad": gradient}


def ent_adaptive(inputs: Inputs) -> Outputs:
    coef, applied, following = inputs["coef"], [], []
    for entropy in inputs["entropy"]:
        found = algo.adapted_entropy_coef(
            coef,
            entropy,
            target=inputs["target"],
            step=inputs["delta"],
            lowest=inputs.get("c_min", 0.0),
            highest=inputs["c_max"],
        )
        coef = found.next
        applied.append(found.applied)
        following.append(found.next)
    return {"applied": applied, "next": following}


def ent_cov(inputs: Inputs) -> Outputs:
    logprobs, old, advantage = real(inputs["logp"]), real(inputs["logp_old"]), real(inputs["adv"])
    mask = torch.ones_like(logprobs, dtype=torch.bool)
    covariance = algo.token_covariance(logprobs, advantage, mask)
    eligible = algo.clip_cov_eligible(covariance, mask, low=inputs["lb"], high=inputs["ub"])
    count = algo.num_controlled(len(mask), inputs["kl_frac"])
    penalised = algo.kl_cov_tokens(covariance, mask, count=count)
    losses = algo.kl_cov_loss(logprobs, old, advantage, penalised, kl_coef=inputs["kl_coef"])
    return {
        "cov": covariance.tolist(),
        "clip_cov_eligible": eligible.nonzero().flatten().tolist(),
        "clip_cov_count": algo.num_controlled(len(mask), inputs["clip_frac"]),
        "kl_cov_tokens": penalised.nonzero().flatten().tolist(),
        "kl_cov_loss": losses.mean().item(),
    }


def ent_top_quantile(inputs: Inputs) -> Outputs:
    entropy, mask = real(inputs["entropy"]), flags(inputs["mask"])
    threshold = algo.entropy_threshold(entropy, mask, share=inputs["keep"])
    keep = algo.top_entropy_mask(entropy, mask, threshold=threshold)
    return {"threshold": threshold, "keep": keep.int().tolist()}


def stat_whiten(inputs: Inputs) -> Outputs:
    shift_mean = inputs.get("shift_mean", True)
    found = algo.whiten(
        real(inputs["values"]), flags(inputs["mask"]), ddof=inputs["ddof"], eps=inputs["eps"], shift_mean=shift_mean
    )
    return {"values": found.tolist()}


OPERATIONS: dict[str, Operation] = {
    "ent.adaptive": ent_adaptive,
    "ent.cov": ent_cov,
    "ent.exact": ent_exact,
    "ent.top_quantile": ent_top_quantile,
    "kl.adaptive": kl_adaptive,
    "kl.estimators": kl_estimators,
    "kl.exact": kl_exact,
    "kl.expected_gradients": kl_expected_gradients,
    "kl.importance_weighted": kl_importance_weighted,
    "kl.in_reward": kl_in_reward,
    "stat.whiten": stat_whiten,
}
