"""Sections 1.1 to 1.4: rewards of groups to advantages."""

from collections.abc import Callable

import torch
from torch import Tensor

from oncurve import algo
from tests.golden.operations.shared import Groups, Inputs, Operation, Outputs, flags, real, std_choice

Estimator = Callable[[Tensor, Tensor, Inputs], Tensor]


def grouped(estimator: Estimator, *, rewards: str = "rewards") -> Operation:
    """Make an operation of an estimator that takes rewards [P, G] and the mask of the scored ones."""

    def operation(inputs: Inputs) -> Outputs:
        groups = Groups(inputs.get("group", [0] * len(inputs[rewards])))
        return {"advantages": groups.flat(estimator(groups.table(inputs[rewards]), groups.scored, inputs))}

    return operation


def adv_grpo(rewards: Tensor, scored: Tensor, inputs: Inputs) -> Tensor:
    return algo.group_advantages(rewards, algo.AdvantageSettings(**std_choice(inputs)), scored=scored)


def adv_mean_only(rewards: Tensor, scored: Tensor, inputs: Inputs) -> Tensor:
    return algo.group_advantages(rewards, algo.AdvantageSettings(estimator="group_mean"), scored=scored)


def adv_rloo(rewards: Tensor, scored: Tensor, inputs: Inputs) -> Tensor:
    return algo.group_advantages(rewards, algo.AdvantageSettings(estimator="rloo"), scored=scored)


def adv_opo(inputs: Inputs) -> Outputs:
    groups = Groups(inputs["group"])
    rewards, lengths = groups.table(inputs["rewards"]), groups.table(inputs["lengths"])
    return {"advantages": groups.flat(algo.length_weighted_advantages(rewards, lengths, scored=groups.scored))}


def adv_batch_std(rewards: Tensor, scored: Tensor, inputs: Inputs) -> Tensor:
    std_of = "centered" if inputs["std_of"].startswith("cent") else "rewards"
    return algo.batch_std_advantages(rewards, std_of=std_of, scored=scored, **std_choice(inputs))


def adv_batch_loo(inputs: Inputs) -> Outputs:
    return {"advantages": algo.batch_loo_advantages(real(inputs["rewards"])[:, None]).flatten().tolist()}


def adv_difficulty(rewards: Tensor, scored: Tensor, inputs: Inputs) -> Tensor:
    names = {"w_min": "weight_min", "w_max": "weight_max", "rho0": "midpoint", "k": "slope"}
    shape = {ours: inputs[theirs] for theirs, ours in names.items() if theirs in inputs}
    return algo.difficulty_advantages(rewards, scored=scored, **std_choice(inputs), **shape)


def adv_ngrpo(rewards: Tensor, scored: Tensor, inputs: Inputs) -> Tensor:
    virtual = {"max_reward": inputs["r_max"], "num_virtual": inputs.get("n_virtual", 1)}
    return algo.ngrpo_advantages(rewards, scored=scored, **virtual, **std_choice(inputs))


def adv_pkpo(rewards: Tensor, scored: Tensor, inputs: Inputs) -> Tensor:
    baseline = "loo1" if "loo" in inputs.get("baseline", "none") else "plain"
    return algo.pkpo_advantages(rewards, k=inputs["k"], baseline=baseline, scored=scored)


def adv_gdpo(rewards: Tensor, scored: Tensor, inputs: Inputs) -> Tensor:
    return algo.gdpo_advantages(rewards, real(inputs["weights"]), scored=scored, **std_choice(inputs))


def adv_reinforce_pp(inputs: Inputs) -> Outputs:
    divergence, mask = real(inputs["kl"]), flags(inputs["mask"])
    token_rewards = algo.kl_token_rewards(
        real(inputs["rewards"]), divergence, torch.zeros_like(divergence), mask, kl_coef=inputs["kl_coef"]
    )
    found = algo.reinforce_pp_advantages(
        token_rewards, mask, gamma=inputs["gamma"], ddof=inputs["ddof"], var_floor=inputs["var_floor"]
    )
    return {"advantages": found.tolist()}


def adv_reinforce_pp_baseline(inputs: Inputs) -> Outputs:
    groups = Groups(inputs["group"])
    rewards, lengths = groups.table(inputs["rewards"]), groups.table(inputs["lengths"])
    found = algo.reinforce_pp_baseline_advantages(rewards, lengths, ddof=inputs["ddof"], scored=groups.scored)
    return {"advantages": groups.flat(found)}


def baseline_kalman(inputs: Inputs) -> Outputs:
    found = algo.kalman_advantages(
        real([inputs["rewards"]]),
        process_noise=inputs["q"],
        measurement_noise=inputs["r"],
        prior_mean=inputs["x0"],
        prior_variance=inputs["p0"],
        std_eps=inputs["eps"],
    )
    return {"advantages": found.advantages[0].tolist(), "x": found.mean.item(), "p": found.variance.item()}


def baseline_spo_tracker(inputs: Inputs) -> Outputs:
    baseline, advantages = algo.RunningBaseline(inputs["alpha"], inputs["beta"]), []
    for reward, divergence in zip(inputs["rewards"], inputs["kl"], strict=True):
        advantage, baseline = baseline.update(
            reward,
            divergence,
            half_life=inputs["d_half"],
            kept_min=inputs["rho_min"],
            kept_max=inputs["rho_max"],
        )
        advantages.append(advantage)
    return {"advantages": advantages, "alpha": baseline.successes, "beta": baseline.failures}


def filter_zero_variance(inputs: Inputs) -> Outputs:
    groups = Groups(inputs["group"])
    silent = algo.is_zero_variance(groups.table(inputs["rewards"]), tolerance=inputs["tol"], scored=groups.scored)
    return {
        "keep": (~silent).int().tolist(),
        "frac_zero": silent.double().mean().item(),
        "gpg_alpha": algo.informative_scale(silent, groups.scored.sum(dim=1)),
    }


OPERATIONS: dict[str, Operation] = {
    "adv.batch_loo": adv_batch_loo,
    "adv.batch_std": grouped(adv_batch_std),
    "adv.difficulty_logistic": grouped(adv_difficulty),
    "adv.gdpo": grouped(adv_gdpo),
    "adv.grpo": grouped(adv_grpo),
    "adv.maxrl": grouped(lambda r, scored, inputs: algo.maxrl_advantages(r, mean_eps=inputs["eps"], scored=scored)),
    "adv.mean_only": grouped(adv_mean_only),
    "adv.ngrpo": grouped(adv_ngrpo),
    "adv.opo": adv_opo,
    "adv.passk_analytic": grouped(
        lambda c, scored, inputs: algo.passk_advantages(c, k=inputs["k"], std_eps=inputs["eps"], scored=scored),
        rewards="correct",
    ),
    "adv.passk_topgap": grouped(
        lambda r, scored, inputs: algo.top_gap_advantages(r, scored=scored, **std_choice(inputs))
    ),
    "adv.pkpo": grouped(adv_pkpo),
    "adv.reinforce_pp": adv_reinforce_pp,
    "adv.reinforce_pp_baseline": adv_reinforce_pp_baseline,
    "adv.rloo": grouped(adv_rloo),
    "adv.shrink_baseline": grouped(
        lambda r, scored, inputs: algo.shrink_advantages(r, shrinkage=inputs["lam"], scored=scored)
    ),
    "baseline.kalman": baseline_kalman,
    "baseline.spo_tracker": baseline_spo_tracker,
    "filter.zero_variance": filter_zero_variance,
}
