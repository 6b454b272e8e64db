"""Random rollouts, and what the package and the printed text each make of them."""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from oncurve.algo import (
    GradedRewards,
    ObjectiveSettings,
    describe_objective,
    estimate_advantages,
    finish_advantages,
    informative_scale,
    is_zero_variance,
    kl_token_rewards,
    policy_loss,
    sequence_weights,
    token_advantages,
    token_weights,
)
from tests.algo.formula_reader import Text, World

MAX_TOKENS = 5
Table = list[list[float]]


@dataclass(frozen=True)
class Rollout:
    """Everything a loss can look at, as ragged lists by completion; groups of unequal size."""

    members: list[list[int]]
    rewards: list[float]
    components: Table
    weights: list[float]
    is_scored: list[bool]
    is_truncated: list[bool]
    repeats: list[bool]
    tokens: dict[str, Table]
    """l, old, ref, sampled, h, V, uniform: by completion and token."""

    @property
    def lengths(self) -> list[int]:
        return [len(row) for row in self.tokens["l"]]


def random_rollout(seed: int, *, is_binary: bool, drift: float = 0.4) -> Rollout:
    """Three groups of 2 to 4 completions of 1 to 4 tokens; some without a verdict, some truncated."""
    rng = random.Random(seed)
    sizes = [4, rng.randint(2, 4), rng.randint(2, 3)]
    first = [sum(sizes[:g]) for g in range(3)]
    members = [list(range(start, start + size)) for start, size in zip(first, sizes, strict=True)]
    count = sum(sizes)
    choices = [0.0, 1.0] if is_binary else [0.0, 1.0, 0.5, rng.random(), -rng.random()]
    rewards = [rng.choice(choices) for _ in range(count)]
    if rng.random() < 0.4:
        for i in members[2]:
            rewards[i] = rewards[members[2][0]]
    lengths = [rng.randint(1, MAX_TOKENS - 1) for _ in range(count)]

    def table(draw: Any) -> Table:
        return [[draw(i, t) for t in range(length)] for i, length in enumerate(lengths)]

    new = table(lambda i, t: -2 + rng.gauss(0, 1))

    def near(i: int, t: int) -> float:
        return new[i][t] + rng.gauss(0, drift)

    return Rollout(
        members=members,
        rewards=rewards,
        components=[[rng.choice([0.0, 0.3, 1.0]) for _ in range(count)] for _ in range(2)],
        weights=[1.0, -0.5],
        is_scored=[rng.random() > 0.15 for _ in range(count)],
        is_truncated=[rng.random() < 0.15 for _ in range(count)],
        repeats=[i in group[1:] and rng.random() < 0.2 for group in members for i in group],
        tokens={
            "l": new,
            "old": table(near),
            "ref": table(near),
            "sampled": table(near),
            "h": table(lambda i, t: abs(rng.gauss(0, 1))),
            "V": table(lambda i, t: rng.random()),
            "uniform": table(lambda i, t: rng.random()),
        },
    )


@dataclass(frozen=True)
class Result:
    total: float
    gradient: Table
    """d total / d l, by completion and token."""


class Package:
    """The package on a rollout, in the order of the learner: advantages, who takes part, weights, loss."""

    def __init__(self, objective: ObjectiveSettings, rollout: Rollout) -> None:
        self.objective, self.rollout = objective, rollout
        self.width = max(map(len, rollout.members))
        self.is_scored = self.by_group([float(x) for x in rollout.is_scored]) > 0
        self.rewards = self.by_group(rollout.rewards)
        lengths = torch.tensor(rollout.lengths)
        self.mask = torch.arange(MAX_TOKENS) < lengths[:, None]
        self.groups = torch.tensor([g for g, group in enumerate(rollout.members) for _ in group])
        settings = objective.advantage
        is_dropped = self.is_scored.sum(dim=1) < (2 if settings.needs_group else 1)
        silent = is_zero_variance(self.rewards, tolerance=settings.tolerance, scored=self.is_scored)
        self.is_silent = silent & ~is_dropped & (self.is_scored.sum(dim=1) > 1)
        keeps = objective.zero_variance in ("keep", "rescale")
        self.is_out = is_dropped if keeps else is_dropped | self.is_silent
        is_trained = torch.tensor(rollout.is_scored) & ~self.is_out[self.groups]
        if objective.mask_truncated:
            is_trained &= ~torch.tensor(rollout.is_truncated)
        self.trained = torch.where(is_trained, lengths, 0)

    def by_group(self, values: list[float]) -> Tensor:
        rows = [[values[i] for i in group] for group in self.rollout.members]
        return torch.tensor([row + [0.0] * (self.width - len(row)) for row in rows], dtype=torch.float64)

    def flat(self, table: Tensor) -> Tensor:
        return torch.cat([row[: len(group)] for row, group in zip(table, self.rollout.members, strict=True)])

    def padded(self, name: str) -> Tensor:
        rows = self.rollout.tokens[name]
        return torch.tensor([row + [torch.nan] * (MAX_TOKENS - len(row)) for row in rows], dtype=torch.float64)

    def advantages(self) -> Tensor:
        """[B, T], of all completions; those that are not trained hold anything."""
        return self.of_tokens() if self.objective.advantage.is_token_level else self.of_completions()

    def of_tokens(self) -> Tensor:
        settings, objective = self.objective.advantage, self.objective
        rows = torch.tensor(self.rollout.is_scored)
        mask, coef = self.mask[rows], objective.kl_coef if objective.has_kl_in_reward else 0.0
        token_rewards = kl_token_rewards(
            torch.tensor(self.rollout.rewards, dtype=torch.float64)[rows],
            self.padded("old")[rows],
            self.padded("ref")[rows],
            mask,
            kl_coef=coef,
            estimator=objective.kl_estimator if coef else "k1",  # type: ignore[arg-type]
        )
        found = token_advantages(settings, token_rewards, mask, self.padded("V")[rows]).advantages
        finished = finish_advantages(settings, found, (mask & (self.trained[rows] > 0)[:, None]).long())
        return torch.zeros_like(self.padded("l")).index_put((rows.nonzero().squeeze(1),), finished)

    def of_completions(self) -> Tensor:
        objective, rollout = self.objective, self.rollout
        rewards = self.rewards
        if objective.has_kl_in_reward:
            token_rewards = kl_token_rewards(
                torch.tensor(rollout.rewards, dtype=torch.float64),
                self.padded("old"),
                self.padded("ref"),
                self.mask,
                kl_coef=objective.kl_coef,
                estimator=objective.kl_estimator,  # type: ignore[arg-type]
            )
            rewards = self.by_group(token_rewards.sum(dim=1).tolist())
        graded = GradedRewards(
            rewards=rewards,
            scored=self.is_scored,
            lengths=self.by_group([float(length) for length in rollout.lengths]),
            trained_lengths=self.by_group(self.trained.tolist()).long(),
            components=torch.stack([self.by_group(row) for row in rollout.components], dim=-1),
            component_weights=torch.tensor(rollout.weights, dtype=torch.float64),
            is_repeat=self.by_group([float(x) for x in rollout.repeats]) > 0,
        )
        found = self.flat(estimate_advantages(objective.advantage, graded))
        if objective.advantage.estimator == "raft":
            self.trained = torch.where(found == 0, 0, self.trained)
        return finish_advantages(objective.advantage, found, self.trained)[:, None].expand(self.mask.shape)

    def result(self, advantages: Tensor) -> Result:
        objective = self.objective
        part = ~self.is_out[self.groups]
        weights = sequence_weights(self.trained[part], self.groups[part], objective.aggregation, max_tokens=MAX_TOKENS)
        if objective.zero_variance == "rescale":
            sizes = torch.tensor([len(group) for group in self.rollout.members])
            weights = weights * informative_scale(self.is_silent[~self.is_out], sizes[~self.is_out])
        mask = self.mask & (self.trained > 0)[:, None]
        leaf = self.padded("l").requires_grad_()
        total = policy_loss(
            objective,
            logprobs=leaf[part],
            old_logprobs=self.padded("old")[part],
            ref_logprobs=self.padded("ref")[part],
            sampler_logprobs=self.padded("sampled")[part],
            entropy=self.padded("h")[part],
            uniforms=self.padded("uniform")[part],
            advantages=advantages[part],
            weights=token_weights(weights, mask[part]),
            num_step_tokens=int(self.trained.sum()),
        ).total
        (gradient,) = torch.autograd.grad(total, leaf)
        rows = [row[:length].tolist() for row, length in zip(gradient, self.rollout.lengths, strict=True)]
        return Result(total.item(), rows)


class Reading:
    """The printed text on a rollout; the settings are not asked."""

    def __init__(self, printed: str, rollout: Rollout) -> None:
        self.rollout, self.text = rollout, Text(printed)
        self.all = " ".join(self.text.lines)
        count = len(rollout.rewards)
        scored = [[i for i in group if rollout.is_scored[i]] for group in rollout.members]
        fewest = 2 if "groups with fewer than 2 verdicts are left out" in self.all else 1
        spans = [max((rollout.rewards[i] for i in group), default=0) for group in scored]
        spans = [
            top - min((rollout.rewards[i] for i in group), default=0) for top, group in zip(spans, scored, strict=True)
        ]
        tolerance = self.number(r"groups whose task rewards span at most (\S+?),? ")
        is_equal = [
            tolerance is not None and len(group) > 1 and span <= tolerance
            for group, span in zip(scored, spans, strict=True)
        ]
        drops = "then left out of the step" in self.all or re.search(r"span at most \S+ are left out", self.all)
        in_step = [
            len(group) >= fewest and not (drops and equal) for group, equal in zip(scored, is_equal, strict=True)
        ]
        chosen = self.selected(scored)
        lengths = [
            length
            if rollout.is_scored[i]
            and in_step[self.group(i)]
            and not ("truncated ones" in self.all and rollout.is_truncated[i])
            and not ("with selectedᵢ = 0" in self.all and not chosen[i])
            else 0
            for i, length in enumerate(rollout.lengths)
        ]
        sizes = [len(group) for group in rollout.members]
        self.given: dict[str, Any] = {
            "rᵢ": rollout.rewards,
            "rₖᵢ": rollout.components,
            "wₖ": rollout.weights,
            "nᵢ": rollout.lengths,
            "Lᵢ": lengths,
            "B": sum(size for size, is_in in zip(sizes, in_step, strict=True) if is_in),
            "N": sum(in_step),
            "M": sum(s for s, is_in, equal in zip(sizes, in_step, is_equal, strict=True) if is_in and equal),
            "β": self.number(r"β starts at (\S+);"),
            "η": self.number(r"η starts at (\S+);"),
            "selectedᵢ": [float(i in range(count) and chosen[i]) for i in range(count)],
            **{f"{name}ᵢₜ": rollout.tokens[name] for name in ("l", "old", "ref", "sampled", "h", "V")},
        }
        self.in_step = in_step
        for name in ("Aᵢ", "Aᵢₜ"):
            if name in self.text.symbols:
                self.given[name] = self.evaluated(name)
        if "dropᵢₜ:" in self.all:
            self.given["dropᵢₜ"] = self.marks(self.dropped())
        if "holdᵢₜ:" in self.all:
            self.given["holdᵢₜ"] = self.marks(self.held())

    def number(self, pattern: str) -> float | None:
        found = re.search(pattern, self.all)
        return float(found[1]) if found else None

    def group(self, i: int) -> int:
        return next(g for g, group in enumerate(self.rollout.members) if i in group)

    def world(self, changes: Mapping[str, Any] = MappingProxyType({})) -> World:
        return World(
            text=self.text,
            given=self.given | dict(changes),
            base={"lᵢₜ": self.rollout.tokens["l"]},
            members=self.rollout.members,
            is_scored=self.rollout.is_scored,
            is_in_step=self.in_step,
        )

    def places(self) -> list[tuple[int, int]]:
        return [(i, t) for i, length in enumerate(self.given["Lᵢ"]) for t in range(length)]

    def evaluated(self, name: str) -> Any:
        world, trained = self.world(), self.given["Lᵢ"]
        if "in A all tokens of completions with a verdict" in self.all:
            graded = zip(self.rollout.lengths, self.rollout.is_scored, strict=True)
            world = self.world({"Lᵢ": [length if is_scored else 0 for length, is_scored in graded]})
        if name.endswith("ₜ"):
            return [[world.value(name, i=i, t=t) for t in range(length)] for i, length in enumerate(trained)]
        return [world.value(name, i=i) if length else 0.0 for i, length in enumerate(trained)]

    def selected(self, scored: list[list[int]]) -> list[bool]:
        found = re.search(
            r"1 for (the first best of its group|completions) with rᵢ ≥ (\S+?)(?:, the first (\d+) of a group)?, "
            r"without repeats",
            self.all,
        )
        chosen = [False] * len(self.rollout.rewards)
        for group in scored if found else []:
            assert found is not None
            good = [i for i in group if self.rollout.rewards[i] >= float(found[2]) and not self.rollout.repeats[i]]
            if found[1].startswith("the first best"):
                good = [i for i in good if self.rollout.rewards[i] == max(self.rollout.rewards[j] for j in good)][:1]
            for i in good[: int(found[3] or len(good))]:
                chosen[i] = True
        return chosen

    def count(self) -> int:
        frac = self.number(r"max\(1, floor\((\S+) · trained tokens\)\)")
        assert frac is not None
        return max(1, int(frac * len(self.places())))

    def held(self) -> set[tuple[int, int]]:
        world = self.world()
        return set(
            sorted(self.places(), key=lambda place: -world.value("covᵢₜ", i=place[0], t=place[1]))[: self.count()]
        )

    def dropped(self) -> set[tuple[int, int]]:
        world = self.world()
        bounds = re.search(r"those with (\S+) < covᵢₜ < (\S+) that", self.all)
        band = re.search(r"clip\(ρᵢₜ, 1 − (\S+), 1 \+ ([^)]+)\)", self.all)
        assert bounds is not None
        assert band is not None

        def is_free(i: int, t: int) -> bool:
            ratio, gain = world.value("ρᵢₜ", i=i, t=t), self.gain(i, t)
            stopped = (gain > 0 and ratio > 1 + float(band[2])) or (gain < 0 and ratio < 1 - float(band[1]))
            return float(bounds[1]) < world.value("covᵢₜ", i=i, t=t) < float(bounds[2]) and not stopped

        free = [place for place in self.places() if is_free(*place)]
        return set(sorted(free, key=lambda place: self.rollout.tokens["uniform"][place[0]][place[1]])[: self.count()])

    def gain(self, i: int, t: int) -> float:
        return self.given["Aᵢₜ"][i][t] if "Aᵢₜ" in self.given else self.given["Aᵢ"][i]

    def marks(self, places: set[tuple[int, int]]) -> Table:
        return [[float((i, t) in places) for t in range(n)] for i, n in enumerate(self.rollout.lengths)]

    def loss(self, logprobs: Table | None = None) -> float:
        return self.world({} if logprobs is None else {"lᵢₜ": logprobs}).value("L")

    def slope(self, i: int, t: int, width: float = 1e-5) -> float:
        """Central difference of L in one log-prob; what sg holds stays at the base point."""

        def moved(by: float) -> Table:
            rows = [list(row) for row in self.rollout.tokens["l"]]
            rows[i][t] += by
            return rows

        return (self.loss(moved(width)) - self.loss(moved(-width))) / (2 * width)


def printed(objective: ObjectiveSettings) -> str:
    return describe_objective(objective, group_size=8, max_tokens=MAX_TOKENS, temperature=0.7).text
