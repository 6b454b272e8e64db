"""The gradient of an optimiser step against a slow one written out from the formula, and what must not change it."""

import copy

import pytest
import torch

from oncurve.algo import AdvantageSettings, ObjectiveSettings
from oncurve.learner import Learner
from oncurve.model import Policy
from oncurve.types import Group
from tests.learner.build import (
    FAMILIES,
    SAMPLING,
    gradient_of,
    gradient_settings,
    largest_difference,
    sample_groups,
    tiny_policy,
)

AGGREGATIONS = ("seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "constant", "prompt-mean")
REWARDS = [[1.0, 0.0, 0.0], [0.25, 1.0, 0.5], [1.0, 1.0, 1.0], [0.0, 1.0, None]]


def step_gradient(
    policy: Policy, groups: list[Group], objective: ObjectiveSettings, **settings: object
) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradient of the learner's first step, on a copy of the policy."""
    mine = copy.copy(policy)
    mine.model = copy.deepcopy(policy.model)
    learner = Learner(mine, gradient_settings(**settings), objective, sampling=SAMPLING)
    result = learner.update(groups)
    return result.metrics["loss/total"], gradient_of(learner)


def written_out(
    policy: Policy, groups: list[Group], objective: ObjectiveSettings, old_shift: float = 0.0
) -> tuple[float, dict[str, torch.Tensor]]:
    """The same from the definition: one completion at a time, all logits, no padding, plain sums."""
    model = copy.deepcopy(policy.model)
    frozen = copy.deepcopy(policy.model)
    mixed = [group for group in groups if len({reward for reward in group.rewards if reward is not None}) > 1]
    num_sequences = sum(len(group.completions) for group in mixed)
    lengths = {
        id(c): len(c.token_ids) for g in mixed for c, r in zip(g.completions, g.rewards, strict=True) if r is not None
    }
    num_tokens = sum(lengths.values())
    loss = torch.zeros((), dtype=torch.float64)
    for group in mixed:
        scored = [reward for reward in group.rewards if reward is not None]
        mean = sum(scored) / len(scored)
        std = (sum((reward - mean) ** 2 for reward in scored) / len(scored)) ** 0.5
        group_tokens = sum(lengths.get(id(completion), 0) for completion in group.completions)
        for completion, reward in zip(group.completions, group.rewards, strict=True):
            if reward is None:
                continue
            advantage = (reward - mean) / (std + objective.advantage.std_eps)
            size = len(completion.token_ids)
            weight = {
                "seq-mean-token-mean": 1 / (num_sequences * size),
                "token-mean": 1 / num_tokens,
                "seq-mean-token-sum": 1 / num_sequences,
                "constant": 1 / (num_sequences * SAMPLING.max_tokens),
                "prompt-mean": 1 / (len(mixed) * group_tokens),
            }[objective.aggregation]
            ids = torch.tensor([[*completion.prompt_ids, *completion.token_ids]])
            distribution = torch.log_softmax(model(input_ids=ids).logits[0] / SAMPLING.temperature, -1)
            with torch.no_grad():
                reference = torch.log_softmax(frozen(input_ids=ids).logits[0] / SAMPLING.temperature, -1)
            for offset, token in enumerate(completion.token_ids):
                place = len(completion.prompt_ids) - 1 + offset
                logprob = distribution[place, token]
                ratio = (logprob - completion.old_logprobs[offset]).exp()
                clipped = ratio.clamp(1 - objective.clip_low, 1 + objective.clip_high)
                loss = loss - weight * torch.minimum(ratio * advantage, clipped * advantage)
                difference = logprob - reference[place, token]
                loss = loss + objective.kl_coef * weight * ((-difference).exp() - 1 + difference)
                entropy = -(distribution[place].exp() * distribution[place]).sum()
                loss = loss - objective.entropy_coef * entropy / num_tokens
    loss.backward()
    return loss.item(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_loss_and_gradient_are_those_of_the_formula(aggregation):
    policy = tiny_policy("gpt2", dtype=torch.float64)
    groups = sample_groups(tiny_policy("gpt2", dtype=torch.float64, seed=1), REWARDS)  # off-policy: the clip acts
    objective = ObjectiveSettings(aggregation=aggregation, clip_low=0.1, clip_high=0.3, kl_coef=0.2, entropy_coef=0.1)
    loss, gradient = step_gradient(
        policy, groups, objective, max_logprob_gap=100.0, micro_batch_tokens=30, logits_chunk_bytes=4 * 61 * 4
    )
    expected_loss, expected = written_out(policy, groups, objective)
    assert loss == pytest.approx(expected_loss, abs=1e-10)
    assert largest_difference(gradient, expected) < 1e-9


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_the_gradient_of_the_formula(family):
    policy = tiny_policy(family, dtype=torch.float64)
    groups = sample_groups(policy, REWARDS)
    objective = ObjectiveSettings(entropy_coef=0.05)
    loss, gradient = step_gradient(policy, groups, objective, micro_batch_tokens=60)
    expected_loss, expected = written_out(policy, groups, objective)
    assert loss == pytest.approx(expected_loss, abs=1e-9)
    assert largest_difference(gradient, expected) < 1e-7


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize(
    "memory",
    [
        {"micro_batch_tokens": 1, "logits_chunk_bytes": 4 * 61 * 3},
        {"micro_batch_tokens": 40},
        {"logits_chunk_bytes": 1},
    ],
    ids=["row by row", "few rows", "token by token"],
)
def test_memory_settings_leave_the_gradient_alone(aggregation, memory):
    policy = tiny_policy("llama", dtype=torch.float64)
    groups = sample_groups(policy, REWARDS)
    objective = ObjectiveSettings(aggregation=aggregation, kl_coef=0.1, entropy_coef=0.1)
    whole_loss, whole = step_gradient(policy, groups, objective)
    loss, gradient = step_gradient(policy, groups, objective, **memory)
    assert loss == pytest.approx(whole_loss, abs=1e-12)
    assert largest_difference(gradient, whole) < 1e-10


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_the_order_of_groups_leaves_the_gradient_alone(aggregation):
    policy = tiny_policy("gpt2", dtype=torch.float64)
    groups = sample_groups(policy, REWARDS)
    objective = ObjectiveSettings(aggregation=aggregation)
    _, forwards = step_gradient(policy, groups, objective)
    _, backwards = step_gradient(policy, groups[::-1], objective)
    assert largest_difference(backwards, forwards) < 1e-10


def test_a_long_neighbour_pads_a_row_without_changing_its_part():
    # seq-mean-token-sum: the gradient of a step is the sum over groups, divided by the number of sequences.
    policy = tiny_policy("qwen3", dtype=torch.float64)
    short, _, long = sample_groups(policy, [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    objective = ObjectiveSettings(aggregation="seq-mean-token-sum")
    _, alone = step_gradient(policy, [short], objective)
    _, neighbour = step_gradient(policy, [long], objective)
    _, together = step_gradient(policy, [short, long], objective)
    assert len(long.completions[0].prompt_ids) > len(short.completions[0].prompt_ids)
    halves = {name: (alone[name] + neighbour[name]) / 2 for name in alone}
    assert largest_difference(together, halves) < 1e-10


def test_zero_variance_groups_contribute_exactly_nothing_when_skipped():
    policy = tiny_policy("gpt2")
    groups = sample_groups(policy, [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    objective = ObjectiveSettings(zero_variance="skip", kl_coef=0.1, entropy_coef=0.1)
    loss_with, with_silent = step_gradient(policy, groups, objective)
    loss_without, without = step_gradient(policy, groups[:1], objective)
    assert loss_with == loss_without
    assert all(torch.equal(with_silent[name], without[name]) for name in without)


def test_zero_variance_groups_stay_in_the_denominators_when_kept():
    # Two of three groups are silent: 1/B shrinks the step to a third, whatever their completions are.
    policy = tiny_policy("gpt2", dtype=torch.float64)
    groups = sample_groups(policy, [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    _, kept = step_gradient(policy, groups, ObjectiveSettings(zero_variance="keep"))
    _, alone = step_gradient(policy, groups[:1], ObjectiveSettings())
    assert largest_difference(kept, {name: value / 3 for name, value in alone.items()}) < 1e-10


def test_dropped_groups_leave_the_denominators_even_when_silent_ones_are_kept():
    policy = tiny_policy("gpt2")
    groups = sample_groups(policy, [[1.0, 0.0], [1.0, 1.0], [1.0, None]])
    objective = ObjectiveSettings(zero_variance="keep", kl_coef=0.1)
    _, with_dropped = step_gradient(policy, groups, objective)
    _, without = step_gradient(policy, groups[:2], objective)
    assert all(torch.equal(with_dropped[name], without[name]) for name in without)


def test_unscored_members_contribute_nothing_but_stay_in_the_count_of_sequences():
    policy = tiny_policy("gpt2", dtype=torch.float64)
    groups = sample_groups(policy, [[1.0, 0.0, None]])
    pair = sample_groups(policy, [[1.0, 0.0]])
    assert groups[0].completions[:2] == pair[0].completions
    objective = ObjectiveSettings(kl_coef=0.1)
    loss, gradient = step_gradient(policy, groups, objective)
    pair_loss, pair_gradient = step_gradient(policy, pair, objective)
    assert loss == pytest.approx(pair_loss * 2 / 3, abs=1e-12)
    assert largest_difference(gradient, {n: value * 2 / 3 for n, value in pair_gradient.items()}) < 1e-10


def test_truncated_completions_count_in_the_statistics_but_are_not_trained():
    policy = tiny_policy("gpt2", dtype=torch.float64)
    groups = sample_groups(policy, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], seed=3)
    flags = [completion.is_truncated for group in groups for completion in group.completions]
    assert set(flags) == {True, False}
    masked = ObjectiveSettings(
        mask_truncated=True, aggregation="token-mean", advantage=AdvantageSettings(estimator="rloo")
    )
    mine = copy.copy(policy)
    mine.model = copy.deepcopy(policy.model)
    learner = Learner(mine, gradient_settings(), masked, sampling=SAMPLING)
    result = learner.update(groups)
    assert result.advantages[0] == (1.0, -0.5, -0.5)
    # ratio 1: the loss is -sum A_i L_i / sum L_i over what was trained.
    trained = [
        (advantage, len(completion.token_ids))
        for row, group in zip(result.advantages, groups, strict=True)
        for advantage, completion in zip(row, group.completions, strict=True)
        if not completion.is_truncated
    ]
    expected = -sum(a * n for a, n in trained) / sum(n for _, n in trained)
    assert result.metrics["loss/policy"] == pytest.approx(expected, abs=1e-9)
