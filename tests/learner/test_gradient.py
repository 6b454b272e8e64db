"""The gradient of an optimiser step against a slow one written out from the definition, and what must not change it."""

from functools import cache
from itertools import cycle, islice

import pytest
import torch

from oncurve.algo import ObjectiveSettings
from oncurve.learner import Learner
from oncurve.learner.learner import Probe
from oncurve.learner.packing import Row
from oncurve.model import Policy
from oncurve.types import Group
from tests.learner import slow
from tests.learner.build import (
    FAMILIES,
    SAMPLING,
    gradient_of,
    gradient_settings,
    largest_difference,
    sample_groups,
    tiny_policy,
)
from tests.learner.rollouts import (
    clone,
    fast_step,
    learner_of,
    policy,
    recorded,
    ref_logprobs,
    rollout,
    told,
)

AGGREGATIONS = ("seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "constant", "prompt-mean")
REWARDS = [[1.0, 0.0, 0.0], [0.25, 1.0, 0.5], [1.0, 1.0, 1.0], [0.0, 1.0, None]]

BANDS = {"clip_low": 0.1, "clip_high": 0.3}
LOSSES: dict[str, tuple[tuple[str, ...], dict[str, object]]] = {
    "clip": (AGGREGATIONS, BANDS),
    "gspo": (("seq-mean-token-mean", "prompt-mean"), {"clip_low": 0.05, "clip_high": 0.1}),
    "gspo_token": (("seq-mean-token-mean", "prompt-mean"), {"clip_low": 0.05, "clip_high": 0.1}),
    "luspo": (("seq-mean-token-sum",), {"clip_low": 0.05, "clip_high": 0.1}),
    "gmpo": (("seq-mean-token-mean", "prompt-mean"), {"clip_low": 0.1, "clip_high": 0.2}),
    "cispo": (AGGREGATIONS, {"cispo": {"ratio_min": 0.8, "ratio_max": 1.2}}),
    "sapo": (AGGREGATIONS, {"sapo": {"tau_positive": 1.5, "tau_negative": 2.5}}),
    "vespo": (AGGREGATIONS, {"vespo": {"power_positive": 1.0, "rate_negative": 1.5}}),
    "topr": (AGGREGATIONS, {}),
    "reinforce": (AGGREGATIONS, {}),
}
"""Each loss with the aggregations that it allows, and bounds that act on ``rollout()``."""
FORMS = [(loss, aggregation) for loss, (allowed, _) in LOSSES.items() for aggregation in allowed]
ESTIMATORS: list[dict[str, object]] = [
    {"estimator": "group_zscore", "ddof": 1, "std_eps": 0.01},
    {"estimator": "gae", "gamma": 0.9, "lam": 0.8, "whiten": True},
    {"estimator": "reinforce_pp", "gamma": 0.9},
    {"estimator": "raft"},
    {"estimator": "gdpo", "ddof": 1, "std_eps": 0.01},
    {"estimator": "batch_loo", "clip": 0.5},
    {"estimator": "rloo", "whiten": True},
    {"estimator": "gae", "lam_alpha": 0.3},
]
OF_COMPLETIONS = {"gspo", "luspo", "gmpo", "vespo", "topr"}


def objective_of(loss: str, aggregation: str, advantage: dict[str, object], **more: object) -> ObjectiveSettings:
    learns_from_equal = advantage["estimator"] not in ("group_zscore", "gdpo", "rloo", "group_mean")
    more = {"zero_variance": "keep" if learns_from_equal else "skip", **more}
    return ObjectiveSettings(loss=loss, aggregation=aggregation, advantage=advantage, **LOSSES[loss][1], **more)


def some_estimators(loss: str, aggregation: str) -> list[dict[str, object]]:
    """Two or three of those that go with the loss, others for each aggregation."""
    count = 2 if len(LOSSES[loss][0]) == 5 else 3
    fit = [a for a in ESTIMATORS if loss not in OF_COMPLETIONS or a["estimator"] not in ("gae", "reinforce_pp")]
    first = AGGREGATIONS.index(aggregation) * count
    return list(islice(cycle(fit), first, first + count))


def assert_is_the_definition(objective: ObjectiveSettings, groups: tuple[Group, ...], **settings: object) -> None:
    """One update against the slow way, where the ratio is that to the recorded log-probs."""
    learner = learner_of(objective, **{"micro_batch_tokens": 90, "logits_chunk_bytes": 4 * 61 * 4, **settings})
    sampler = {i: list(completion.old_logprobs) for i, completion in enumerate(recorded(groups))}
    ref = ref_logprobs()
    penalties = slow.penalties(objective, sampler, ref) if objective.has_kl_in_reward else None
    before = told(groups, learner._critic, penalties)
    result, gradient = fast_step(learner, groups)
    loss, expected = slow.step(clone().model, before, objective, ref=ref)
    assert result.metrics["loss/total"] == pytest.approx(loss, abs=1e-9)
    assert max(value.abs().max().item() for value in expected.values()) > 1e-4
    assert largest_difference(gradient, expected) < 1e-8


@pytest.mark.parametrize(("loss", "aggregation"), FORMS)
def test_every_loss_has_the_value_and_gradient_of_its_definition(loss, aggregation):
    for advantage in some_estimators(loss, aggregation):
        objective = objective_of(loss, aggregation, advantage, kl_coef=0.1, entropy_coef=0.05)
        assert_is_the_definition(objective, rollout())


def test_every_estimator_meets_every_loss_that_it_can_go_with():
    met = {(loss, str(a)) for loss, aggregation in FORMS for a in some_estimators(loss, aggregation)}
    wide = [loss for loss, (allowed, _) in LOSSES.items() if len(allowed) == 5]
    assert all((loss, str(a)) in met for loss in wide for a in ESTIMATORS if loss not in OF_COMPLETIONS)


PARTS: dict[str, dict[str, object]] = {
    "dual clip": {"dual_clip": 1.2},
    "ratio cap": {"ratio_cap": 1.35},
    "k2 in the loss": {"kl_coef": 0.3, "kl_estimator": "k2"},
    "weighted k3 in the loss": {"kl_coef": 0.3, "kl_estimator": "k3_weighted"},
    "k1 in the reward": {"kl_coef": 0.05, "kl_estimator": "k1", "kl_placement": "reward"},
    "k2 in the reward": {"kl_coef": 0.01, "kl_estimator": "k2", "kl_placement": "reward"},
    "k3 in the reward": {"kl_coef": 1e-4, "kl_estimator": "k3", "kl_placement": "reward"},
    "k1 in the reward of tokens": {
        "kl_coef": 0.05,
        "kl_estimator": "k1",
        "kl_placement": "reward",
        "zero_variance": "keep",
        "advantage": {"estimator": "reinforce_pp", "gamma": 0.9},
    },
    "k1 in the reward, with a critic": {
        "kl_coef": 0.05,
        "kl_estimator": "k1",
        "kl_placement": "reward",
        "zero_variance": "keep",
        "advantage": {"estimator": "gae", "lam": 0.9},
    },
    "divergence": {"max_divergence": 0.1, "kl_coef": 0.1},
    "divergence, one ratio a completion": {"max_divergence": 0.1, "loss": "gspo"},
    "uncertain tokens": {"token_filter": {"mode": "high_entropy", "frac": 0.3}, "kl_coef": 0.1, "entropy_coef": 0.1},
    "clip_cov": {"token_filter": {"mode": "clip_cov", "frac": 1.0, "low": 0.2, "high": 2.0}, "entropy_coef": 0.1},
    "kl_cov": {"token_filter": {"mode": "kl_cov", "frac": 0.2, "coef": 0.7}},
    "kept": {"zero_variance": "keep", "kl_coef": 0.1},
    "rescaled": {"zero_variance": "rescale", "kl_coef": 0.1, "entropy_coef": 0.1},
    "truncated ones masked": {"mask_truncated": True, "kl_coef": 0.1, "entropy_coef": 0.1},
    "truncated ones masked, whitened": {
        "mask_truncated": True,
        "zero_variance": "keep",
        "advantage": {"estimator": "gae", "lam": 0.9, "whiten": True},
    },
}


@pytest.mark.parametrize("aggregation", ["seq-mean-token-mean", "prompt-mean"])
@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_the_value_and_gradient_of_its_definition(part, aggregation):
    objective = ObjectiveSettings(**{"aggregation": aggregation, **BANDS, **PARTS[part]})
    assert_is_the_definition(objective, rollout())


CORRECTIONS: dict[str, dict[str, object]] = {
    "none": {"correction": {"mode": "none"}},
    "token_truncate": {"correction": {"mode": "token_truncate", "low": 0.8, "high": 1.2}},
    "token_mask": {"correction": {"mode": "token_mask", "low": 0.7, "high": 1.4}},
    "seq_truncate": {"correction": {"mode": "seq_truncate", "low": 0.7, "high": 1.4}},
    "seq_mask": {"correction": {"mode": "seq_mask", "low": 0.6, "high": 1.6}},
    "seq_geo_mask": {"correction": {"mode": "seq_geo_mask", "low": 0.85, "high": 1.15}},
    "token_truncate, one ratio a completion": {
        "correction": {"mode": "token_truncate", "low": 0.8, "high": 1.2},
        "loss": "gspo",
    },
    "seq_mask, KL in the reward": {
        "correction": {"mode": "seq_mask", "low": 0.6, "high": 1.6},
        "kl_coef": 0.01,
        "kl_estimator": "k1",
        "kl_placement": "reward",
    },
    "all at once": {
        "correction": {"mode": "seq_truncate", "low": 0.7, "high": 1.4},
        "max_divergence": 0.05,
        "token_filter": {"mode": "high_entropy", "frac": 0.6},
        "kl_coef": 0.1,
        "entropy_coef": 0.1,
    },
}


@pytest.mark.parametrize("part", CORRECTIONS)
def test_a_correction_weighs_by_the_learners_old_log_probs_over_the_samplers(part):
    # Two steps a rollout: the first on the first group, the second on the last two, at weights that have moved.
    groups = (rollout()[0], *rollout()[2:])
    objective = ObjectiveSettings(**{**BANDS, **CORRECTIONS[part]})
    shared = {"lr": 0.01, "old_logprobs": "recompute"}
    old = slow.floats(policy().model, recorded(groups), SAMPLING.temperature)
    ref = {i: row for i, row in enumerate(ref_logprobs().values()) if i < 3}
    ref |= {i - 2: row for i, row in ref_logprobs().items() if i >= 5}
    penalties = slow.penalties(objective, old, ref) if objective.has_kl_in_reward else None
    before = told(groups, penalties=penalties)

    first = learner_of(objective, **shared)
    first_loss = first.update(groups[:1]).metrics["loss/total"]
    loss, expected = slow.step(clone().model, before, objective, ref=ref, old=old, only_group=0)
    assert first_loss == pytest.approx(loss, abs=1e-9)
    assert largest_difference(gradient_of(first), expected) < 1e-8

    both = learner_of(objective, updates_per_rollout=2, **shared)
    result, gradient = fast_step(both, groups)
    assert both.num_steps == 2
    assert abs(result.metrics["ratio/max"] - 1) > 0.05
    loss, expected = slow.step(first.policy.model, before, objective, ref=ref, old=old, only_group=2)
    assert 2 * result.metrics["loss/total"] - first_loss == pytest.approx(loss, abs=1e-8)
    assert largest_difference(gradient, expected) < 1e-7


# ---- what must not change it -----------------------------------------------------------------------------------------

COUPLED: dict[str, dict[str, object]] = {
    "seq_mask": {"correction": {"mode": "seq_mask", "low": 0.6, "high": 1.6}},
    "token_truncate": {"correction": {"mode": "token_truncate", "low": 0.8, "high": 1.2}},
    "divergence": {"max_divergence": 0.1},
    "high_entropy": {"token_filter": {"mode": "high_entropy", "frac": 0.3}},
    "kl_cov": {"token_filter": {"mode": "kl_cov", "frac": 0.2}},
    "clip_cov": {"token_filter": {"mode": "clip_cov", "frac": 0.1, "low": 0.1}},
}
ORDERED = [f"{loss} {aggregation}" for loss, aggregation in FORMS] + [name for name in COUPLED if name != "clip_cov"]


def invariant_objective(name: str) -> ObjectiveSettings:
    both = {"kl_coef": 0.1, "entropy_coef": 0.05}
    if name in COUPLED:
        return ObjectiveSettings(**{**BANDS, **both, **COUPLED[name]})
    loss, aggregation = name.split()
    advantage = {"estimator": "batch_loo"} if loss in OF_COMPLETIONS else {"estimator": "reinforce_pp"}
    return objective_of(loss, aggregation, advantage, **both)


@cache
def whole_step(name: str) -> tuple[Learner, Probe]:
    """All at once, in one micro-batch with shared prompts."""
    learner = learner_of(invariant_objective(name))
    rows = [Row(completion.prompt_ids, completion.token_ids) for completion in recorded(rollout())]
    assert [batch.paths is not None for batch in learner._forward.pack(rows)] == [True]
    return learner, learner.gradient(rollout())


@pytest.mark.parametrize("name", [*ORDERED, "clip_cov"])
def test_memory_settings_and_sharing_leave_the_gradient_alone(name):
    learner, whole = whole_step(name)
    for memory in (
        {"micro_batch_tokens": 1, "logits_chunk_bytes": 4 * 61 * 3},
        {"micro_batch_tokens": 90, "share_prompts": "never"},
    ):
        probe = learner_of(learner.objective, **memory).gradient(rollout())
        assert probe.tokens.total == pytest.approx(whole.tokens.total, abs=1e-10)
        assert largest_difference(probe.gradient, whole.gradient) < 1e-9


@pytest.mark.parametrize("name", ORDERED)
def test_the_order_of_groups_leaves_the_gradient_alone(name):
    # clip_cov is left out: which of the eligible tokens it drops is drawn for their places.
    learner, forwards = whole_step(name)
    backwards = learner.gradient(rollout()[::-1])
    assert largest_difference(backwards.gradient, forwards.gradient) < 1e-9


ACROSS = [name for name in ORDERED if name not in ("high_entropy", "kl_cov")]
"""A filter of tokens compares all of the step: its threshold has to be gathered first."""


@pytest.mark.parametrize("name", ACROSS)
def test_workers_add_up_to_the_gradient_of_one(name):
    learner, whole = whole_step(name)
    num_tokens = sum(len(member.completion.token_ids) for member in whole.members)
    ref = {i: torch.tensor(row, dtype=torch.float64) for i, row in ref_logprobs().items()}
    for num_workers in (1, 2, 3):
        total = {key: torch.zeros_like(value) for key, value in whole.gradient.items()}
        loss = 0.0
        for worker in range(num_workers):
            mine = whole.members[worker::num_workers]
            known = None if learner._recomputes else whole.old_logprobs
            with learner._stepper.training():
                tokens, _ = learner._accumulate(learner.objective, mine, known, ref, num_tokens)
                for key, value in learner._stepper.gradient().items():
                    total[key] += value
            loss += tokens.total
        assert loss == pytest.approx(whole.tokens.total, abs=1e-10)
        assert largest_difference(total, whole.gradient) < 1e-9


def step_gradient(
    start: Policy, groups: list[Group], objective: ObjectiveSettings, **settings: object
) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradient of the learner's first step, on a copy of the policy."""
    learner = Learner(clone(start), gradient_settings(**settings), objective, sampling=SAMPLING)
    result = learner.update(groups)
    return result.metrics["loss/total"], gradient_of(learner)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_the_gradient_of_the_definition(family):
    start = tiny_policy(family, dtype=torch.float64)
    groups = sample_groups(start, REWARDS)
    objective = ObjectiveSettings(entropy_coef=0.05)
    loss, gradient = step_gradient(start, groups, objective, micro_batch_tokens=60)
    ref = slow.floats(start.model, recorded(groups), SAMPLING.temperature)
    expected_loss, expected = slow.step(clone(start).model, told(groups), objective, ref=ref)
    assert loss == pytest.approx(expected_loss, abs=1e-9)
    assert largest_difference(gradient, expected) < 1e-7


@pytest.mark.parametrize("loss", ["clip", "gspo"])
def test_memory_settings_leave_the_gradient_alone_in_other_families(loss):
    for family in ("llama", "gemma2"):
        start = tiny_policy(family, dtype=torch.float64)
        groups = sample_groups(start, REWARDS[:2])
        objective = ObjectiveSettings(loss=loss, entropy_coef=0.1)
        whole_loss, whole = step_gradient(start, groups, objective)
        found_loss, gradient = step_gradient(start, groups, objective, micro_batch_tokens=1, logits_chunk_bytes=700)
        assert found_loss == pytest.approx(whole_loss, abs=1e-9)
        assert largest_difference(gradient, whole) < 2e-6  # some families have float32 inside


def test_a_long_neighbour_pads_a_row_without_changing_its_part():
    # seq-mean-token-sum: the gradient of a step is the sum over groups, divided by the number of sequences.
    start = tiny_policy("qwen3", dtype=torch.float64)
    short, _, long = sample_groups(start, [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    objective = ObjectiveSettings(aggregation="seq-mean-token-sum")
    _, alone = step_gradient(start, [short], objective)
    _, neighbour = step_gradient(start, [long], objective)
    _, together = step_gradient(start, [short, long], objective)
    assert len(long.completions[0].prompt_ids) > len(short.completions[0].prompt_ids)
    halves = {name: (alone[name] + neighbour[name]) / 2 for name in alone}
    assert largest_difference(together, halves) < 1e-10


def test_the_gradient_is_that_of_finite_differences():
    objective = objective_of("gmpo", "prompt-mean", {"estimator": "group_zscore"}, kl_coef=0.1, entropy_coef=0.1)
    learner = learner_of(objective)
    probe = learner.gradient(rollout())
    step = 1e-6
    for name, weight in list(learner.policy.model.named_parameters())[::3]:
        place = probe.gradient[name].abs().flatten().argmax()  # where a mistake would be largest
        losses = []
        for move in (step, -2 * step):
            with torch.no_grad():
                weight.view(-1)[place] += move
            losses.append(learner.gradient(rollout()).tokens.total)
        with torch.no_grad():
            weight.view(-1)[place] += step
        assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(
            probe.gradient[name].view(-1)[place].item(), abs=1e-6
        )


# ---- who takes part --------------------------------------------------------------------------------------------------


def test_zero_variance_groups_contribute_exactly_nothing_when_skipped():
    start = tiny_policy("gpt2")
    groups = sample_groups(start, [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    objective = ObjectiveSettings(zero_variance="skip", kl_coef=0.1, entropy_coef=0.1)
    loss_with, with_silent = step_gradient(start, groups, objective)
    loss_without, without = step_gradient(start, groups[:1], objective)
    assert loss_with == loss_without
    assert all(torch.equal(with_silent[name], without[name]) for name in without)


@pytest.mark.parametrize(("kind", "factor"), [("keep", 1 / 3), ("rescale", 1.0), ("skip", 1.0), ("resample", 1.0)])
def test_zero_variance_groups_weaken_the_step_only_when_kept(kind, factor):
    # Two of three groups are silent: kept, 1/B shrinks the step to a third; rescaled, by B / (B - M) = 3, it does not.
    start = tiny_policy("gpt2", dtype=torch.float64)
    groups = sample_groups(start, [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    for loss in ("clip", "gspo"):
        _, found = step_gradient(start, groups, ObjectiveSettings(loss=loss, zero_variance=kind))
        _, alone = step_gradient(start, groups[:1], ObjectiveSettings(loss=loss))
        assert largest_difference(found, {name: factor * value for name, value in alone.items()}) < 1e-10


def test_dropped_groups_leave_the_denominators_even_when_silent_ones_are_kept():
    start = tiny_policy("gpt2")
    groups = sample_groups(start, [[1.0, 0.0], [1.0, 1.0], [1.0, None]])
    objective = ObjectiveSettings(zero_variance="keep", kl_coef=0.1)
    _, with_dropped = step_gradient(start, groups, objective)
    _, without = step_gradient(start, groups[:2], objective)
    assert all(torch.equal(with_dropped[name], without[name]) for name in without)


def test_unscored_members_contribute_nothing_but_stay_in_the_count_of_sequences():
    start = tiny_policy("gpt2", dtype=torch.float64)
    groups = sample_groups(start, [[1.0, 0.0, None]])
    pair = sample_groups(start, [[1.0, 0.0]])
    assert groups[0].completions[:2] == pair[0].completions
    objective = ObjectiveSettings(kl_coef=0.1)
    loss, gradient = step_gradient(start, groups, objective)
    pair_loss, of_pair = step_gradient(start, pair, objective)
    assert loss == pytest.approx(2 / 3 * pair_loss, abs=1e-12)
    assert largest_difference(gradient, {name: 2 / 3 * value for name, value in of_pair.items()}) < 1e-10
