"""Rollouts on which every part of an objective shows: off-policy, of unequal groups and lengths, with gaps."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import torch

from oncurve.algo import ObjectiveSettings
from oncurve.learner import Critic, CriticSettings, Learner, UpdateResult
from oncurve.model import Policy, reference_of
from oncurve.types import Completion, FinishReason, Group
from tests.learner import slow
from tests.learner.build import SAMPLING, gradient_of, gradient_settings, sample_groups, tiny_policy

HEAD = tuple(range(10, 30))
"""What all prompts begin with, so that sharing them pays."""
REWARDS: list[list[float | None]] = [[1.0, 0.0, 0.0], [0.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.0, None]]
"""Unequal groups, one of them all-equal, one with an unscored member."""
FORMAT = [[0.5, 1.0, 0.0], [1.0, 1.0], [0.0, 1.0, 0.5], [0.0, 0.5, 0.5, None]]
"""A second component of the reward."""
WEIGHTS = {"answer": 1.0, "format": 0.5}


@cache
def policy() -> Policy:
    return tiny_policy("gpt2", dtype=torch.float64)


@cache
def other() -> Policy:
    """The frozen reference."""
    return tiny_policy("gpt2", dtype=torch.float64, seed=1)


def clone(start: Policy | None = None) -> Policy:
    """The same weights, to be changed freely."""
    mine = copy.copy(start or policy())
    mine.model = copy.deepcopy(mine.model)
    return mine


@cache
def rollout(spread: float = 0.3) -> tuple[Group, ...]:
    """Sampled by the policy; recorded log-probs are off by a normal number of this spread a token, as if by older
    weights. Two completions of the last group say the same."""
    generator = torch.Generator().manual_seed(7)
    groups = []
    for group, row, parts in zip(sample_groups(policy(), REWARDS), REWARDS, FORMAT, strict=True):
        completions = []
        for completion in group.completions:
            short = cut(replace(completion, prompt_ids=(*HEAD, *completion.prompt_ids)))
            noise = spread * torch.randn(len(short.token_ids), generator=generator, dtype=torch.float64)
            said, _ = slow.look(policy().model, short, SAMPLING.temperature)
            completions.append(replace(short, old_logprobs=tuple((said + noise).tolist())))
        if len(row) == 4:
            completions[1] = replace(completions[0], index=1)
        verdicts = tuple(
            replace(verdict, components={} if reward is None else {"answer": reward, "format": part})
            for verdict, reward, part in zip(group.verdicts, row, parts, strict=True)
        )
        groups.append(replace(group, completions=tuple(completions), verdicts=verdicts))
    return tuple(groups)


def cut(completion: Completion) -> Completion:
    """At most 3 to 6 tokens of it, as its place says; it counts as truncated at every second place."""
    length = 3 + (completion.index + int(completion.task_id[1:])) % 4
    reason = FinishReason.LENGTH if completion.index % 2 == 1 else FinishReason.STOP
    return replace(completion, token_ids=completion.token_ids[:length], finish_reason=reason)


def recorded(groups: Sequence[Group]) -> list[Completion]:
    return [completion for group in groups for completion in group.completions]


@cache
def ref_logprobs(spread: float = 0.3) -> dict[int, list[float]]:
    return slow.floats(other().model, recorded(rollout(spread)), SAMPLING.temperature)


def critic_of(start: Policy, seed: int = 0, **settings: object) -> Critic:
    """With a head so large that values differ visibly from token to token."""
    critic = Critic(start, CriticSettings(**{"warmup_rollouts": 0, **settings}), gradient_settings(), seed=seed)
    with torch.no_grad():
        critic._stepper.model.get_output_embeddings().weight.mul_(20)
    return critic


def learner_of(objective: ObjectiveSettings, start: Policy | None = None, **settings: object) -> Learner:
    """A learner on a copy of the weights, with everything that an objective may ask for; ratios to the sampler."""
    mine = clone(start)
    if objective.correction.mode == "none":
        settings = {"old_logprobs": "sampler", **settings}
    return Learner(
        mine,
        gradient_settings(**{"max_logprob_gap": 100.0, **settings}),
        objective,
        sampling=SAMPLING,
        reference=reference_of(other()),
        component_weights=WEIGHTS,
        critic=critic_of(mine) if objective.advantage.estimator == "gae" else None,
    )


def values_of(critic: Critic, groups: Sequence[Group]) -> dict[int, list[float]]:
    """Values from the definition: one completion at a time, a plain forward pass."""
    found = {}
    for index, completion in enumerate(recorded(groups)):
        ids = torch.tensor([[*completion.prompt_ids, *completion.token_ids]])
        with torch.no_grad():
            said = critic._stepper.model(input_ids=ids).logits[0, len(completion.prompt_ids) - 1 : -1, 0]
        found[index] = said.tolist()
    return found


def told(
    groups: Sequence[Group], critic: Critic | None = None, penalties: Mapping[int, list[float]] | None = None
) -> slow.Rollout:
    """The rollout as the slow way takes it."""
    return slow.Rollout(
        groups=groups,
        temperature=SAMPLING.temperature,
        max_tokens=SAMPLING.max_tokens,
        penalties=penalties or {},
        values={} if critic is None else values_of(critic, groups),
        component_weights=WEIGHTS,
    )


def fast_step(learner: Learner, groups: Sequence[Group]) -> tuple[UpdateResult, dict[str, torch.Tensor]]:
    """The next update, and the gradient of its last step."""
    result = learner.update(groups)
    return result, gradient_of(learner)
