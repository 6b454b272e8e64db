"""Sections 2 and 3: policy objectives, corrections, aggregation, masks and log-probabilities."""

from collections.abc import Callable

import torch
from torch import Tensor

from oncurve import algo
from tests.golden.operations.shared import (
    Inputs,
    Operation,
    Outputs,
    flags,
    real,
    rectangular,
    step_weights,
    value_and_gradient,
)


def weighed(
    inputs: Inputs, token_loss: Callable[[Tensor], Tensor], aggregation: algo.Aggregation | None = None
) -> Outputs:
    """Run a token loss under the aggregation of the case, or under the one that belongs to the loss."""
    weights = step_weights(inputs, aggregation or inputs["agg"])
    value, gradient = value_and_gradient(lambda logprobs: (weights * token_loss(logprobs)).sum(), inputs["logp"])
    return {"loss": value.item(), "grad_logp": gradient}


def token_advantages(inputs: Inputs) -> Tensor:
    advantage = real(inputs["adv"])
    return advantage if advantage.ndim == 2 else advantage[:, None].expand(real(inputs["logp"]).shape)


def sequence_inputs(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    return real(inputs["logp_old"]), real(inputs["adv"]), flags(inputs["mask"])


def clip_widths(inputs: Inputs) -> dict[str, float]:
    return {"clip_low": inputs["eps_low"], "clip_high": inputs["eps_high"]}


def loss_ppo_clip(inputs: Inputs) -> Outputs:
    old, advantage = real(inputs["logp_old"]), token_advantages(inputs)
    bounds = {**clip_widths(inputs), "dual_clip": inputs.get("dual_c"), "ratio_cap": inputs.get("delta")}
    return weighed(inputs, lambda logprobs: algo.clipped_surrogate(logprobs, old, advantage, **bounds))


def loss_grpo(inputs: Inputs) -> Outputs:
    settings = algo.ObjectiveSettings(
        **clip_widths(inputs), kl_coef=inputs["beta"], kl_estimator="k3", aggregation=inputs["agg"]
    )

    def loss(logprobs: Tensor) -> Tensor:
        return algo.policy_loss(
            settings,
            logprobs=logprobs,
            old_logprobs=real(inputs["logp_old"]),
            advantages=token_advantages(inputs),
            weights=step_weights(inputs, settings.aggregation),
            ref_logprobs=real(inputs["logp_ref"]),
        ).total

    value, gradient = value_and_gradient(loss, inputs["logp"])
    return {"loss": value.item(), "grad_logp": gradient}


def loss_gspo(inputs: Inputs) -> Outputs:
    return weighed(
        inputs,
        lambda logprobs: algo.gspo_loss(logprobs, *sequence_inputs(inputs), **clip_widths(inputs)),
        "seq-mean-token-sum" if inputs.get("length_scaled") else "seq-mean-token-mean",
    )


def loss_gspo_token(inputs: Inputs) -> Outputs:
    old, mask = real(inputs["logp_old"]), flags(inputs["mask"])
    return weighed(
        inputs,
        lambda logprobs: algo.gspo_token_loss(logprobs, old, token_advantages(inputs), mask, **clip_widths(inputs)),
        "seq-mean-token-mean",
    )


def loss_gmpo(inputs: Inputs) -> Outputs:
    return weighed(
        inputs,
        lambda logprobs: algo.gmpo_loss(logprobs, *sequence_inputs(inputs), **clip_widths(inputs)),
        "seq-mean-token-mean",
    )


def loss_topr(inputs: Inputs) -> Outputs:
    return weighed(inputs, lambda logprobs: algo.topr_loss(logprobs, *sequence_inputs(inputs)), "seq-mean-token-sum")


def loss_vespo(inputs: Inputs) -> Outputs:
    shape = {
        "power_positive": inputs["k_pos"],
        "rate_positive": inputs["lam_pos"],
        "power_negative": inputs["k_neg"],
        "rate_negative": inputs["lam_neg"],
    }
    return weighed(inputs, lambda logprobs: algo.vespo_loss(logprobs, *sequence_inputs(inputs), **shape))


def loss_cispo(inputs: Inputs) -> Outputs:
    old, advantage = real(inputs["logp_old"]), token_advantages(inputs)
    bounds = {"ratio_min": inputs["w_min"], "ratio_max": inputs["w_max"]}
    return weighed(inputs, lambda logprobs: algo.cispo_loss(logprobs, old, advantage, **bounds))


def loss_sapo(inputs: Inputs) -> Outputs:
    old, advantage = real(inputs["logp_old"]), token_advantages(inputs)
    taus = {"tau_positive": inputs["tau_pos"], "tau_negative": inputs["tau_neg"]}
    return weighed(inputs, lambda logprobs: algo.sapo_loss(logprobs, old, advantage, **taus))


def loss_reinforce(inputs: Inputs) -> Outputs:
    advantage = token_advantages(inputs)
    return weighed(inputs, lambda logprobs: algo.reinforce_loss(logprobs, advantage, scale=inputs["alpha"]))


def loss_decoupled(inputs: Inputs) -> Outputs:
    def token_loss(logprobs: Tensor) -> Tensor:
        return algo.decoupled_loss(
            logprobs,
            real(inputs["logp_prox"]),
            real(inputs["logp_behav"]),
            token_advantages(inputs),
            **clip_widths(inputs),
            cap=inputs["cap"],
            cap_mode="mask" if inputs["cap_mode"] == "mask" else "truncate",
        )

    return weighed(inputs, token_loss)


def is_weights(inputs: Inputs) -> Outputs:
    found = algo.importance_weights(
        real(inputs["logp_old"]),
        real(inputs["logp_roll"]),
        flags(inputs["mask"]),
        inputs["mode"],
        low=inputs["c_min"],
        high=inputs["c_max"],
    )
    return {"weights": found.tolist()}


def mask_opsm(inputs: Inputs) -> Outputs:
    keep = algo.off_policy_keep(
        real(inputs["logp"]),
        real(inputs["logp_roll"]),
        real(inputs["adv"]),
        flags(inputs["mask"]),
        max_divergence=inputs["delta"],
    )
    return {"keep": keep.int().tolist()}


AGGREGATIONS: tuple[algo.Aggregation, ...] = (
    "seq-mean-token-mean",
    "token-mean",
    "seq-mean-token-sum",
    "constant",
    "prompt-mean",
)


def agg_modes(inputs: Inputs) -> Outputs:
    losses = real(inputs["loss"])
    return {name: (step_weights(inputs, name) * losses).sum().item() for name in AGGREGATIONS}


def agg_accumulate(inputs: Inputs) -> Outputs:
    micro = [rectangular(part) for part in inputs["micro"]]
    lengths = [flags(part["mask"]).sum(dim=1) for part in micro]
    outputs: Outputs = {}
    for name in AGGREGATIONS[:2]:
        weights = sequence_weights(torch.cat(lengths), name).split([len(part) for part in lengths])
        parts = [weighted_sum(part, piece) for part, piece in zip(micro, weights, strict=True)]
        means = [weighted_sum(part, sequence_weights(alone, name)) for part, alone in zip(micro, lengths, strict=True)]
        outputs[name] = {"parts": parts, "total": sum(parts), "mean_of_means": sum(means) / len(means)}
    return outputs


def sequence_weights(lengths: Tensor, aggregation: algo.Aggregation) -> Tensor:
    return algo.sequence_weights(lengths, torch.arange(len(lengths)), aggregation, max_tokens=1)


def weighted_sum(part: Inputs, weights: Tensor) -> float:
    return (algo.token_weights(weights, flags(part["mask"])) * real(part["loss"])).sum().item()


def mask_eos(inputs: Inputs) -> Outputs:
    found = algo.completion_mask(torch.tensor(inputs["ids"]), [inputs["eos"]])
    return {
        "mask": found.loss_mask.int().tolist(),
        "truncated": found.is_truncated.int().tolist(),
        "lengths": found.lengths.tolist(),
        "loss_mask_overlong_filtered": found.without_truncated().int().tolist(),
    }


def logp_from_logits(inputs: Inputs) -> Outputs:
    start = inputs["prompt_len"]
    logits, ids = real(inputs["logits"]), torch.tensor(inputs["ids"])
    found = algo.token_logprobs_from_logits(logits[start - 1 : -1], ids[start:], inputs["temperature"])
    return {"logp": found.tolist()}


OPERATIONS: dict[str, Operation] = {
    "agg.accumulate": agg_accumulate,
    "agg.modes": agg_modes,
    "is.weights": is_weights,
    "logp.from_logits": logp_from_logits,
    "loss.cispo": loss_cispo,
    "loss.decoupled": loss_decoupled,
    "loss.gmpo": loss_gmpo,
    "loss.grpo": loss_grpo,
    "loss.gspo": loss_gspo,
    "loss.gspo_token": loss_gspo_token,
    "loss.ppo_clip": loss_ppo_clip,
    "loss.reinforce": loss_reinforce,
    "loss.sapo": loss_sapo,
    "loss.topr": loss_topr,
    "loss.vespo": loss_vespo,
    "mask.eos": mask_eos,
    "mask.opsm": mask_opsm,
}
