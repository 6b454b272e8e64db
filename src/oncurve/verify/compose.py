"""One reward from several components."""

import math
from collections.abc import Sequence


def compose_rewards(components: Sequence[Sequence[float | None]], weights: Sequence[float]) -> list[float | None]:
    """Add up the weighted components of each completion.

        r = sum over k of w_k * r^k, over the components that returned a value; None when none did

    Args:
        components: one row a completion, one column a component; None where a component gave no value.
        weights: one finite weight a component.

    Returns:
        One reward a completion; None means unscored, never 0.

    Raises:
        ValueError: a row and the weights differ in length, or a value or weight is NaN or infinite.

    Source:
        The rule of TRL's ``GRPOTrainer`` for several reward functions.
    """
    if not all(math.isfinite(weight) for weight in weights):
        raise ValueError(f"weights must be finite, got {list(weights)}")
    return [_compose(row, weights) for row in components]


def gate_reward(reward: float | None, passed: Sequence[bool | None], *, gated_reward: float) -> float | None:
    """Make a reward worthless where a gate is shut.

        ``gated_reward`` when a gate is not passed; otherwise None when a gate has no verdict; otherwise the reward

    Args:
        reward: the sum of the other components, None where they gave no value.
        passed: one entry a gate; None where the gate has no verdict.
        gated_reward: the stated worth of a completion that is shut out. It should not exceed what an empty completion
            earns, or being shut out pays.

    Returns:
        The reward, or None where nobody knows it: a gate in doubt is neither open nor shut.
    """
    if False in passed:
        return gated_reward
    return None if None in passed else reward


def _compose(row: Sequence[float | None], weights: Sequence[float]) -> float | None:
    if len(row) != len(weights):
        raise ValueError(f"{len(row)} components but {len(weights)} weights: {list(row)}, {list(weights)}")
    scored = [(value, weight) for value, weight in zip(row, weights, strict=True) if value is not None]
    if not all(math.isfinite(value) for value, _ in scored):
        raise ValueError(f"components must be finite or None, got {list(row)}")
    return math.fsum(value * weight for value, weight in scored) if scored else None
