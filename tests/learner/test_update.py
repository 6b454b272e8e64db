"""What an update does and reports."""

import copy
from dataclasses import replace

import pytest
import torch

from oncurve.algo import ObjectiveSettings
from oncurve.learner import Learner, LearnerSettings, SupervisedLearner
from oncurve.model import LoraSettings, Policy, reference_of
from oncurve.model.lora import attach_adapter
from oncurve.types import Group, NumericsError, Sampling
from tests.learner.build import (
    FAMILIES,
    SAMPLING,
    gradient_of,
    gradient_settings,
    largest_difference,
    sample_groups,
    tiny_policy,
)

REWARDS = [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.5, 1.0]]
FAST = LearnerSettings(lr=0.01)


def learner_of(policy: Policy, settings: LearnerSettings = FAST, **objective: object) -> Learner:
    return Learner(policy, settings, ObjectiveSettings(**objective), sampling=SAMPLING)


def weights_of(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.model.named_parameters()}


def with_old_logprobs(groups: list[Group], shift: float) -> list[Group]:
    return [
        replace(group, completions=tuple(
            replace(c, old_logprobs=tuple(value + shift for value in c.old_logprobs)) for c in group.completions
        ))
        for group in groups
    ]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_the_ratio_is_one_at_the_first_update(family):
    policy = tiny_policy(family)
    metrics = learner_of(policy).update(sample_groups(policy, REWARDS)).metrics
    assert metrics["gap/mean_abs"] < 1e-5
    assert metrics["ratio/min"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["ratio/max"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["clip/low"] == metrics["clip/high"] == 0.0


def test_in_bfloat16_the_first_gap_stays_under_its_stated_bound():
    policy = tiny_policy("llama", dtype=torch.bfloat16)
    metrics = learner_of(policy).update(sample_groups(policy, REWARDS)).metrics
    assert metrics["gap/mean_abs"] < LearnerSettings().gap_limit(torch.bfloat16) == 0.05


@pytest.mark.parametrize(
    "change", ["weights", "temperature"]
)  # fmt: skip
def test_log_probs_of_other_weights_or_another_temperature_stop_the_run(change):
    policy = tiny_policy()
    sampler = tiny_policy(seed=1) if change == "weights" else policy
    groups = sample_groups(sampler, REWARDS, sampling=SAMPLING.model_copy(update={"temperature": 0.7}))
    used = Sampling(temperature=1.0 if change == "temperature" else 0.7, max_tokens=9)
    learner = Learner(policy, FAST, ObjectiveSettings(), sampling=used)
    before = weights_of(policy)
    with pytest.raises(NumericsError, match=r"optimiser step 0.*max_logprob_gap = 0\.0001"):
        learner.update(groups)
    assert all(torch.equal(before[name], value) for name, value in weights_of(policy).items())
    assert learner.num_steps == 0


def test_the_gap_is_the_shift_of_the_recorded_log_probs():
    policy = tiny_policy(dtype=torch.float64)
    groups = with_old_logprobs(sample_groups(policy, REWARDS), -0.05)
    metrics = learner_of(policy, LearnerSettings(max_logprob_gap=0.06)).update(groups).metrics
    assert metrics["gap/mean_abs"] == pytest.approx(0.05, abs=1e-9)
    assert metrics["gap/max_abs"] == pytest.approx(0.05, abs=1e-9)
    assert metrics["ratio/mean"] == pytest.approx(2.718281828**0.05, abs=1e-6)
    recomputed = LearnerSettings(max_logprob_gap=0.06, old_logprobs="recompute")
    assert learner_of(policy, recomputed).update(with_old_logprobs(sample_groups(policy, REWARDS), -0.05)).metrics[
        "ratio/mean"
    ] == pytest.approx(1.0, abs=1e-12)


def test_several_updates_per_rollout_move_the_ratio_and_clip():
    policy = tiny_policy()
    settings = LearnerSettings(lr=0.03, updates_per_rollout=3)
    learner = learner_of(policy, settings, clip_low=0.05, clip_high=0.1)
    metrics = learner.update(sample_groups(policy, REWARDS)).metrics
    assert learner.num_steps == 3  # of four groups one is silent
    assert metrics["clip/low"] + metrics["clip/high"] > 0
    assert metrics["ratio/max"] > 1.1
    assert metrics["gap/mean_abs"] < 1e-5


def test_recomputed_log_probs_are_those_before_the_first_of_several_steps():
    policy = tiny_policy(dtype=torch.float64)
    groups = sample_groups(policy, REWARDS)
    results = []
    for source in ("sampler", "recompute"):
        mine = copy.copy(policy)
        mine.model = copy.deepcopy(policy.model)
        settings = LearnerSettings(lr=0.03, updates_per_rollout=3, old_logprobs=source)
        results.append(learner_of(mine, settings).update(groups).metrics)
    assert results[0]["ratio/max"] > 1.1
    assert results[1] == pytest.approx(results[0], abs=1e-9)


def test_each_of_several_updates_has_denominators_of_its_own():
    # lr so small that the second step sees the same weights, ratio 1: token-mean gives -sum A_i L_i / sum L_i a step.
    policy = tiny_policy(dtype=torch.float64)
    groups = sample_groups(policy, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.5]], seed=3)
    settings = LearnerSettings(lr=1e-12, updates_per_rollout=2)
    result = learner_of(policy, settings, aggregation="token-mean").update(groups)
    sizes = [[len(completion.token_ids) for completion in group.completions] for group in groups]
    losses = [
        -sum(advantage * size for advantage, size in zip(*pair, strict=True)) / sum(pair[1])
        for pair in zip(result.advantages, sizes, strict=True)
    ]
    assert abs(losses[0] - losses[1]) > 0.01
    assert sum(sizes[0]) != sum(sizes[1])
    assert result.metrics["loss/policy"] == pytest.approx(sum(losses) / 2, abs=1e-8)


def test_the_kl_to_the_reference_is_zero_at_first_and_positive_later():
    policy = tiny_policy()
    learner = learner_of(policy, kl_coef=0.1)
    first = learner.update(sample_groups(policy, REWARDS)).metrics
    later = learner.update(sample_groups(policy, REWARDS, seed=1)).metrics
    assert first["kl/reference"] == pytest.approx(0.0, abs=1e-8)
    assert first["loss/kl"] == pytest.approx(0.0, abs=1e-8)
    assert later["kl/reference"] > 1e-4
    assert later["loss/kl"] > 1e-4
    assert later["loss/total"] == pytest.approx(later["loss/policy"] + 0.1 * later["loss/kl"], abs=1e-6)


def test_without_a_kl_term_the_kl_is_watched_on_some_completions_and_changes_nothing():
    policy = tiny_policy()
    blind = copy.copy(policy)
    blind.model = copy.deepcopy(policy.model)
    watching = learner_of(policy, LearnerSettings(lr=0.01, watch_kl_completions=2))
    not_watching = learner_of(blind, LearnerSettings(lr=0.01, watch_kl_completions=0))
    for seed in (0, 1):
        groups = sample_groups(policy, REWARDS, seed=seed)
        seen, unseen = watching.update(groups).metrics, not_watching.update(groups).metrics
    assert seen.pop("kl/reference") > 1e-5
    assert seen == unseen


def test_a_kl_in_the_reward_enters_before_the_baseline():
    # Reference = another model, so that the KL of each completion is a definite number.
    policy, other = tiny_policy(dtype=torch.float64), tiny_policy(dtype=torch.float64, seed=1)
    groups = sample_groups(policy, [[1.0, 0.0]])
    costs = []
    for completion in groups[0].completions:
        ids = torch.tensor([[*completion.prompt_ids, *completion.token_ids]])
        start = len(completion.prompt_ids) - 1
        with torch.no_grad():
            logits = other.model(input_ids=ids).logits[0, start:-1] / SAMPLING.temperature
        ref = torch.log_softmax(logits, -1).gather(-1, ids[0, start + 1 :, None]).sum().item()
        costs.append(0.01 * (sum(completion.old_logprobs) - ref))
    objective = ObjectiveSettings(
        kl_coef=0.01, kl_estimator="k1", kl_placement="reward", advantage={"estimator": "group_mean"}
    )
    learner = Learner(policy, FAST, objective, sampling=SAMPLING, reference=reference_of(other))
    result = learner.update(groups)
    half = (1.0 - costs[0] - (0.0 - costs[1])) / 2
    assert costs[0] != pytest.approx(costs[1], abs=1e-3)
    assert result.advantages == ((pytest.approx(half, abs=1e-9), pytest.approx(-half, abs=1e-9)),)
    assert result.metrics["loss/kl"] == 0.0
    assert result.metrics["kl/reference"] > 0.01


def test_full_and_lora_training_both_move_the_policy_towards_the_rewarded_completions():
    for lora in (None, LoraSettings(rank=4, alpha=8.0)):
        policy = tiny_policy("llama")
        if lora is not None:
            policy.adapter = attach_adapter(policy.model, lora, seed=0)
        before = weights_of(policy)
        learner = learner_of(
            policy, LearnerSettings(lr=0.02, max_logprob_gap=10.0, old_logprobs="recompute"), kl_coef=1e-3
        )
        groups = sample_groups(policy, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        first = learner._logprobs([c for g in groups for c in g.completions], [0, 4])
        for _ in range(5):
            metrics = learner.update(groups).metrics
        last = learner._logprobs([c for g in groups for c in g.completions], [0, 4])
        assert all(last[i].sum() > first[i].sum() for i in (0, 4))
        assert metrics["kl/reference"] > 0
        moved = {name for name, value in weights_of(policy).items() if not torch.equal(before[name], value)}
        assert moved == (set(before) if lora is None else {name for name in before if "lora_" in name})


def test_lora_dropout_acts_in_training_only_and_the_global_random_state_stays():
    policy = tiny_policy("llama")
    policy.adapter = attach_adapter(policy.model, LoraSettings(rank=4, dropout=0.5), seed=0)
    learner = learner_of(policy, LearnerSettings(lr=0.05, max_logprob_gap=10.0))
    torch.manual_seed(5)
    state = torch.get_rng_state()
    learner.update(sample_groups(policy, REWARDS))
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in policy.model.modules())
    groups = sample_groups(policy, REWARDS)  # sampled without dropout
    assert learner.update(groups).metrics["gap/mean_abs"] > 1e-3


def test_a_group_with_one_scored_member_is_dropped_and_counted():
    policy = tiny_policy()
    groups = sample_groups(policy, [[1.0, None, None], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, None]])
    result = learner_of(policy).update(groups)
    assert result.metrics["groups/dropped"] == 0.25
    assert result.metrics["groups/zero_variance"] == 0.25
    assert result.advantages[0] == (0.0, 0.0, 0.0)
    assert result.advantages[3] == (pytest.approx(1.0, abs=1e-5), pytest.approx(-1.0, abs=1e-5), 0.0)


def test_groups_of_different_sizes_go_together():
    policy = tiny_policy()
    result = learner_of(policy).update(sample_groups(policy, [[1.0, 0.0], [1.0, 0.0, 0.0]]))
    assert [len(row) for row in result.advantages] == [2, 3]
    assert result.advantages[0][0] == pytest.approx(1.0, abs=1e-5)
    assert result.advantages[1][0] == pytest.approx(2**0.5, abs=1e-5)


def test_a_rollout_without_signal_takes_no_step_but_is_still_checked():
    policy = tiny_policy()
    learner = learner_of(policy)
    before = weights_of(policy)
    groups = sample_groups(policy, [[1.0, 1.0], [0.0, 0.0]])
    metrics = learner.update(groups).metrics
    assert learner.num_steps == 0
    assert all(torch.equal(before[name], value) for name, value in weights_of(policy).items())
    assert metrics["grad/norm"] == metrics["loss/total"] == metrics["advantage/mean_abs"] == 0.0
    assert metrics["gap/mean_abs"] < 1e-5
    with pytest.raises(NumericsError, match="max_logprob_gap"):
        learner.update(with_old_logprobs(groups, -1.0))


def test_the_task_metric_decides_what_counts_as_all_equal():
    policy = tiny_policy()
    groups = sample_groups(policy, [[1.0, 0.9], [1.0, 0.0]])
    shaped = replace(
        groups[0], verdicts=tuple(replace(verdict, components={"answer": 1.0}) for verdict in groups[0].verdicts)
    )
    learner = Learner(policy, FAST, ObjectiveSettings(), sampling=SAMPLING, primary="answer")
    result = learner.update([shaped, groups[1]])
    assert result.metrics["groups/zero_variance"] == 0.5
    assert result.advantages[0] == (0.0, 0.0)
    assert learner_of(policy, LearnerSettings(max_logprob_gap=9.0)).update([shaped, groups[1]]).advantages[0][0] > 0.9


def test_a_completion_without_the_task_metric_does_not_make_a_group_look_mixed():
    policy = tiny_policy()
    [group] = sample_groups(policy, [[1.0, 0.9, 0.8]])
    metrics = [{"answer": 1.0}, {"answer": 1.0}, {"answer": None}]
    verdicts = tuple(replace(v, components=part) for v, part in zip(group.verdicts, metrics, strict=True))
    learner = Learner(policy, FAST, ObjectiveSettings(), sampling=SAMPLING, primary="answer")
    assert learner.update([replace(group, verdicts=verdicts)]).advantages == ((0.0, 0.0, 0.0),)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_logits_stay_within_their_budget(family):
    # 20 rows of the vocabulary; the longest completion behind its prompt has 17 tokens.
    policy = tiny_policy(family)
    sizes = []
    policy.model.get_output_embeddings().register_forward_hook(
        lambda _m, _a, output: sizes.append(output.numel() // 61)
    )
    groups = sample_groups(policy, REWARDS)
    learner = learner_of(policy, LearnerSettings(logits_chunk_bytes=20 * 61 * 4), kl_coef=0.1)
    sizes.clear()
    learner.update(groups)
    assert len(sizes) > 4
    assert max(sizes) <= 20


def test_entropy_is_measured_always_and_raised_only_with_a_coefficient():
    policy = tiny_policy(dtype=torch.float64)
    with torch.no_grad():
        policy.model.get_output_embeddings().weight.zero_()  # uniform: entropy log V everywhere
    metrics = learner_of(policy).update(sample_groups(policy, REWARDS)).metrics
    assert metrics["entropy/mean"] == pytest.approx(torch.log(torch.tensor(61.0, dtype=torch.float64)).item(), abs=1e-9)
    sharp = tiny_policy()
    pushed = learner_of(sharp, entropy_coef=10.0)
    values = [pushed.update(sample_groups(sharp, REWARDS, seed=seed)).metrics["entropy/mean"] for seed in range(3)]
    assert values[0] < values[1] < values[2]


def test_empty_completions_and_rollouts_are_no_trouble_or_one_clear_error():
    policy = tiny_policy()
    groups = sample_groups(policy, [[1.0, 0.0, 0.0]])
    empty = replace(groups[0].completions[2], token_ids=(), old_logprobs=())
    group = replace(groups[0], completions=(*groups[0].completions[:2], empty))
    assert learner_of(policy).update([group]).advantages[0][2] < 0
    with pytest.raises(ValueError, match="at least one group"):
        learner_of(policy).update([])
    broken = replace(groups[0].completions[0], old_logprobs=(0.0,) * 40)
    with pytest.raises(ValueError, match=r"task t0 has .* but 40 log-probs"):
        learner_of(policy).update([replace(groups[0], completions=(broken, *groups[0].completions[1:]))])
    with pytest.raises(ValueError, match=r"rollout\.sampling\.temperature"):
        Learner(policy, FAST, ObjectiveSettings(), sampling=Sampling(temperature=0.0))


def test_nan_log_probs_name_the_task_and_leave_the_weights():
    policy = tiny_policy()
    groups = sample_groups(policy, REWARDS)
    spoiled = replace(groups[1].completions[2], old_logprobs=(float("nan"),) * len(groups[1].completions[2].token_ids))
    groups[1] = replace(groups[1], completions=(*groups[1].completions[:2], spoiled))
    learner = learner_of(policy)
    before = weights_of(policy)
    with pytest.raises(NumericsError, match=r"rollout 0, optimiser step 0: log-probs of the sampler .* t1\[2\]"):
        learner.update(groups)
    assert all(torch.equal(before[name], value) for name, value in weights_of(policy).items())
    assert not policy.model.training


def test_an_infinite_weight_is_found_before_the_step():
    policy = tiny_policy()
    groups = sample_groups(policy, REWARDS)
    learner = learner_of(policy)
    with torch.no_grad():
        policy.model.transformer.wpe.weight[3] = float("inf")
    with pytest.raises(NumericsError, match=r"log-probs of the policy are NaN or inf .*float32"):
        learner.update(groups)
    assert all(parameter.grad is None for parameter in policy.model.parameters())


def test_a_gradient_that_overflows_names_the_weights():
    policy = tiny_policy()
    learner = learner_of(policy)

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * float("inf")

    policy.model.transformer.h[0].mlp.c_fc.weight.register_hook(spoil)
    before = weights_of(policy)
    with pytest.raises(NumericsError, match=r"gradient is not finite .*h\.0\.mlp\.c_fc\.weight.*not taken"):
        learner.update(sample_groups(policy, REWARDS))
    assert all(torch.equal(before[name], value) for name, value in weights_of(policy).items())


def test_bfloat16_arithmetic_over_float32_weights_gives_nearly_the_same_gradient():
    policy = tiny_policy("gpt2")
    groups = sample_groups(policy, REWARDS)
    gradients = []
    for compute_dtype in ("weights", "bfloat16"):
        mine = copy.copy(policy)
        mine.model = copy.deepcopy(policy.model)
        learner = learner_of(mine, gradient_settings(compute_dtype=compute_dtype))
        learner.update(groups)
        gradients.append(gradient_of(learner))
    assert 0 < largest_difference(gradients[1], gradients[0]) < 0.1


def test_gradient_checkpointing_leaves_the_gradient_alone():
    policy = tiny_policy("llama", dtype=torch.float64)
    groups = sample_groups(policy, REWARDS)
    gradients = []
    for is_checkpointing in (False, True):
        mine = copy.copy(policy)
        mine.model = copy.deepcopy(policy.model)
        if is_checkpointing:
            mine.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        learner = learner_of(mine, gradient_settings())
        learner.update(groups)
        gradients.append(gradient_of(learner))
    assert largest_difference(gradients[1], gradients[0]) < 1e-10


def test_supervised_updates_learn_the_completions():
    policy = tiny_policy(dtype=torch.float64)
    learner = SupervisedLearner(policy, LearnerSettings(lr=0.01, micro_batch_tokens=8))
    examples = [((5, 6), (7, 8, 0)), ((9, 10, 11), (12, 0))]
    nll = []
    for prompt, completion in examples:
        ids = torch.tensor([[*prompt, *completion]])
        with torch.no_grad():
            logprobs = torch.log_softmax(policy.model(input_ids=ids).logits[0], -1)
        nll += [-logprobs[len(prompt) - 1 + i, token].item() for i, token in enumerate(completion)]
    first = learner.update(examples)
    assert first["loss/supervised"] == pytest.approx(sum(nll) / 5, abs=1e-9)  # temperature 1, not that of sampling
    assert first["tokens/completion"] == 5.0
    for _ in range(60):
        last = learner.update(examples)
    assert last["loss/supervised"] < 0.1
    with pytest.raises(ValueError, match="without a completion token"):
        learner.update([((5,), ())])
