"""Sections 1.3, 1.5, 1.6 and 1.7: composed and length-shaped rewards, credit of tokens, curricula."""

from collections.abc import Callable
from typing import Any

from oncurve import algo
from oncurve.tasks import curriculum
from oncurve.verify import compose_rewards, length_rewards
from tests.golden.operations.shared import Inputs, Operation, Outputs, flags, real


def each_length(reward: Callable[..., float], **of_case: Any) -> Outputs:
    """Apply a reward to every completion; list arguments are one value a completion, the others shared."""
    per_completion = {name: value for name, value in of_case.items() if isinstance(value, list)}
    shared = {name: value for name, value in of_case.items() if not isinstance(value, list) and value is not None}
    rows = zip(*per_completion.values(), strict=True)
    return {"rewards": [reward(**dict(zip(per_completion, row, strict=True)), **shared) for row in rows]}


def reward_overlong(inputs: Inputs) -> Outputs:
    return each_length(
        length_rewards.overlong_penalty,
        length=inputs["lengths"],
        max_tokens=inputs["l_max"],
        margin=inputs["l_cache"],
        factor=inputs.get("factor"),
    )


def reward_cosine(inputs: Inputs) -> Outputs:
    return each_length(
        length_rewards.cosine_length_reward,
        length=inputs["lengths"],
        is_correct=inputs["correct"],
        max_tokens=inputs["l_max"],
        correct_ends=tuple(inputs["r_correct"]),
        wrong_ends=tuple(inputs["r_wrong"]),
    )


def reward_l1(inputs: Inputs) -> Outputs:
    case = {
        "length": inputs["lengths"],
        "target": inputs["targets"],
        "is_correct": inputs["correct"],
        "slope": inputs["alpha"],
    }
    if inputs["mode"] == "exact":
        return each_length(length_rewards.l1_exact_reward, **case)
    return each_length(length_rewards.l1_max_reward, **case, offset=inputs.get("delta"))


def reward_lead_length(inputs: Inputs) -> Outputs:
    names = {"alpha": "alpha", "ddof": "ddof", "eps": "std_eps", "r_wrong": "wrong_reward"}
    shape = {ours: inputs[theirs] for theirs, ours in names.items() if theirs in inputs}
    return {"rewards": length_rewards.lead_length_rewards(inputs["lengths"], inputs["correct"], **shape)}


def reward_length_band(inputs: Inputs) -> Outputs:
    return each_length(
        length_rewards.length_band_penalty,
        length=inputs["lengths"],
        low=inputs["low"],
        high=inputs["high"],
        max_tokens=inputs["l_max"],
        short_weight=inputs["w_short"],
        long_weight=inputs["w_long"],
    )


def adv_gae(inputs: Inputs) -> Outputs:
    found = algo.generalized_advantages(
        real(inputs["token_rewards"]),
        real(inputs["values"]),
        flags(inputs["mask"]),
        gamma=inputs["gamma"],
        lam=inputs["lam"],
    )
    return {"advantages": found.advantages.tolist(), "returns": found.returns.tolist()}


def adv_gae_vapo(inputs: Inputs) -> Outputs:
    values, mask = real(inputs["values"]), flags(inputs["mask"])
    lam = algo.length_adaptive_lambda(mask.sum(dim=1), alpha=inputs["alpha"])
    rewards = algo.kl_token_rewards(real(inputs["rewards"]), values, values, mask, kl_coef=0.0)
    found = algo.generalized_advantages(rewards, values, mask, gamma=1.0, lam=lam, target_lam=1.0)
    return {"lam": lam.tolist(), "advantages": found.advantages.tolist(), "value_targets": found.returns.tolist()}


def curriculum_adarft(inputs: Inputs) -> Outputs:
    target, targets = inputs["target"], []
    for mean_reward in inputs["mean_rewards"]:
        target = curriculum.adarft_target(
            target,
            mean_reward,
            wanted_reward=inputs["beta"],
            sensitivity=inputs["alpha"],
            step=inputs["eta"],
            lowest=inputs["d_min"],
            highest=inputs["d_max"],
        )
        targets.append(target)
    return {"targets": targets}


def curriculum_priority(inputs: Inputs) -> Outputs:
    is_spread = any(word in inputs["mode"] for word in ("sqrt", "std", "var", "uncertain", "learn"))
    mode = "variance" if is_spread else "failure"
    return {"probs": curriculum.priority_weights(inputs["success"], mode=mode, eps=inputs.get("eps", 0.0))}


OPERATIONS: dict[str, Operation] = {
    "adv.gae": adv_gae,
    "adv.gae_vapo": adv_gae_vapo,
    "curriculum.adarft": curriculum_adarft,
    "curriculum.priority": curriculum_priority,
    "reward.compose": lambda inputs: {"rewards": list(compose_rewards(inputs["components"], inputs["weights"]))},
    "reward.cosine": reward_cosine,
    "reward.kimi_length": lambda inputs: {
        "rewards": length_rewards.kimi_length_rewards(inputs["lengths"], inputs["correct"])
    },
    "reward.l1": reward_l1,
    "reward.lead_length": reward_lead_length,
    "reward.length_band": reward_length_band,
    "reward.overlong": reward_overlong,
}
