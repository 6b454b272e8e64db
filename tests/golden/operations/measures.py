"""Sections 7 and 8: evaluation estimators and monitoring."""

from collections.abc import Callable
from dataclasses import asdict

import torch

from oncurve import algo
from oncurve.evaluate import estimators
from tests.golden.operations.shared import Groups, Inputs, Operation, Outputs, flags, real


def per_prompt(inputs: Inputs, estimator: Callable[[int, int, int], float]) -> Outputs:
    sizes = inputs["n"] if isinstance(inputs["n"], list) else [inputs["n"]] * len(inputs["c"])
    values = [estimator(n, c, inputs["k"]) for n, c in zip(sizes, inputs["c"], strict=True)]
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
    groups = Groups(inputs["group"])
    found = algo.group_stats(
        groups.table(inputs["rewards"]),
        tolerance=inputs["tol"],
        lowest=inputs.get("r_min", 0.0),
        highest=inputs.get("r_max", 1.0),
        scored=groups.scored,
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


OPERATIONS: dict[str, Operation] = {
    "eval.avg_at_k_ci": eval_avg_at_k_ci,
    "eval.best_of_n": lambda inputs: {
        "best_of_n": estimators.best_of_n(inputs["scores"], inputs["correct"], inputs["n"])
    },
    "eval.maj_at_k": lambda inputs: {"maj_at_k": estimators.maj_at_k(inputs["answers"], inputs["gold"], inputs["k"])},
    "eval.paired": eval_paired,
    "eval.pass_at_k": lambda inputs: per_prompt(inputs, estimators.pass_at_k),
    "eval.pass_hat_k": lambda inputs: per_prompt(inputs, estimators.pass_hat_k),
    "eval.token_cost": lambda inputs: asdict(estimators.token_cost(inputs["tokens"], inputs["correct"])),
    "mon.clip_fractions": mon_clip_fractions,
    "mon.groups": mon_groups,
    "mon.lengths": mon_lengths,
    "mon.mismatch": mon_mismatch,
    "mon.policy_kl": mon_policy_kl,
    "mon.staleness": mon_staleness,
}
