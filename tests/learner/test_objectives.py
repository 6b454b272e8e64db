"""What each option does to a step, what is refused, and a look at the gradient that changes nothing."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from oncurve.algo import ObjectiveSettings
from oncurve.learner import Learner, LearnerSettings
from oncurve.model import reference_of
from oncurve.types import NumericsError, Settings
from tests.learner.build import SAMPLING, gradient_of, largest_difference, sample_groups
from tests.learner.rollouts import clone, critic_of, learner_of, other, policy, rollout

KEEP = {"zero_variance": "keep"}
KL = {"kl_coef": 0.1}


def on(estimator: str, **numbers: object) -> dict[str, object]:
    return {**KEEP, "advantage": {"estimator": estimator, **numbers}}


OPTIONS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "preset": ({}, {"preset": "dr_grpo"}),
    "advantage.estimator": (on("group_mean"), on("rloo")),
    "advantage.ddof": (on("group_zscore"), on("group_zscore", ddof=1)),
    "advantage.std_eps": (on("group_zscore"), on("group_zscore", std_eps=0.1)),
    "advantage.tolerance": (on("group_mean"), on("group_mean", tolerance=2.0)),
    "advantage.k": (on("pkpo", k=2), on("pkpo", k=3)),
    "advantage.leave_one_out": (on("pkpo", k=2), on("pkpo", k=2, leave_one_out=False)),
    "advantage.shrinkage": (on("shrink"), on("shrink", shrinkage=0.9)),
    "advantage.std_of": (on("batch_std"), on("batch_std", std_of="centered")),
    "advantage.max_reward": (on("ngrpo"), on("ngrpo", max_reward=3.0)),
    "advantage.num_virtual": (on("ngrpo"), on("ngrpo", num_virtual=2)),
    "advantage.gamma": (on("reinforce_pp"), on("reinforce_pp", gamma=0.5)),
    "advantage.lam": (on("gae"), on("gae", lam=0.5)),
    "advantage.lam_alpha": (on("gae"), on("gae", lam_alpha=0.4)),
    "advantage.threshold": (on("raft"), on("raft", threshold=0.0)),
    "advantage.best_of_group": (on("raft", threshold=0.0), on("raft", threshold=0.0, best_of_group=True)),
    "advantage.max_per_group": (on("raft", threshold=0.0), on("raft", threshold=0.0, max_per_group=2)),
    "advantage.difficulty": (on("difficulty"), on("difficulty", difficulty={"midpoint": 0.3})),
    "advantage.whiten": (on("rloo"), on("rloo", whiten=True)),
    "advantage.clip": (on("rloo"), on("rloo", clip=0.5)),
    "loss": ({}, {"loss": "sapo"}),
    "clip_low": ({}, {"clip_low": 0.05}),
    "clip_high": ({}, {"clip_high": 0.05}),
    "dual_clip": ({}, {"dual_clip": 1.2}),
    "ratio_cap": ({}, {"ratio_cap": 1.25}),
    "cispo.ratio_min": ({"loss": "cispo"}, {"loss": "cispo", "cispo": {"ratio_min": 0.9}}),
    "cispo.ratio_max": ({"loss": "cispo"}, {"loss": "cispo", "cispo": {"ratio_max": 1.1}}),
    "sapo.tau_positive": ({"loss": "sapo"}, {"loss": "sapo", "sapo": {"tau_positive": 3.0}}),
    "sapo.tau_negative": ({"loss": "sapo"}, {"loss": "sapo", "sapo": {"tau_negative": 3.0}}),
    "vespo.power_positive": ({"loss": "vespo"}, {"loss": "vespo", "vespo": {"power_positive": 1.0}}),
    "vespo.rate_positive": ({"loss": "vespo"}, {"loss": "vespo", "vespo": {"rate_positive": 1.0}}),
    "vespo.power_negative": ({"loss": "vespo"}, {"loss": "vespo", "vespo": {"power_negative": 1.0}}),
    "vespo.rate_negative": ({"loss": "vespo"}, {"loss": "vespo", "vespo": {"rate_negative": 1.0}}),
    "correction.mode": (
        {"correction": {"mode": "token_mask", "high": 1.1}},
        {"correction": {"mode": "token_truncate", "high": 1.1}},
    ),
    "correction.low": (
        {"correction": {"mode": "token_truncate"}},
        {"correction": {"mode": "token_truncate", "low": 0.9}},
    ),
    "correction.high": (
        {"correction": {"mode": "token_truncate"}},
        {"correction": {"mode": "token_truncate", "high": 1.1}},
    ),
    "max_divergence": ({}, {"max_divergence": 0.05}),
    "token_filter.mode": ({}, {"token_filter": {"mode": "high_entropy"}}),
    "token_filter.frac": (
        {"token_filter": {"mode": "high_entropy"}},
        {"token_filter": {"mode": "high_entropy", "frac": 0.6}},
    ),
    "token_filter.low": (
        {"token_filter": {"mode": "clip_cov", "frac": 1.0}},
        {"token_filter": {"mode": "clip_cov", "frac": 1.0, "low": 0.1}},
    ),
    "token_filter.high": (
        {"token_filter": {"mode": "clip_cov", "frac": 1.0, "low": 0.1}},
        {"token_filter": {"mode": "clip_cov", "frac": 1.0, "low": 0.1, "high": 0.5}},
    ),
    "token_filter.coef": (
        {"token_filter": {"mode": "kl_cov"}},
        {"token_filter": {"mode": "kl_cov", "coef": 3.0}},
    ),
    "aggregation": ({}, {"aggregation": "token-mean"}),
    "kl_coef": ({}, KL),
    "kl_estimator": (KL, {**KL, "kl_estimator": "k2"}),
    "kl_placement": (KL, {**KL, "kl_placement": "reward"}),
    "entropy_coef": ({}, {"entropy_coef": 0.1}),
    "zero_variance": (KL, {**KL, **KEEP}),
    "mask_truncated": ({}, {"mask_truncated": True}),
}
"""Two objectives that differ in this option alone."""
ELSEWHERE = {
    "kl_adaptive": "test_coefficients",
    "entropy_adaptive": "test_coefficients",
    "resample_rounds": "of the loop, not of the learner",
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_of_the_objective_changes_the_gradient(option):
    plain, changed = (learner_of(ObjectiveSettings(**numbers)).gradient(rollout()) for numbers in OPTIONS[option])
    assert largest_difference(changed.gradient, plain.gradient) > 1e-3


def test_no_option_of_the_objective_goes_untested():
    nested = ("advantage", "cispo", "sapo", "vespo", "correction", "token_filter")
    wanted = {name for name in ObjectiveSettings.model_fields if name not in nested}
    for name in nested:
        settings = ObjectiveSettings.model_fields[name].annotation
        assert isinstance(settings, type)
        assert issubclass(settings, Settings)
        wanted |= {f"{name}.{field}" for field in settings.model_fields}
    assert wanted == OPTIONS.keys() | ELSEWHERE.keys()


# ---- options of the learner ------------------------------------------------------------------------------------------

STEERS = {
    "lr": {"lr": 0.02},
    "warmup_steps": {"warmup_steps": 5},
    "decay_steps": {"decay_steps": 5},
    "weight_decay": {"weight_decay": 0.1},
    "beta1": {"beta1": 0.5},
    "beta2": {"beta2": 0.5},
    "adam_eps": {"adam_eps": 0.1},
    "max_grad_norm": {"max_grad_norm": 1e-6, "adam_eps": 1e-6},
    "updates_per_rollout": {"updates_per_rollout": 3},
    "old_logprobs": {"old_logprobs": "recompute"},
    "compute_dtype": {"compute_dtype": "bfloat16"},  # the policy of these tests is float32: float64 stays float64
}
"""Change where the weights go; the memory budgets and what is only looked at have tests of their own below."""
LOOKS = {"max_logprob_gap", "watch_kl_completions", "micro_batch_tokens", "share_prompts", "logits_chunk_bytes"}


def plain_learner(**settings: object) -> Learner:
    mine = clone()
    mine.model.to(torch.float32)
    return Learner(
        mine,
        LearnerSettings(**{"lr": 0.01, "max_logprob_gap": 99.0, **settings}),
        ObjectiveSettings(),
        sampling=SAMPLING,
        reference=reference_of(other()),
    )


def moved(learner: Learner) -> dict[str, torch.Tensor]:
    for _ in range(2):
        learner.update(rollout())
    return {name: weight.detach() for name, weight in learner.policy.model.named_parameters()}


@pytest.mark.parametrize("option", STEERS)
def test_every_option_that_steers_the_optimiser_changes_where_the_weights_go(option):
    base = {"adam_eps": 1e-6} if option == "max_grad_norm" else {}
    assert largest_difference(moved(plain_learner(**STEERS[option])), moved(plain_learner(**base))) > 1e-5


def test_no_option_of_the_learner_goes_untested():
    assert STEERS.keys() | LOOKS == LearnerSettings.model_fields.keys()


def test_a_gap_limit_stops_a_run_that_a_wider_one_lets_go_on():
    with pytest.raises(NumericsError, match=r"learner.max_logprob_gap = 0.01"):
        plain_learner(max_logprob_gap=0.01).update(rollout())
    assert plain_learner(max_logprob_gap=1.0).update(rollout()).metrics["gap/mean_abs"] == pytest.approx(0.24, abs=0.1)


def test_the_kl_is_watched_on_as_many_completions_as_asked():
    seen = {}
    for count in (0, 2, 64):
        learner = plain_learner(watch_kl_completions=count)
        chosen: list[int] = []
        learner._reference_logprobs = _listening(learner, chosen)  # type: ignore[method-assign]
        metrics = learner.update(rollout()).metrics
        seen[count] = (len(chosen), "kl/reference" in metrics)
    assert seen == {0: (0, False), 2: (2, True), 64: (8, True)}  # eight scored in the three groups with signal


def _listening(learner: Learner, chosen: list[int]) -> Any:
    original = learner._reference_logprobs

    def listen(completions: Any, wanted: Any) -> Any:
        chosen.extend(wanted)
        return original(completions, wanted)

    return listen


@pytest.mark.parametrize(
    ("memory", "bodies", "heads"),
    [
        ({}, 1, 1),
        ({"micro_batch_tokens": 40}, None, None),
        ({"share_prompts": "never", "micro_batch_tokens": 10_000}, 1, 1),
        ({"logits_chunk_bytes": 4 * 61 * 5}, 1, 8),
    ],
)
def test_memory_settings_change_how_the_model_is_run(memory, bodies, heads):
    learner = plain_learner(watch_kl_completions=0, **memory)
    model = learner.policy.model
    sizes: list[int] = []
    widths: list[int] = []
    model.base_model.register_forward_hook(
        lambda _m, _a, kwargs, _o: widths.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    model.get_output_embeddings().register_forward_hook(lambda _m, _a, output: sizes.append(output.numel() // 61))
    learner.update(rollout())
    num_tokens = sum(sizes)
    if bodies is None:
        assert len(widths) > 1
        assert max(widths) <= 40
    else:
        assert len(widths) == bodies
        assert len(sizes) == -(-num_tokens // max(sizes)) == (heads if heads == 1 else -(-num_tokens // 5))
    if memory.get("share_prompts") == "never":
        assert widths[0] > 8 * 20  # the prompt once a completion
    elif bodies == 1:
        assert widths[0] < 4 * 20 + 8 * 6  # and here once


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["token_truncate", "token_mask", "seq_truncate", "seq_mask", "seq_geo_mask"])
def test_a_correction_on_top_of_a_ratio_that_contains_it_is_refused(mode):
    objective = ObjectiveSettings(correction={"mode": mode})
    with pytest.raises(ValueError, match=rf'old_logprobs = "sampler".*{mode}.*"recompute"'):
        learner_of(objective, old_logprobs="sampler")
    for fine in ("auto", "recompute"):
        assert learner_of(objective, old_logprobs=fine).gradient(rollout()).tokens.clip_ratio.max() == 1.0
    divergence = ObjectiveSettings(max_divergence=0.5)  # compares the policy with the sampler, weighs nothing
    assert learner_of(divergence, old_logprobs="sampler").gradient(rollout()).tokens.clip_ratio.max() > 1.1


@pytest.mark.parametrize("loss", ["gspo", "gspo_token", "luspo", "clip"])
def test_a_band_narrower_than_rounding_takes_the_trainers_own_log_probs(loss):
    # GSPO clips 3e-4 around 1 and bfloat16 is 1e-2 off: against the sampler's record a third of it would be clipped.
    aggregation = {"aggregation": "seq-mean-token-sum"} if loss == "luspo" else {}
    probe = learner_of(ObjectiveSettings(loss=loss, **aggregation), old_logprobs="auto").gradient(rollout())
    assert (probe.tokens.clip_ratio.max().item() == 1.0) == (loss != "clip")


def test_a_critic_is_missing_or_superfluous():
    start = clone()
    arguments: dict[str, Any] = {"sampling": SAMPLING}
    with pytest.raises(ValueError, match="gae without a critic"):
        Learner(start, LearnerSettings(), ObjectiveSettings(**on("gae")), **arguments)
    with pytest.raises(ValueError, match="reinforce_pp with a critic"):
        Learner(start, LearnerSettings(), ObjectiveSettings(**on("reinforce_pp")), critic=critic_of(start), **arguments)


# ---- clips and filters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "bands"),
    [
        ("clip", {"clip_low": 0.1, "clip_high": 0.2}),
        ("gspo", {"clip_low": 0.03, "clip_high": 0.05}),
        ("gspo_token", {"clip_low": 0.03, "clip_high": 0.05}),
        ("luspo", {"clip_low": 0.03, "clip_high": 0.05, "aggregation": "seq-mean-token-sum"}),
        ("gmpo", {"clip_low": 0.38, "clip_high": 0.3}),  # as ratios, fewer and more tokens would be outside
    ],
)
def test_the_clip_fractions_are_the_tokens_without_gradient(loss, bands):
    # Each side is counted by hand on the record of the step: ratios of tokens, or of whole completions.
    objective = ObjectiveSettings(loss=loss, **bands)
    probe = learner_of(objective).gradient(rollout())
    metrics = learner_of(objective).update(rollout()).metrics
    low = high = total = 0
    for member in probe.members:
        log_ratio = probe.logprobs[member.index] - probe.old_logprobs[member.index]
        judged = log_ratio.mean().expand(len(log_ratio)) if loss in ("gspo", "gspo_token", "luspo") else log_ratio
        for value, gain in zip(judged.tolist(), member.advantages.tolist(), strict=True):
            moved = value if loss == "gmpo" else torch.tensor(value).exp().item() - 1
            low += gain < 0 and moved < -objective.clip_low
            high += gain > 0 and moved > objective.clip_high
            total += 1
    assert low > 0
    assert high > 0
    assert metrics["clip/low"] == pytest.approx(low / total)
    assert metrics["clip/high"] == pytest.approx(high / total)


@pytest.mark.parametrize("loss", ["cispo", "sapo", "vespo", "topr", "reinforce"])
def test_a_loss_without_clip_reports_none(loss):
    metrics = learner_of(ObjectiveSettings(loss=loss)).update(rollout()).metrics
    assert "clip/low" not in metrics
    assert "clip/high" not in metrics
    assert metrics["ratio/max"] > 1.1


def test_clip_cov_draws_anew_each_step_and_the_same_for_the_same_step():
    narrow = {"mode": "clip_cov", "frac": 0.15, "low": 0.01, "high": 100.0}
    objective = ObjectiveSettings(token_filter=narrow, clip_low=0.9, clip_high=9.0)
    learner = learner_of(objective, lr=1e-12)
    first = learner.gradient(rollout()).gradient
    again = learner.gradient(rollout()).gradient
    assert all(torch.equal(first[name], value) for name, value in again.items())
    assert all(
        torch.equal(first[name], value) for name, value in learner_of(objective).gradient(rollout()).gradient.items()
    )
    learner.update(rollout())  # moves nothing, but the next step is another one
    assert largest_difference(learner.gradient(rollout()).gradient, first) > 1e-3


# ---- a look that changes nothing -------------------------------------------------------------------------------------

LOOKED_AT: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "clip": ({**KL, "entropy_coef": 0.1}, {}),
    "gspo": ({"loss": "gspo", **KL, "entropy_coef": 0.1}, {}),
    "correction": ({"correction": {"mode": "seq_mask"}}, {}),
    "recomputed": ({}, {"old_logprobs": "recompute"}),
    "clip_cov": ({"token_filter": {"mode": "clip_cov", "frac": 0.1, "low": 0.1}}, {}),
    "KL in the reward": ({**KL, "kl_placement": "reward"}, {}),
    "steered": (
        {
            **KL,
            "kl_adaptive": {"target": 0.1, "horizon": 99},
            "entropy_coef": 0.01,
            "entropy_adaptive": {"target": 9.0},
        },
        {},
    ),
    "gae": (on("gae", whiten=True), {}),
    "gdpo": (on("gdpo"), {}),
    "raft": (on("raft"), {}),
}


def everything(learner: Learner) -> Mapping[str, Any]:
    critic = learner._critic
    return copy.deepcopy(
        {
            "state": learner.state_dict(),
            "policy": learner.policy.model.state_dict(),
            "critic": {} if critic is None else critic._stepper.model.state_dict(),
            "random": torch.get_rng_state(),
            "modes": [module.training for module in learner.policy.model.modules()],
            "gradients": [weight.grad for weight in learner.policy.model.parameters()],
        }
    )


def assert_same(left: Any, right: Any) -> None:
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right)
    elif isinstance(left, Mapping):
        assert left.keys() == right.keys()
        for name in left:
            assert_same(left[name], right[name])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for mine, theirs in zip(left, right, strict=True):
            assert_same(mine, theirs)
    else:
        assert left == right


@pytest.mark.parametrize("name", LOOKED_AT)
def test_the_gradient_looked_at_is_that_of_the_step_that_follows_and_nothing_changes(name):
    numbers, settings = LOOKED_AT[name]
    objective = ObjectiveSettings(**numbers)
    learner, untouched = learner_of(objective, **settings), learner_of(objective, **settings)
    for taken in range(2):  # at the start, and after a step: then moments and coefficients have moved
        before = everything(learner)
        probe = learner.gradient(rollout())
        assert_same(everything(learner), before)
        result = learner.update(rollout())
        assert all(torch.equal(probe.gradient[key], value) for key, value in gradient_of(learner).items())
        assert probe.tokens.total == result.metrics["loss/total"]
        assert probe.graded.rows() == list(result.advantages)
        assert result.metrics == untouched.update(rollout()).metrics
        assert learner.num_steps == taken + 1
    assert_same(everything(learner), everything(untouched))


def test_a_look_shows_who_is_trained_and_with_which_ratio():
    probe = learner_of(ObjectiveSettings()).gradient(rollout())
    assert [member.index for member in probe.members] == [0, 1, 2, 3, 4, 8, 9, 10]
    gap = torch.cat([probe.logprobs[m.index] - probe.old_logprobs[m.index] for m in probe.members])
    assert sorted(gap.exp().tolist()) == pytest.approx(sorted(probe.tokens.clip_ratio.tolist()), abs=1e-12)
    recomputed = learner_of(ObjectiveSettings(), old_logprobs="recompute").gradient(rollout())
    assert all(torch.equal(recomputed.old_logprobs[i], found) for i, found in recomputed.logprobs.items())


def test_a_look_at_what_cannot_be_learned_from_says_so():
    learner = learner_of(ObjectiveSettings())
    with pytest.raises(ValueError, match="no group of this rollout can be learned from"):
        learner.gradient(sample_groups(policy(), [[1.0, 1.0], [None, 0.0]]))
    with pytest.raises(ValueError, match="at least one group"):
        learner.gradient([])
    strict = learner_of(ObjectiveSettings(), max_logprob_gap=None)
    before = everything(strict)
    with pytest.raises(NumericsError, match="differ from the learner's"):
        strict.gradient(rollout())
    assert_same(everything(strict), before)
