"""From groups to what one optimiser step trains: who takes part, with which advantages and weight.

Shapes: P groups, G members of the largest one; a missing member of a smaller group counts as unscored. L tokens of a
completion.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch
from torch import Tensor

from oncurve.algo import (
    GradedRewards,
    ObjectiveSettings,
    estimate_advantages,
    finish_advantages,
    informative_scale,
    is_zero_variance,
    sequence_weights,
    token_advantages,
)
from oncurve.types import Completion, Group

ByIndex = Mapping[int, Tensor]
"""[L] one number a token, by the completion's place among all completions of the rollout."""


@dataclass(frozen=True)
class Member:
    """One completion's part in an optimiser step."""

    completion: Completion
    index: int
    """Its place among all completions of the rollout, group after group."""
    advantages: Tensor
    """[L] float64, one a token."""
    weight: float
    """Weight of each of its tokens in the loss; 0 when it is not trained."""


@dataclass(frozen=True)
class GradedRollout:
    """Advantages of a rollout, and which of its groups and members are trained."""

    groups: tuple[Group, ...]
    advantages: tuple[Tensor, ...]
    """[L] float64 a completion, group after group; exactly 0 wherever there is nothing to learn from."""
    gains: tuple[float, ...]
    """The advantage of each completion for the record: one number, the mean over its tokens where they differ."""
    returns: ByIndex
    """What a critic should learn; empty without one."""
    is_dropped: Tensor
    """[P] bool, too few scored members for the estimator."""
    is_silent: Tensor
    """[P] bool, not dropped, but the task rewards are all equal."""
    trained_lengths: Tensor
    """[P, G] tokens that are trained when the group is."""
    objective: ObjectiveSettings

    @property
    def trained_groups(self) -> list[int]:
        """Indices of the groups that take part in an optimiser step and in its denominators."""
        return [index for index, is_out in enumerate(_left_out(self).tolist()) if not is_out]

    def rows(self) -> list[tuple[float, ...]]:
        """One advantage a completion as plain numbers; one row a group, as long as the group."""
        flat = iter(self.gains)
        return [tuple(next(flat) for _ in group.completions) for group in self.groups]

    def minibatches(self, count: int, *, max_tokens: int) -> Iterator[list[Member]]:
        """Split the trained groups, in their order, into at most ``count`` optimiser steps of nearly equal size.

        Each step has denominators of its own. A completion that is not trained (unscored, truncated under
        ``mask_truncated``, not selected by ``raft``, or empty) has length 0 there: it still counts as a sequence of its
        group. A step in which nobody is trained is left out.
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
        lengths = torch.tensor([int(self.trained_lengths[p, g]) for p, g in places])
        owners = torch.tensor([p for p, _ in places])
        weights = sequence_weights(lengths, owners, self.objective.aggregation, max_tokens=max_tokens)
        weights = weights.masked_fill(lengths == 0, 0.0) * self._scale(chosen)
        first = [0, *accumulate(len(group.completions) for group in self.groups)]
        return [
            Member(self.groups[p].completions[g], first[p] + g, self.advantages[first[p] + g], weight)
            for (p, g), weight in zip(places, weights.tolist(), strict=True)
        ]

    def _scale(self, chosen: Sequence[int]) -> float:
        if self.objective.zero_variance != "rescale":
            return 1.0
        sizes = torch.tensor([len(self.groups[p].completions) for p in chosen])
        return informative_scale(self.is_silent[list(chosen)], sizes)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What grading needs beside the groups."""

    primary: str | None = None
    """The reward component that is the task metric, by which a group counts as all-equal; None: the whole reward."""
    component_weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of each reward component, for estimators that look at components."""
    penalties: ByIndex | None = None
    """Subtracted from the reward token by token: the KL in the reward, with its coefficient."""
    values: ByIndex | None = None
    """Of the critic."""


@dataclass(frozen=True)
class _Components:
    values: Tensor
    """[P, G, K]"""
    is_complete: Tensor
    """[P, G] bool, the completion has all of them."""
    weights: Tensor
    """[K]"""


def grade(groups: Sequence[Group], objective: ObjectiveSettings, judgement: Judgement | None = None) -> GradedRollout:
    """Turn rewards into advantages and find the groups without signal.

    Args:
        groups: of one rollout.
        objective: advantage estimator, what happens to groups without signal.
        judgement: task metric, component weights, KL penalties, values.

    Raises:
        ValueError: there is no group, or the rewards do not fit the estimator.
    """
    judgement = judgement or Judgement()
    settings = objective.advantage
    rewards, scored = _matrix([group.rewards for group in groups])
    components = _components(groups, judgement.component_weights)
    if settings.estimator == "gdpo" and components is not None:
        scored = scored & components.is_complete  # a missing component is no 0: the completion counts as unscored
    primary = judgement.primary
    metrics = [group.rewards if primary is None else _component(group, primary) for group in groups]
    task_rewards, has_metric = _matrix(metrics)
    is_dropped = scored.sum(dim=1) < (2 if settings.needs_group else 1)
    is_silent = is_zero_variance(task_rewards, tolerance=settings.tolerance, scored=has_metric & scored)
    bare = GradedRollout(
        groups=tuple(groups),
        advantages=(),
        gains=(),
        returns={},
        is_dropped=is_dropped,
        is_silent=is_silent & ~is_dropped & (scored.sum(dim=1) > 1),
        trained_lengths=_trained_lengths(groups, scored, objective),
        objective=objective,
    )
    if settings.is_token_level:
        return _by_token(bare, rewards, scored, judgement)
    return _by_completion(bare, rewards, scored, judgement, components)


def _by_completion(
    bare: GradedRollout, rewards: Tensor, scored: Tensor, judgement: Judgement, components: _Components | None
) -> GradedRollout:
    settings, groups = bare.objective.advantage, bare.groups
    if judgement.penalties is not None:
        rewards = rewards - _penalty_sums(groups, judgement.penalties)
    graded = GradedRewards(
        rewards=rewards,
        scored=scored,
        lengths=_matrix([[float(len(done.token_ids)) for done in group.completions] for group in groups])[0],
        trained_lengths=bare.trained_lengths,
        is_repeat=_repeats(groups, scored) if settings.estimator == "raft" else None,
        components=None if components is None else components.values,
        component_weights=None if components is None else components.weights,
    )
    num_tokens = int(bare.trained_lengths[~bare.is_dropped].sum())
    has_enough = settings.estimator != "reinforce_pp_baseline" or num_tokens > settings.ddof
    table = estimate_advantages(settings, graded) if has_enough else torch.zeros_like(rewards)
    lengths = bare.trained_lengths.clone()
    if settings.estimator == "raft":
        lengths[table == 0] = 0
    counts = torch.where(_left_out(bare)[:, None], 0, lengths)
    if settings.whiten or settings.clip is not None:
        table = finish_advantages(settings, table, counts)
    table = torch.where(_left_out(bare)[:, None], 0.0, table)
    flat = [table[p, g] for p, group in enumerate(groups) for g in range(len(group.completions))]
    spread = [gain.expand(len(done.token_ids)) for gain, done in zip(flat, _completions(groups), strict=True)]
    return replace(bare, advantages=tuple(spread), gains=tuple(gain.item() for gain in flat), trained_lengths=lengths)


def _by_token(bare: GradedRollout, rewards: Tensor, scored: Tensor, judgement: Judgement) -> GradedRollout:
    settings = bare.objective.advantage
    done = _completions(bare.groups)
    places = [(p, g) for p, group in enumerate(bare.groups) for g in range(len(group.completions))]
    rows = [i for i, (p, g) in enumerate(places) if bool(scored[p, g]) and done[i].token_ids]
    spread = [torch.zeros(len(completion.token_ids), dtype=torch.float64) for completion in done]
    if not rows:
        return replace(bare, advantages=tuple(spread), gains=tuple(0.0 for _ in spread))
    lengths = torch.tensor([len(done[i].token_ids) for i in rows])
    if settings.estimator == "reinforce_pp" and int(lengths.sum()) <= settings.ddof:
        return replace(bare, advantages=tuple(spread), gains=tuple(0.0 for _ in spread))
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    token_rewards = torch.zeros(mask.shape, dtype=torch.float64)
    if judgement.penalties is not None:
        token_rewards -= _padded([judgement.penalties[i] for i in rows], mask)
    token_rewards[torch.arange(len(rows)), lengths - 1] += torch.stack([rewards[places[i]] for i in rows])
    values = None if judgement.values is None else _padded([judgement.values[i] for i in rows], mask)
    credit = token_advantages(settings, token_rewards, mask, values)
    trained = torch.stack([bare.trained_lengths[places[i]] > 0 for i in rows])
    gains = credit.advantages
    if settings.whiten or settings.clip is not None:
        gains = finish_advantages(settings, gains, (mask & trained[:, None]).long())
    for row, i in enumerate(rows):
        spread[i] = gains[row, : int(lengths[row])].double()
    returns = {i: credit.returns[row, : int(lengths[row])] for row, i in enumerate(rows)}
    return replace(
        bare,
        advantages=tuple(spread),
        gains=tuple(gain.mean().item() if len(gain) else 0.0 for gain in spread),
        returns={} if values is None else returns,
    )


def _left_out(graded: GradedRollout) -> Tensor:
    """[P] bool, groups that take no part."""
    keeps = graded.objective.zero_variance in ("keep", "rescale")
    return graded.is_dropped if keeps else graded.is_dropped | graded.is_silent


def _completions(groups: Sequence[Group]) -> list[Completion]:
    return [completion for group in groups for completion in group.completions]


def _trained_lengths(groups: Sequence[Group], scored: Tensor, objective: ObjectiveSettings) -> Tensor:
    lengths = torch.zeros(scored.shape, dtype=torch.long)
    for p, group in enumerate(groups):
        for g, completion in enumerate(group.completions):
            is_masked = objective.mask_truncated and completion.is_truncated
            lengths[p, g] = 0 if is_masked or not bool(scored[p, g]) else len(completion.token_ids)
    return lengths


def _penalty_sums(groups: Sequence[Group], penalties: ByIndex) -> Tensor:
    sums = iter(float(penalties[i].sum()) if i in penalties else 0.0 for i in range(len(_completions(groups))))
    return _matrix([[next(sums) for _ in group.completions] for group in groups])[0]


def _components(groups: Sequence[Group], weights: Mapping[str, float]) -> _Components | None:
    if not weights:
        return None
    tables = [_matrix([_component(group, name) for group in groups]) for name in weights]
    return _Components(
        values=torch.stack([values for values, _ in tables], dim=-1),
        is_complete=torch.stack([present for _, present in tables]).all(dim=0),
        weights=torch.tensor(list(weights.values()), dtype=torch.float64),
    )


def _repeats(groups: Sequence[Group], scored: Tensor) -> Tensor:
    """[P, G] bool, True where an earlier scored member of the group has the same tokens."""
    table = torch.zeros_like(scored)
    for p, group in enumerate(groups):
        seen: set[tuple[int, ...]] = set()
        for g, completion in enumerate(group.completions):
            table[p, g] = completion.token_ids in seen
            if bool(scored[p, g]):
                seen.add(completion.token_ids)
    return table


def _component(group: Group, name: str) -> list[float | None]:
    return [verdict.components.get(name) for verdict in group.verdicts]


def _matrix(rows: Sequence[Sequence[float | None]]) -> tuple[Tensor, Tensor]:
    """Return [P, G] float64 values with 0 for None and for missing members, and the mask of present ones; G >= 2."""
    width = max(2, *(len(row) for row in rows)) if rows else 0
    padded = [[*row, *[None] * (width - len(row))] for row in rows]
    values = torch.tensor([[0.0 if value is None else value for value in row] for row in padded], dtype=torch.float64)
    present = torch.tensor([[value is not None for value in row] for row in padded], dtype=torch.bool)
    return values.reshape(len(rows), width), present.reshape(len(rows), width)


def _padded(rows: Sequence[Tensor], mask: Tensor) -> Tensor:
    table = torch.zeros(mask.shape, dtype=torch.float64)
    table[mask] = torch.cat([row.detach().cpu().double() for row in rows])
    return table
