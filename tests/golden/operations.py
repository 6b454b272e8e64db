"""Operation names of golden files, mapped to the functions of the package. Everything runs in float64."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from oncurve import algo
from oncurve.evaluate import estimators
from oncurve.verify import compose_rewards

Inputs = Mapping[str, Any]
Outputs = dict[str, Any]


def real(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def flags(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


def grouped(values: Sequence[Any], group: Sequence[int]) -> tuple[Tensor, Tensor, list[tuple[int, int]]]:
    """Arrange a flat batch as [P, G] with a mask, and say where each sample went."""
    order = list(dict.fromkeys(group))
    places, used = [], dict.fromkeys(order, 0)
    for name in group:
        places.append((order.index(name), used[name]))
        used[name] += 1
    table = torch.full((len(order), max(2, *used.values())), torch.nan, dtype=torch.float64)
    scored = torch.zeros(table.shape, dtype=torch.bool)
    for place, value in zip(places, values, strict=True):
        table[place] = value
        scored[place] = True
    return table, scored, places


def advantages(inputs: Inputs, settings: algo.AdvantageSettings) -> Outputs:
    rewards, scored, places = grouped(inputs["rewards"], inputs["group"])
    table = algo.group_advantages(rewards, settings, scored=scored)
    return {"advantages": [table[place].item() for place in places]}


def adv_grpo(inputs: Inputs) -> Outputs:
    return advantages(inputs, algo.AdvantageSettings(ddof=inputs["ddof"], std_eps=inputs["eps"]))


def rows_of(inputs: Inputs, name: str) -> Tensor:
    """Arrange a flat batch of equal groups, each contiguous, as [P, G]."""
    return real(inputs[name]).view(len(set(inputs["group"])), -1)


def flat(table: Tensor) -> Outputs:
    return {"advantages": table.flatten().tolist()}


def std_choice(inputs: Inputs) -> dict[str, Any]:
    return {"ddof": inputs["ddof"], "std_eps": inputs["eps"]}


def filter_zero_variance(inputs: Inputs) -> Outputs:
    rewards, scored, _ = grouped(inputs["rewards"], inputs["group"])
    silent = algo.is_zero_variance(rewards, tolerance=inputs["tol"], scored=scored)
    return {
        "keep": (~silent).int().tolist(),
        "frac_zero": silent.double().mean().item(),
        "gpg_alpha": algo.informative_scale(silent, scored.sum(dim=1)),
    }


def step_weights(inputs: Inputs, aggregation: str) -> Tensor:
    mask = flags(inputs["mask"])
    groups = torch.tensor(inputs.get("group", list(range(len(mask)))))
    weights = algo.sequence_weights(mask.sum(dim=1), groups, aggregation, max_tokens=inputs.get("l_max", 1))
    return algo.token_weights(weights, mask)


def with_gradient(inputs: Inputs, loss: Callable[[Tensor], Tensor]) -> Outputs:
    logprobs = real(inputs["logp"]).requires_grad_()
    value = loss(logprobs)
    (gradient,) = torch.autograd.grad(value, logprobs)
    return {"loss": value.item(), "grad_logp": gradient.tolist()}


def token_advantages(inputs: Inputs) -> Tensor:
    advantage = real(inputs["adv"])
    return advantage if advantage.ndim == 2 else advantage[:, None].expand(real(inputs["logp"]).shape)


def loss_ppo_clip(inputs: Inputs) -> Outputs:
    weights = step_weights(inputs, inputs["agg"])

    def loss(logprobs: Tensor) -> Tensor:
        surrogate = algo.clipped_surrogate(
            logprobs,
            real(inputs["logp_old"]),
            token_advantages(inputs),
            clip_low=inputs["eps_low"],
            clip_high=inputs["eps_high"],
            dual_clip=inputs.get("dual_c"),
            ratio_cap=inputs.get("delta"),
        )
        return (weights * surrogate).sum()

    return with_gradient(inputs, loss)


def loss_grpo(inputs: Inputs) -> Outputs:
    settings = algo.ObjectiveSettings(
        clip_low=inputs["eps_low"],
        clip_high=inputs["eps_high"],
        kl_coef=inputs["beta"],
        kl_estimator="k3",
        aggregation=inputs["agg"],
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

    return with_gradient(inputs, loss)


def weighed(inputs: Inputs, token_loss: Callable[[Tensor], Tensor], aggregation: str | None = None) -> Outputs:
    """Run a token loss under the aggregation of the case, or under the one that belongs to the loss."""
    weights = step_weights(inputs, aggregation or inputs["agg"])
    return with_gradient(inputs, lambda logprobs: (weights * token_loss(logprobs)).sum())


def loss_gspo(inputs: Inputs) -> Outputs:
    return weighed(
        inputs,
        lambda logprobs: algo.gspo_loss(logprobs, *sequence_inputs(inputs), **clip_widths(inputs)),
        "seq-mean-token-sum" if inputs.get("length_scaled") else "seq-mean-token-mean",
    )


def loss_gspo_token(inputs: Inputs) -> Outputs:
    width = len(inputs["logp"][0])
    advantage = real([[*row, *[0.0] * (width - len(row))] for row in inputs["adv"]])
    old, mask = real(inputs["logp_old"]), flags(inputs["mask"])
    return weighed(
        inputs,
        lambda logprobs: algo.gspo_token_loss(logprobs, old, advantage, mask, **clip_widths(inputs)),
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


def sequence_inputs(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    return real(inputs["logp_old"]), real(inputs["adv"]), flags(inputs["mask"])


def clip_widths(inputs: Inputs) -> dict[str, float]:
    return {"clip_low": inputs["eps_low"], "clip_high": inputs["eps_high"]}


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


AGGREGATIONS = ("seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "constant", "prompt-mean")


def agg_modes(inputs: Inputs) -> Outputs:
    losses = real(inputs["loss"])
    return {name: (step_weights(inputs, name) * losses).sum().item() for name in AGGREGATIONS}


def agg_accumulate(inputs: Inputs) -> Outputs:
    micro = inputs["micro"]
    lengths = [flags(part["mask"]).sum(dim=1) for part in micro]
    every = torch.cat(lengths)
    outputs: Outputs = {}
    for name in ("token-mean", "seq-mean-token-mean"):
        weights = algo.sequence_weights(every, torch.arange(len(every)), name, max_tokens=1)
        pieces = weights.split([len(part) for part in lengths])
        alone = [algo.sequence_weights(part, torch.arange(len(part)), name, max_tokens=1) for part in lengths]
        parts = [weighted_sum(part, piece) for part, piece in zip(micro, pieces, strict=True)]
        means = [weighted_sum(part, piece) for part, piece in zip(micro, alone, strict=True)]
        outputs[name] = {"parts": parts, "total": sum(parts), "mean_of_means": sum(means) / len(means)}
    return outputs


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


def kl_estimators(inputs: Inputs) -> Outputs:
    outputs: Outputs = {}
    for name in ("k1", "k2", "k3"):
        logprobs = real(inputs["logp"]).requires_grad_()
        value = algo.kl_estimate(logprobs, real(inputs["logp_ref"]), name)
        outputs[name] = value.tolist()
        outputs[f"grad_{name}"] = torch.autograd.grad(value.sum(), logprobs)[0].tolist()
    return outputs


def kl_expected_gradients(inputs: Inputs) -> Outputs:
    reference = real(inputs["logits_ref"]).log_softmax(-1)

    def gradient(value: Callable[[Tensor], Tensor], *, through_sampling: bool = False) -> list[float]:
        logits = real(inputs["logits"]).requires_grad_()
        logprobs = logits.log_softmax(-1)
        probabilities = logprobs.exp() if through_sampling else logprobs.exp().detach()
        return torch.autograd.grad((probabilities * value(logprobs)).sum(), logits)[0].tolist()

    return {
        "true_reverse_kl": gradient(lambda new: algo.kl_estimate(new, reference, "k1"), through_sampling=True),
        "k1_loss": gradient(lambda new: algo.kl_estimate(new, reference, "k1")),
        "k2_loss": gradient(lambda new: algo.kl_estimate(new, reference, "k2")),
        "k3_loss": gradient(lambda new: algo.kl_estimate(new, reference, "k3")),
        "k3_loss_importance_weighted": gradient(lambda new: algo.importance_weighted_kl(new, new.detach(), reference)),
    }


def kl_importance_weighted(inputs: Inputs) -> Outputs:
    old, reference = real(inputs["logp_old"]), real(inputs["logp_ref"])
    logprobs = real(inputs["logp"]).requires_grad_()
    value = algo.importance_weighted_kl(logprobs, old, reference)
    detached = algo.importance_ratio(logprobs, old).detach() * algo.kl_estimate(logprobs, reference, "k3")
    return {
        "value": value.tolist(),
        "grad": torch.autograd.grad(value.sum(), logprobs)[0].tolist(),
        "grad_ratio_detached": torch.autograd.grad(detached.sum(), logprobs)[0].tolist(),
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


def ent_exact(inputs: Inputs) -> Outputs:
    logits = real(inputs["logits"]).requires_grad_()
    entropy = algo.entropy_from_logits(logits, inputs["temperature"])
    return {"entropy": entropy.tolist(), "grad": torch.autograd.grad(entropy.sum(), logits)[0].tolist()}


def stat_whiten(inputs: Inputs) -> Outputs:
    width = max(map(len, inputs["mask"]))
    values = real([[*row, *[0.0] * (width - len(row))] for row in inputs["values"]])
    mask = flags([[*row, *[0] * (width - len(row))] for row in inputs["mask"]])
    found = algo.whiten(values, mask, ddof=inputs["ddof"], eps=inputs["eps"], shift_mean=inputs.get("shift_mean", True))
    return {"values": found.tolist()}


def mon_clip_fractions(inputs: Inputs) -> Outputs:
    ratio = real(inputs["ratio"])
    found = algo.clip_fractions(
        ratio,
        real(inputs["adv"]),
        torch.ones_like(ratio, dtype=torch.bool),
        clip_low=inputs["eps_low"],
        clip_high=inputs["eps_high"],
        dual_clip=inputs.get("dual_c"),
    )
    return asdict(found)


def mon_policy_kl(inputs: Inputs) -> Outputs:
    found = algo.ratio_stats(real(inputs["logp"]), real(inputs["logp_old"]), flags(inputs["mask"]))
    return {
        "kl_k1": found.kl_k1,
        "kl_k3": found.kl_k3,
        "ratio_mean": found.mean,
        "ratio_max": found.max,
        "ratio_min": found.min,
        "ess_fraction": found.effective_sample_frac,
    }


def mon_groups(inputs: Inputs) -> Outputs:
    rewards, scored, _ = grouped(inputs["rewards"], inputs["group"])
    found = algo.group_stats(
        rewards, tolerance=inputs["tol"], lowest=inputs["r_min"], highest=inputs["r_max"], scored=scored
    )
    return {
        "frac_zero_variance": found.zero_variance,
        "frac_all_correct": found.all_right,
        "frac_all_wrong": found.all_wrong,
        "mean_group_std": found.mean_std,
        "reward_mean": found.mean_reward,
    }


def mon_mismatch(inputs: Inputs) -> Outputs:
    found = algo.logprob_gap(real(inputs["logp_old"]), real(inputs["logp_roll"]), flags(inputs["mask"]))
    return {
        "mean_abs_diff": found.mean_abs,
        "max_abs_diff": found.max_abs,
        "kl_k1": found.kl_k1,
        "kl_k3": found.kl_k3,
        "mult_prob_error": found.mean_exp_abs,
        "mean_ratio": found.mean_weight,
        "chi2_token": found.chi2_token,
        "chi2_seq": found.chi2_sequence,
        "ppl_ratio": found.perplexity_ratio,
    }


def mon_lengths(inputs: Inputs) -> Outputs:
    found = algo.length_stats(
        torch.tensor(inputs["lengths"]), real(inputs["adv"]), flags(inputs["truncated"]), flags(inputs["correct"])
    )
    return {
        "mean": found.mean,
        "max": found.max,
        "truncated_fraction": found.truncated_frac,
        "corr_length_advantage": found.advantage_correlation,
        "mean_correct": found.mean_correct,
        "mean_wrong": found.mean_wrong,
    }


def mon_staleness(inputs: Inputs) -> Outputs:
    found = algo.staleness(inputs["trainer_version"], inputs["token_versions"], limit=inputs["limit"])
    return {
        "mean_token_lag": found.mean_token_lag,
        "max_lag": found.max_lag,
        "mean_oldest_lag": found.mean_oldest_lag,
        "frac_over_limit": found.over_limit_frac,
        "frac_mixed_version": found.mixed_version_frac,
    }


def per_prompt(inputs: Inputs, estimator: Callable[[int, int, int], float]) -> Outputs:
    values = [estimator(n, c, inputs["k"]) for n, c in zip(inputs["n"], inputs["c"], strict=True)]
    return {"per_prompt": values, "mean": sum(values) / len(values)}


def eval_avg_at_k_ci(inputs: Inputs) -> Outputs:
    correct = inputs["correct"]
    clustered = estimators.clustered_interval(correct, quantile="normal", clip=False)
    wilson = estimators.wilson_interval(sum(map(sum, correct)), sum(map(len, correct)))
    return {
        "mean": estimators.avg_at_k(correct),
        "se_naive": estimators.naive_se(correct),
        "se_clustered": estimators.clustered_se(correct),
        "ci_clustered": [clustered.low, clustered.high],
        "wilson_pooled": [wilson.low, wilson.high],
        "se_bootstrap_ideal": estimators.bootstrap_se(correct),
    }


def eval_paired(inputs: Inputs) -> Outputs:
    found = estimators.paired_comparison(inputs["a"], inputs["b"])
    return {
        "diff": found.difference,
        "se": found.se,
        "z": found.z,
        "p_sign_flip": found.p_sign_flip,
        "p_sign_exact": found.p_sign_test,
    }


OPERATIONS: dict[str, Callable[[Inputs], Outputs]] = {
    "adv.batch_std": lambda inputs: flat(
        algo.batch_std_advantages(rows_of(inputs, "rewards"), std_of=inputs["std_of"], **std_choice(inputs))
    ),
    "adv.grpo": adv_grpo,
    "adv.maxrl": lambda inputs: flat(algo.maxrl_advantages(rows_of(inputs, "rewards"), mean_eps=inputs["eps"])),
    "adv.ngrpo": lambda inputs: flat(
        algo.ngrpo_advantages(
            rows_of(inputs, "rewards"),
            max_reward=inputs["r_max"],
            num_virtual=inputs["n_virtual"],
            **std_choice(inputs),
        )
    ),
    "adv.opo": lambda inputs: flat(
        algo.length_weighted_advantages(rows_of(inputs, "rewards"), rows_of(inputs, "lengths"))
    ),
    "adv.passk_analytic": lambda inputs: flat(
        algo.passk_advantages(real([inputs["correct"]]), k=inputs["k"], std_eps=inputs["eps"])
    ),
    "adv.passk_topgap": lambda inputs: flat(algo.top_gap_advantages(rows_of(inputs, "rewards"), **std_choice(inputs))),
    "adv.mean_only": lambda inputs: advantages(inputs, algo.AdvantageSettings(estimator="group_mean")),
    "adv.rloo": lambda inputs: advantages(inputs, algo.AdvantageSettings(estimator="rloo")),
    "agg.accumulate": agg_accumulate,
    "agg.modes": agg_modes,
    "ent.exact": ent_exact,
    "eval.avg_at_k_ci": eval_avg_at_k_ci,
    "eval.best_of_n": lambda inputs: {
        "best_of_n": estimators.best_of_n(inputs["scores"], inputs["correct"], inputs["n"])
    },
    "eval.maj_at_k": lambda inputs: {"maj_at_k": estimators.maj_at_k(inputs["answers"], inputs["gold"], inputs["k"])},
    "eval.paired": eval_paired,
    "eval.pass_at_k": lambda inputs: per_prompt(inputs, estimators.pass_at_k),
    "eval.pass_hat_k": lambda inputs: per_prompt(inputs, estimators.pass_hat_k),
    "eval.token_cost": lambda inputs: asdict(estimators.token_cost(inputs["tokens"], inputs["correct"])),
    "filter.zero_variance": filter_zero_variance,
    "kl.estimators": kl_estimators,
    "kl.expected_gradients": kl_expected_gradients,
    "kl.importance_weighted": kl_importance_weighted,
    "kl.in_reward": kl_in_reward,
    "logp.from_logits": logp_from_logits,
    "is.weights": is_weights,
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
    "mon.clip_fractions": mon_clip_fractions,
    "mon.groups": mon_groups,
    "mon.lengths": mon_lengths,
    "mon.mismatch": mon_mismatch,
    "mon.policy_kl": mon_policy_kl,
    "mon.staleness": mon_staleness,
    "reward.compose": lambda inputs: {"rewards": list(compose_rewards(inputs["components"], inputs["weights"]))},
    "stat.whiten": stat_whiten,
}
"""What this package can check. A name that is missing here is reported as skipped."""
