"""Baselines that are carried from one reward to the next."""

from dataclasses import dataclass

import torch
from torch import Tensor

from oncurve.algo import groups


@dataclass(frozen=True)
class RunningBaseline:
    """What one prompt is expected to score: pseudo-counts of past successes and failures, fading as the policy moves.

    It needs one completion a prompt instead of a group. Whiten its advantages over the batch.

    Source:
        SPO, arXiv:2509.13232.
    """

    successes: float
    failures: float

    def __post_init__(self) -> None:
        if not (self.successes >= 0 and self.failures >= 0 and self.successes + self.failures > 0):
            raise ValueError(
                f"successes {self.successes} and failures {self.failures} must be counts >= 0, not both 0: "
                "without any there is nothing to expect. Start from a few rollouts, or from 1 and 1."
            )

    @property
    def value(self) -> float:
        """The expected reward: successes / (successes + failures)."""
        return self.successes / (self.successes + self.failures)

    def update(
        self, reward: float, divergence: float, *, half_life: float, kept_min: float, kept_max: float
    ) -> tuple[float, "RunningBaseline"]:
        """Return the advantage of a new reward, and the baseline that has seen it.

            A = reward - value                              value before the update
            q = clip(2^(-divergence / half_life), kept_min, kept_max)
            successes' = q * successes + reward;  failures' = q * failures + 1 - reward

        Args:
            reward: in [0, 1].
            divergence: KL in nats by which the policy moved since this prompt's last visit, >= 0 up to noise.
            half_life: divergence that halves the memory, > 0.
            kept_min: smallest share of the counts that survives, in [0, kept_max].
            kept_max: largest share that survives, at most 1.

        Raises:
            ValueError: the reward is outside [0, 1], or a setting outside its range.
        """
        if not 0 <= reward <= 1:
            raise ValueError(f"reward must be in [0, 1], got {reward}: a success rate tracks nothing else. Rescale it.")
        if not (half_life > 0 and 0 <= kept_min <= kept_max <= 1):
            raise ValueError(
                f"need half_life > 0 and 0 <= kept_min <= kept_max <= 1, got half_life {half_life}, "
                f"kept_min {kept_min} and kept_max {kept_max}"
            )
        kept = min(max(2.0 ** (-divergence / half_life), kept_min), kept_max)
        later = RunningBaseline(kept * self.successes + reward, kept * self.failures + 1 - reward)
        return reward - self.value, later


@dataclass(frozen=True)
class KalmanAdvantages:
    """What a Kalman filter makes of each group."""

    advantages: Tensor
    """[P, G] in the dtype of the rewards, 0 where unscored. No gradient."""
    mean: Tensor
    """[P] last estimate of the mean reward, float64."""
    variance: Tensor
    """[P] variance of that estimate, float64."""


def kalman_advantages(
    rewards: Tensor,
    *,
    process_noise: float = 1e-5,
    measurement_noise: float = 1e-2,
    prior_mean: float = 0.0,
    prior_variance: float = 1.0,
    std_eps: float = 1e-8,
    scored: Tensor | None = None,
) -> KalmanAdvantages:
    """Return (z - x) / (sqrt(P) + std_eps), with x and P from a filter that walks over the rewards z of a group.

        P' = P + process_noise;  K = P' / (P' + measurement_noise);  x = x + K (z - x);  P = (1 - K) P'

    The filter starts anew in each group, so one group never influences another. But the result depends on the order of
    the samples, each baseline contains its own reward, and an all-equal group does *not* get 0 (the first completions
    are judged against prior_mean). Kept for comparison; prefer ``group_advantages``.

    Args:
        rewards: [P, G] float, G in sampling order.
        process_noise: variance by which the mean may move a sample.
        measurement_noise: variance of a reward around the mean.
        prior_mean: x before the first reward.
        prior_variance: P before the first reward.
        std_eps: added to sqrt(P), in units of reward.
        scored: [P, G] bool, False where there is no verdict; None means all are scored. The filter steps over unscored
            members, which get 0.

    Raises:
        ValueError: rewards is not a float [P, G], ``scored`` has another shape, or a scored reward is NaN or inf.

    Source:
        KRPO, arXiv:2505.07527.
    """
    values, valid = groups.checked_rewards(rewards, scored, smallest_group=1)
    mean = values.new_full((len(values),), prior_mean)
    variance = torch.full_like(mean, prior_variance)
    advantages = torch.zeros_like(values)
    for index, (reward, seen) in enumerate(zip(values.unbind(dim=1), valid.unbind(dim=1), strict=True)):
        predicted = variance + process_noise
        gain = predicted / (predicted + measurement_noise)
        mean = torch.where(seen, mean + gain * (reward - mean), mean)
        variance = torch.where(seen, (1 - gain) * predicted, variance)
        advantages[:, index] = torch.where(seen, (reward - mean) / (variance.sqrt() + std_eps), 0.0)
    return KalmanAdvantages(advantages.to(rewards.dtype), mean, variance)
