"""Which tasks to draw more often: at the right difficulty, or where the policy still fails. Pure functions."""

from collections.abc import Sequence
from math import isfinite, sqrt, tanh
from typing import Literal, Self

from pydantic import Field, model_validator

from oncurve.types import Settings

PriorityMode = Literal["failure", "variance"]


class CurriculumSettings(Settings):
    """Which tasks come first. Choosing moves the tasks trained on away from the uniform average of the data."""

    mode: Literal["none", "difficulty", "failure", "variance"] = "none"
    """``difficulty`` asks for tasks of a difficulty that follows the mean reward (AdaRFT); ``failure`` draws tasks in
    proportion to 1 - pass rate, ``variance`` to the spread sqrt(p (1 - p)) of their answers."""

    window: int = Field(4, ge=1, le=1000)
    """Candidates for each task that is wanted; 1 leaves no choice."""

    memory: float = Field(0.5, ge=0, lt=1)
    """How much of an old pass rate stays when a task, or one of its kind and difficulty, is seen again."""

    variance_floor: float = Field(0.05, ge=0)
    """variance: added to the spread, so that tasks at 0 and 1 are tried again."""

    retire_at: float | None = Field(None, gt=0, le=1)
    """Tasks with at least this pass rate are only taken when nothing else is left. None: never retired."""

    lowest: float = 0.0
    """difficulty: where it begins, and its lower end."""

    highest: float = 100.0
    """difficulty: its upper end."""

    step: float = Field(50.0, gt=0)
    """difficulty: largest move after one rollout."""

    sensitivity: float = Field(2.0, gt=0)
    """difficulty: how fast the move saturates, per unit of reward."""

    wanted_reward: float = 0.5
    """difficulty: mean reward at which it stays."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.lowest >= self.highest:
            raise ValueError(f"lowest {self.lowest} must be below highest {self.highest}")
        return self


def adarft_target(
    target: float,
    mean_reward: float,
    *,
    wanted_reward: float = 0.5,
    sensitivity: float = 2.0,
    step: float = 50.0,
    lowest: float = 0.0,
    highest: float = 100.0,
) -> float:
    """Return the difficulty to ask for next: harder after a good step, easier after a bad one.

    clip(target + step * tanh(sensitivity * (mean_reward - wanted_reward)), lowest, highest)

    Args:
        target: difficulty asked for in this step.
        mean_reward: over the completions of this step.
        wanted_reward: mean reward at which the target stays.
        sensitivity: how fast the move saturates, per unit of reward.
        step: largest move, in units of difficulty.
        lowest: least difficulty.
        highest: largest difficulty.

    Raises:
        ValueError: lowest > highest.

    Source:
        AdaRFT, arXiv:2504.05520.
    """
    if lowest > highest:
        raise ValueError(f"need lowest <= highest, got {lowest} and {highest}: no difficulty lies between")
    moved = target + step * tanh(sensitivity * (mean_reward - wanted_reward))
    return min(max(moved, lowest), highest)


def nearest_in_difficulty(difficulties: Sequence[float], target: float, num_tasks: int) -> list[int]:
    """Return the positions of the ``num_tasks`` tasks closest to the target, closest first; the earlier one on a tie.

    Args:
        difficulties: one a task, from an earlier model that stays fixed.
        target: of ``adarft_target``.
        num_tasks: how many to return.

    Raises:
        ValueError: there are fewer tasks than that.
    """
    if not 0 <= num_tasks <= len(difficulties):
        raise ValueError(f"{num_tasks} tasks are wanted but {len(difficulties)} have a difficulty")
    return sorted(range(len(difficulties)), key=lambda place: abs(difficulties[place] - target))[:num_tasks]


def priority_weights(success_rates: Sequence[float], *, mode: PriorityMode, eps: float = 0.0) -> list[float]:
    """Return the probability with which to draw each task.

    - ``failure``: proportional to 1 - p. A task that always succeeds is never drawn again.
    - ``variance``: proportional to sqrt(p (1 - p)) + eps. Most at p = 1/2, where a group says most; eps keeps tasks at
      0 and 1 alive, whose rates may have changed since.

    Drawing this way changes the objective: use ``importance_of_draw`` if it must stay the uniform average.

    Args:
        success_rates: p of each task, in [0, 1].
        mode: which of the two.
        eps: >= 0, used by ``variance`` alone.

    Returns:
        Probabilities that sum to 1; all equal when no task has any priority.

    Raises:
        ValueError: there is no task, a rate is outside [0, 1], or eps is negative.

    Source:
        ``failure``: Kimi k1.5, arXiv:2501.12599.
    """
    if not success_rates or not all(0 <= rate <= 1 for rate in success_rates):
        raise ValueError(f"success rates must be a non-empty list in [0, 1], got {list(success_rates)}")
    if not (eps >= 0 and isfinite(eps)):
        raise ValueError(f"eps must be >= 0, got {eps}")
    if mode == "failure":
        weights = [1 - rate for rate in success_rates]
    else:
        weights = [sqrt(rate * (1 - rate)) + eps for rate in success_rates]
    total = sum(weights)
    return [weight / total for weight in weights] if total > 0 else [1 / len(weights)] * len(weights)


def importance_of_draw(probability: float, num_tasks: int) -> float:
    """Return 1 / (num_tasks * probability): the weight of a drawn task that restores the uniform average.

    Args:
        probability: with which this task was drawn, in (0, 1]. Tasks at 0 are lost to the average.
        num_tasks: tasks that could be drawn.

    Raises:
        ValueError: probability is outside (0, 1].
    """
    if not 0 < probability <= 1:
        raise ValueError(f"a task that was drawn has a probability in (0, 1], got {probability}")
    return 1 / (num_tasks * probability)
