"""From groups to what one optimiser step trains: who takes part, with which advantage and weight.

Shapes: P groups, G members of the largest one; a missing member of a smaller group counts as unscored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from oncurve.algo import ObjectiveSettings, group_advantages, is_zero_variance, sequence_weights
from oncurve.types import Completion, Group


@dataclass(frozen=True)
class Member:
    """One completion's part in an optimiser step."""

    completion: Completion
    index: int
    """Its place among all completions of the rollout, group after group."""
    advantage: float
    weight: float
    """Weight of each of its tokens in the loss; 0 when it is not trained."""


@dataclass(frozen=True)
class GradedRollout:
    """Advantages of a rollout, and which of its groups and members are trained."""

    groups: tuple[Group, ...]
    advantages: Tensor
    """[P, G] float64; exactly 0 wherever there is nothing to learn from."""
    is_dropped: Tensor
    """[P] bool, fewer than two scored members."""
    is_silent: Tensor
    """[P] bool, not dropped, but the task rewards are all equal."""
    scored: Tensor
    """[P, G] bool, the completion has a reward."""
    objective: ObjectiveSettings

    @property
    def trained_groups(self) -> list[int]:
        """Indices of the groups that take part in an optimiser step and in its denominators."""
        left_out = self.is_dropped if self.objective.zero_variance == "keep" else self.is_dropped | self.is_silent
        return [index for index, is_out in enumerate(left_out.tolist()) if not is_out]

    def rows(self) -> list[tuple[float, ...]]:
        """Advantages as plain numbers, one row a group, as long as the group."""
        pairs = zip(self.groups, self.advantages.tolist(), strict=True)
        return [tuple(row[: len(group.completions)]) for group, row in pairs]

    def minibatches(self, count: int, *, max_tokens: int) -> Iterator[list[Member]]:
        """Split the trained groups, in their order, into at most ``count`` optimiser steps of nearly equal size.

        Each step has denominators of its own. A completion that is not trained (unscored, truncated under
        ``mask_truncated``, or empty) has length 0 there: it still counts as a sequence of its group. A step in which
        nobody is trained is left out.
        """
        groups = self.trained_groups
        count = min(count, len(groups))
        for part in range(count):
            chosen = groups[part * len(groups) // count : (part + 1) * len(groups) // count]
            members = self._members(chosen, max_tokens)
            if any(member.weight > 0 for member in members):
                yield members

    def _members(self, chosen: Sequence[int], max_tokens: int) -> list[Member]:
        places = [(p, g) for p in chosen for g in range(len(self.groups[p].completions))]
        lengths = torch.tensor([self._trained_length(p, g) for p, g in places])
        owners = torch.tensor([p for p, _ in places])
        weights = sequence_weights(lengths, owners, self.objective.aggregation, max_tokens=max_tokens)
        weights = weights.masked_fill(lengths == 0, 0.0)
        first = [0, *accumulate(len(group.completions) for group in self.groups)]
        return [
            Member(self.groups[p].completions[g], first[p] + g, self.advantages[p, g].item(), weight)
            for (p, g), weight in zip(places, weights.tolist(), strict=True)
        ]

    def _trained_length(self, group: int, index: int) -> int:
        completion = self.groups[group].completions[index]
        is_masked = self.objective.mask_truncated and completion.is_truncated
        return 0 if is_masked or not bool(self.scored[group, index]) else len(completion.token_ids)


def grade(
    groups: Sequence[Group],
    objective: ObjectiveSettings,
    *,
    penalties: Sequence[Sequence[float]] | None = None,
    primary: str | None = None,
) -> GradedRollout:
    """Turn rewards into advantages and find the groups without signal.

    Args:
        groups: of one rollout.
        objective: advantage estimator, what happens to groups without signal.
        penalties: subtracted from the rewards before the baseline, per group and completion: the KL in the reward.
        primary: the reward component that is the task metric, by which a group counts as all-equal; None takes the
            whole reward.

    Raises:
        ValueError: there is no group, or none with two members.
    """
    rewards, scored = _matrix([group.rewards for group in groups])
    metrics = [group.rewards if primary is None else _component(group, primary) for group in groups]
    task_rewards, has_metric = _matrix(metrics)
    tolerance = objective.advantage.tolerance
    is_dropped = scored.sum(dim=1) < 2
    is_silent = is_zero_variance(task_rewards, tolerance=tolerance, scored=has_metric & scored) & ~is_dropped
    shaped = rewards if penalties is None else rewards - _matrix(penalties)[0]
    advantages = group_advantages(shaped, objective.advantage, scored=scored)
    if objective.zero_variance != "keep":
        advantages = advantages.masked_fill(is_silent[:, None], 0.0)
    return GradedRollout(tuple(groups), advantages, is_dropped, is_silent, scored, objective)


def _component(group: Group, name: str) -> list[float | None]:
    return [verdict.components.get(name) for verdict in group.verdicts]


def _matrix(rows: Sequence[Sequence[float | None]]) -> tuple[Tensor, Tensor]:
    """Return [P, G] float64 values with 0 for None and for missing members, and the mask of present ones."""
    width = max((len(row) for row in rows), default=0)
    padded = [[*row, *[None] * (width - len(row))] for row in rows]
    values = torch.tensor([[0.0 if value is None else value for value in row] for row in padded], dtype=torch.float64)
    present = torch.tensor([[value is not None for value in row] for row in padded], dtype=torch.bool)
    return values.reshape(len(rows), width), present.reshape(len(rows), width)
