"""What an objective asks of the rest of a run."""

from oncurve.algo import ObjectiveSettings
from oncurve.algo.advantage_settings import BINARY
from oncurve.learner import LearnerSettings
from oncurve.rollout import RolloutSettings
from oncurve.verify import RewardSettings


def refuse_unfit_objective(
    objective: ObjectiveSettings, rollout: RolloutSettings, reward: RewardSettings, learner: LearnerSettings
) -> None:
    """Refuse settings that are each right and make no sense together.

    Raises:
        ValueError: the group is too small for the estimator, the rewards are not what it is defined for, a correction
            would be counted twice, or a length reward could never act.
    """
    advantage, size = objective.advantage, rollout.group_size
    if advantage.needs_group and size < 2:
        raise ValueError(
            f"rollout.group_size must be at least 2, got {size}. {advantage.estimator} grades a completion against the "
            "others of its group, and a group of one has no others: its advantage would always be 0."
        )
    if advantage.estimator in ("pass_at_k", "pkpo") and advantage.k > size:
        raise ValueError(
            f"objective.advantage.k = {advantage.k} attempts cannot be drawn from rollout.group_size = {size} "
            "completions: lower k, or raise the group size"
        )
    if advantage.estimator in BINARY:
        _refuse_shaped_reward(advantage.estimator, reward)
    if advantage.estimator == "gdpo" and reward.gates:
        raise ValueError(
            f"gdpo normalises each component before it adds them up, and a gate ({', '.join(reward.gates)}) is no part "
            "of a sum. Make it a component with a weight, or choose another objective.advantage.estimator."
        )
    learner.recomputes(objective)
    length = reward.length
    if length is not None and length.max_tokens is not None and length.max_tokens > rollout.sampling.max_tokens:
        raise ValueError(
            f"reward.length.max_tokens = {length.max_tokens} is never reached: rollout.sampling.max_tokens = "
            f"{rollout.sampling.max_tokens} ends every completion before. Set them alike."
        )


def _refuse_shaped_reward(estimator: str, reward: RewardSettings) -> None:
    weighed = {name: weight for name, weight in reward.weights.items() if weight != 0}
    is_shaped = reward.truncated_factor != 1.0 or reward.gated_reward != 0.0
    if len(weighed) > 1 or set(weighed.values()) != {1.0} or is_shaped:
        listed = ", ".join(f"{name} {weight:g}" for name, weight in weighed.items())
        raise ValueError(
            f"{estimator} is defined for rewards of exactly 0 and 1: a negative or shaped reward turns its sign or its "
            f"meaning, and this reward is made of {listed}. Give one component weight 1 and the others 0 (they are "
            'still recorded), or choose objective.advantage.estimator = "group_mean".'
        )
