"""Coefficients of KL and entropy that change during a run."""

from collections.abc import Mapping
from typing import Any

from oncurve.algo import ObjectiveSettings, adapted_entropy_coef, adapted_kl_coef


class Coefficients:
    """The KL and entropy coefficients as they are now; constant unless the objective adapts them.

    Args:
        objective: starting values and targets.
    """

    def __init__(self, objective: ObjectiveSettings) -> None:
        self._objective = objective
        self._kl_coef = objective.kl_coef
        self._entropy_coef = objective.entropy_coef
        self._last_entropy: float | None = None

    def objective(self) -> ObjectiveSettings:
        """The objective of the next optimiser step."""
        if self._objective.kl_adaptive is None and self._objective.entropy_adaptive is None:
            return self._objective
        return self._objective.model_copy(update={"kl_coef": self._kl_coef, "entropy_coef": self._applied()})

    def after_step(self, entropy: float) -> None:
        """Tell the mean entropy of the step just taken, in nats a token."""
        adaptive, before = self._objective.entropy_adaptive, self._last_entropy
        if adaptive is not None and before is not None:
            self._entropy_coef = adapted_entropy_coef(
                self._entropy_coef, before, target=adaptive.target, step=adaptive.step, highest=adaptive.coef_max
            ).next
        self._last_entropy = entropy

    def after_rollout(self, divergence: float | None, num_completions: int) -> None:
        """Tell the measured KL to the reference of a rollout, in nats a token; None when it was not measured.

        More completions than the horizon count as the horizon, so that a rollout changes the coefficient by a fifth at
        most and never turns its sign.
        """
        adaptive = self._objective.kl_adaptive
        if adaptive is not None and divergence is not None:
            self._kl_coef = adapted_kl_coef(
                self._kl_coef,
                divergence,
                target=adaptive.target,
                horizon=adaptive.horizon,
                num_samples=min(num_completions, adaptive.horizon),
            )

    def metrics(self) -> dict[str, float]:
        """``objective/kl_coef`` and ``objective/entropy_coef`` of the next optimiser step, where they are adapted."""
        found = {}
        if self._objective.kl_adaptive is not None:
            found["objective/kl_coef"] = self._kl_coef
        if self._objective.entropy_adaptive is not None:
            found["objective/entropy_coef"] = self._applied()
        return found

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {"kl": self._kl_coef, "entropy": self._entropy_coef, "last_entropy": self._last_entropy}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._kl_coef, self._entropy_coef = float(state["kl"]), float(state["entropy"])
        self._last_entropy = None if state["last_entropy"] is None else float(state["last_entropy"])

    def _applied(self) -> float:
        """The entropy coefficient of the next step: off above the target, and before any entropy is known."""
        adaptive = self._objective.entropy_adaptive
        if adaptive is None:
            return self._entropy_coef
        is_low = self._last_entropy is not None and self._last_entropy <= adaptive.target
        return self._entropy_coef if is_low else 0.0
