#!/usr/bin/env python
# ruff: noqa: E501
"""Plant each mutant of the table in a copy of the package and run the one test that must notice it.

    python scripts/mutants.py [FAMILY ...]

The copy lives in a temporary folder that stands before the package on the path; nothing else is touched. The result is
written to docs/concepts/mutants.md when all families were run. A few seconds each, one after the other.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "concepts" / "mutants.md"


@dataclass(frozen=True)
class Mutant:
    """One change and the test that must fail under it."""

    family: str
    file: str
    """Below src/oncurve."""
    old: str
    """Occurs exactly once in the file."""
    new: str
    test: str
    """Below tests, as pytest names it; all parameters of a parametrised test."""


def _family(family: str, *rows: tuple[str, str, str, str]) -> list[Mutant]:
    return [Mutant(family, file, old, new, test) for file, old, new, test in rows]


# fmt: off
MUTANTS = [
    *_family(
        "advantage",
        ("algo/groups.py", "/ (valid.sum(dim=1, keepdim=True) - ddof)", "/ valid.sum(dim=1, keepdim=True)", "algo/test_advantage.py::test_the_std_is_the_populations_by_default_and_the_samples_on_demand"),
        ("algo/advantage.py", "(groups.std(values, valid, ddof=settings.ddof) + settings.std_eps)", "(groups.std(values, valid, ddof=settings.ddof).square() + settings.std_eps).sqrt()", "algo/test_advantage.py::test_std_eps_is_added_to_the_std"),
        ("algo/advantage.py", "advantages = centred * count / (count - 1)", "advantages = centred * (count - 1) / count", "algo/test_advantage.py::test_leave_one_out_compares_with_the_mean_of_the_others"),
        ("algo/groups.py", "return torch.where(valid, values, 0.0).sum(dim=1, keepdim=True) / valid.sum(dim=1, keepdim=True)", "return torch.where(valid, values, 0.0).sum() / valid.sum()", "algo/test_advantage.py::test_another_group_never_matters"),
        ("algo/groups.py", "return torch.where(valid, values, 0.0).sum(dim=1, keepdim=True) / valid.sum(dim=1, keepdim=True)", "return values.mean(dim=1, keepdim=True)", "algo/test_advantage.py::test_an_unscored_member_gets_zero_and_no_say"),
        ("algo/advantage.py", "silent = groups.span(values, valid) <= settings.tolerance", "silent = groups.std(values, valid, ddof=0)[:, 0] <= 0", "algo/test_properties.py::test_equal_groups_are_exactly_zero_for_every_centred_estimator"),
        ("algo/advantage.py", "silent = groups.span(values, valid) <= settings.tolerance", "silent = groups.span(values, valid) < settings.tolerance", "algo/test_advantage.py::test_the_tolerance_decides_and_belongs_to_the_equal_side"),
        ("algo/whiten.py", "mean = (times * known).sum() / total", "mean = known.mean()", "algo/test_estimate.py::test_whitening_counts_tokens_and_clipping_comes_last"),
        ("algo/whiten.py", "/ (total - ddof)", "/ total", "algo/test_estimate.py::test_whitening_counts_tokens_and_clipping_comes_last"),
        ("algo/group_variants.py", "(groups.mean(values, valid) + mean_eps)", "(groups.std(values, valid, ddof=0) + mean_eps)", "algo/test_group_variants.py::test_maxrl_climbs_every_pass_at_k_below_the_group_size"),
        ("algo/batch_baselines.py", "mixed = (1 - shrinkage) * own + shrinkage * abroad", "mixed = shrinkage * own + (1 - shrinkage) * abroad", "algo/test_batch_baselines.py::test_shrinkage_on_paper"),
    ),
    *_family(
        "objective",
        ("algo/clipping.py", "ratio.clamp(1 - clip_low, 1 + clip_high)", "ratio.clamp(1 - clip_high, 1 + clip_low)", "algo/test_clipping.py::test_the_six_corners"),
        ("algo/clipping.py", "torch.minimum(unclipped", "torch.maximum(unclipped", "algo/test_clipping.py::test_clipping_is_pessimistic"),
        ("algo/clipping.py", "torch.where(gain < 0, torch.maximum", "torch.where(gain > 0, torch.maximum", "algo/test_clipping.py::test_dual_clip_and_ratio_cap_bound_the_loss_of_bad_tokens"),
        ("algo/clipping.py", "at_least_float32(old_logprobs.detach())", "at_least_float32(old_logprobs)", "algo/test_clipping.py::test_no_gradient_reaches_the_old_policy_or_the_advantages"),
        ("algo/clipping.py", "return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()", "return log_ratio.exp()", "algo/test_clipping.py::test_the_log_ratio_is_clamped"),
        ("algo/sequence_losses.py", "ratio = _mean(log_ratio, loss_mask).exp().detach()[:, None]", "ratio = _mean(log_ratio, loss_mask).exp()[:, None]", "algo/test_losses.py::test_gspo_token_with_equal_advantages_is_gspo"),
        ("algo/sequence_losses.py", "log_ratio.clamp(max=clip_high), log_ratio.clamp(min=-clip_low)", "log_ratio.clamp(max=clip_low), log_ratio.clamp(min=-clip_high)", "algo/test_formula.py::test_the_text_alone_is_enough_to_recompute_the_loss"),
        ("algo/sequence_losses.py", "weight = torch.where(gain >= 0, 1.0, product)", "weight = torch.where(gain <= 0, 1.0, product)", "algo/test_losses.py::test_topr_fades_only_bad_completions"),
        ("algo/token_losses.py", "weight = importance_ratio(logprobs.detach(), old_logprobs)", "weight = importance_ratio(logprobs, old_logprobs)", "algo/test_formula.py::test_the_text_of_a_preset_is_its_loss_and_gradient[cispo]"),
        ("algo/token_losses.py", "return -4 / tau * torch.sigmoid", "return -2 / tau * torch.sigmoid", "algo/test_properties.py::test_at_ratio_one_every_loss_has_the_gradient_of_reinforce"),
        ("algo/objective.py", "trained = weights != 0", "trained = torch.ones_like(weights, dtype=torch.bool)", "algo/test_properties.py::test_padding_never_matters"),
        ("algo/formula_loss.py", "1 + {settings.clip_high!r})", "1 + {settings.clip_low!r})", "algo/test_formula.py::test_the_text_of_a_preset_is_its_loss_and_gradient[dapo]"),
    ),
    *_family(
        "aggregation",
        ("algo/aggregation.py", "return 1 / (num_sequences * tokens.clamp(min=1))", "return 1 / (num_sequences * tokens.mean().clamp(min=1)) + 0 * tokens", "algo/test_aggregation.py::test_weights_on_paper"),
        ("algo/aggregation.py", "/ tokens.sum().clamp(min=1)", "/ tokens.max().clamp(min=1)", "algo/test_aggregation.py::test_weights_on_paper"),
        ("algo/aggregation.py", "(num_sequences * max_tokens)", "max_tokens", "algo/test_aggregation.py::test_weights_on_paper"),
        ("algo/aggregation.py", "return torch.ones_like(tokens) / num_sequences\n", "return torch.ones_like(tokens) / tokens.sum().clamp(min=1)\n", "algo/test_aggregation.py::test_weights_on_paper"),
        ("algo/aggregation.py", "(len(prompts) * tokens_of_prompt.clamp(min=1)[prompt_of])", "(num_sequences * tokens_of_prompt.clamp(min=1)[prompt_of])", "algo/test_aggregation.py::test_weights_on_paper"),
        ("algo/aggregation.py", "num_sequences = len(lengths)", "num_sequences = int((lengths > 0).sum())", "algo/test_aggregation.py::test_a_sequence_without_trained_tokens_keeps_its_seat"),
        ("algo/aggregation.py", "torch.where(loss_mask, weights[:, None], 0.0)", "weights[:, None].expand(loss_mask.shape)", "algo/test_aggregation.py::test_token_weights_are_zero_outside_the_mask"),
        ("algo/objective.py", "policy = (token_weights * terms).sum()", "policy = (token_weights * terms).sum() / token_weights.sum()", "algo/test_properties.py::test_no_number_of_workers_changes_the_gradient"),
        ("algo/objective.py", "entropy_mean = clean(entropy).sum() / num_step_tokens", "entropy_mean = clean(entropy).sum() / trained.sum()", "algo/test_properties.py::test_no_split_into_micro_batches_changes_the_gradient"),
        ("learner/minibatch.py", "* self._scale(chosen)", "", "learner/test_grading.py::test_weights_with_a_silent_group"),
    ),
    *_family(
        "KL",
        ("algo/kl.py", "return torch.expm1(-bounded) + bounded", "return torch.expm1(bounded) - bounded", "algo/test_kl.py::test_a_token_twice_as_likely_as_under_the_reference"),
        ("algo/kl.py", "return difference.square() / 2", "return difference.square()", "algo/test_kl.py::test_a_token_twice_as_likely_as_under_the_reference"),
        ("algo/kl.py", "difference = at_least_float32(logprobs) - at_least_float32(ref_logprobs.detach())", "difference = at_least_float32(ref_logprobs.detach()) - at_least_float32(logprobs)", "algo/test_properties.py::test_the_gradient_of_each_kl_in_the_loss_by_enumeration"),
        ("algo/kl.py", "return importance_ratio(logprobs, old_logprobs) * kl", "return importance_ratio(logprobs, old_logprobs).detach() * kl", "algo/test_properties.py::test_the_gradient_of_each_kl_in_the_loss_by_enumeration"),
        ("algo/kl.py", "torch.where(loss_mask, -kl_coef * divergence, 0.0)", "torch.where(loss_mask, kl_coef * divergence, 0.0)", "algo/test_kl.py::test_kl_in_the_reward_on_paper"),
        ("algo/kl.py", "last = torch.where(loss_mask, positions, -1).amax(dim=1, keepdim=True)", "last = torch.full((len(loss_mask), 1), loss_mask.shape[1] - 1)", "algo/test_kl.py::test_kl_in_the_reward_on_paper"),
        ("algo/kl.py", "returns[:, step] + gamma * ahead, ahead)", "returns[:, step] + ahead, ahead)", "algo/test_kl.py::test_what_is_still_to_come_on_paper"),
        ("algo/kl.py", "error = min(max(divergence / target - 1, -0.2), 0.2)", "error = divergence / target - 1", "algo/test_kl.py::test_the_coefficient_is_steered_by_at_most_a_fifth"),
        ("algo/objective.py", "total = total + settings.kl_coef * kl", "total = total - settings.kl_coef * kl", "algo/test_objective.py::test_the_terms_on_paper"),
        ("algo/kl.py", "bounded = difference.clamp(-20.0, 20.0)", "bounded = difference", "algo/test_kl.py::test_k3_stays_finite_for_absurd_differences"),
    ),
    *_family(
        "entropy",
        ("algo/objective.py", "policy - settings.entropy_coef * entropy_mean", "policy + settings.entropy_coef * entropy_mean", "algo/test_objective.py::test_the_entropy_bonus_raises_entropy_and_a_k2_pulls_to_the_reference"),
        ("algo/logits.py", "logprobs = torch.log_softmax(at_least_float32(logits) / temperature, dim=-1)", "logprobs = torch.log_softmax(at_least_float32(logits), dim=-1)", "algo/test_logits.py::test_entropy_on_paper"),
        ("algo/logits.py", "return -(logprobs.exp() * finite).sum(dim=-1)", "return -finite.mean(dim=-1)", "algo/test_logits.py::test_entropy_on_paper"),
        ("algo/entropy_control.py", "if entropy <= target:", "if entropy >= target:", "algo/test_entropy_control.py::test_the_bonus_is_on_while_the_entropy_is_low"),
        ("algo/entropy_control.py", "next=min(coef + step, highest)", "next=coef + step", "algo/test_entropy_control.py::test_the_bonus_is_on_while_the_entropy_is_low"),
        ("algo/entropy_control.py", "valid.sum() / loss_mask.sum().clamp(min=1)", "valid.mean()", "algo/test_entropy_control.py::test_covariance_on_paper"),
        ("algo/entropy_control.py", "_largest(-uniforms, eligible, count)", "_largest(-uniforms, torch.ones_like(eligible), count)", "algo/test_entropy_control.py::test_the_smallest_uniforms_are_dropped_among_the_eligible"),
        ("algo/entropy_control.py", "return max(1, int(frac * num_tokens))", "return int(frac * num_tokens)", "algo/test_entropy_control.py::test_at_least_one_token_is_controlled"),
        ("algo/entropy_control.py", "round((1 - share) * (len(ordered) - 1), 9)", "round(share * (len(ordered) - 1), 9)", "algo/test_entropy_control.py::test_the_threshold_is_interpolated_over_trained_tokens"),
        ("algo/entropy_control.py", "loss_mask & (entropy >= threshold)", "loss_mask & (entropy > threshold)", "algo/test_entropy_control.py::test_a_token_at_the_threshold_is_kept"),
        ("algo/surrogate.py", "torch.where(clip_cov_dropped(eligible, uniforms, count=count), 0.0, terms)", "torch.where(clip_cov_dropped(eligible, uniforms, count=count), terms, 0.0)", "algo/test_formula.py::test_the_text_of_a_preset_is_its_loss_and_gradient[clip_cov]"),
    ),
    *_family(
        "critic and GAE",
        ("algo/critic.py", "0.5 * torch.where(clipped_error > error, clipped_error, error)", "0.5 * torch.where(clipped_error < error, clipped_error, error)", "algo/test_critic.py::test_loss_and_gradient_on_paper"),
        ("algo/critic.py", "return 0.5 * torch.where", "return 1.0 * torch.where", "algo/test_critic.py::test_without_a_clip_it_is_half_the_squared_error"),
        ("algo/critic.py", "value.clamp(before - clip, before + clip)", "value.clamp(before, before + clip)", "algo/test_critic.py::test_the_clip_acts_in_both_directions"),
        ("algo/critic.py", "target, before = returns.detach()", "target, before = returns", "algo/test_critic.py::test_targets_carry_no_gradient_and_half_precision_is_left"),
        ("algo/critic.py", "(clipped_error > error)[mask]", "(clipped_error > error)", "algo/test_critic.py::test_the_clip_fraction_sees_valid_tokens_only"),
        ("algo/critic.py", "(target - said).var(correction=0)", "(target - said).square().mean()", "algo/test_critic.py::test_what_the_explained_variance_tells_apart"),
        ("algo/credit.py", "delta + gamma * lam * next_advantage", "delta + lam * next_advantage", "algo/test_credit.py::test_gamma_discounts_the_next_value_and_the_next_advantage"),
        ("algo/credit.py", "rewards[:, t] + gamma * next_value - values[:, t]", "rewards[:, t] + gamma * values[:, t] - next_value", "algo/test_credit.py::test_two_sequences_on_paper"),
        ("algo/credit.py", "next_value = torch.where(mask[:, t], values[:, t], next_value)", "next_value = values[:, t]", "algo/test_credit.py::test_skipped_positions_are_as_if_they_were_not_there"),
        ("algo/credit.py", "return TokenCredit(advantages, targets + known)", "return TokenCredit(advantages, advantages + known)", "algo/test_credit.py::test_length_adaptive_credit_on_paper"),
        ("algo/estimate.py", "lam=lam, target_lam=1.0)", "lam=lam)", "algo/test_estimate.py::test_gae_on_paper"),
    ),
    *_family(
        "preference",
        ("algo/preference.py", "return (gap - 1 / (2 * settings.beta)).square()", "return (gap - 1 / settings.beta).square()", "algo/test_preference.py::test_golden_numbers"),
        ("algo/preference.py", "return (1 - settings.beta * gap).clamp(min=0)", "return 1 - settings.beta * gap", "algo/test_preference.py::test_the_hinge_is_flat_once_the_margin_is_one"),
        ("algo/preference.py", "logit, smoothing = settings.beta * gap - settings.gamma", "logit, smoothing = settings.beta * gap + settings.gamma", "algo/test_preference.py::test_golden_numbers"),
        ("algo/preference.py", "-(1 - smoothing) * logsigmoid(logit) - smoothing * logsigmoid(-logit)", "-(1 - smoothing) * logsigmoid(logit) + smoothing * logsigmoid(logit)", "algo/test_preference.py::test_golden_numbers"),
        ("algo/preference.py", "scored[0] / len_chosen - scored[1] / len_rejected", "scored[0] / len_rejected - scored[1] / len_chosen", "algo/test_preference.py::test_golden_numbers"),
        ("algo/preference.py", "scored = (up_change, down_change) if settings.needs_reference else (up, down)", "scored = (up, down)", "algo/test_preference.py::test_policy_and_reference_that_move_together_change_nothing"),
        ("algo/preference.py", "loss = -logsigmoid(up - down - wanted).mean()", "loss = -logsigmoid(up - down + wanted).mean()", "algo/test_preference.py::test_reward_model_margin_and_centre"),
        ("algo/preference.py", "center * (up + down).square().mean()", "center * (up - down).square().mean()", "algo/test_preference.py::test_reward_model_margin_and_centre"),
        ("algo/preference.py", "accuracy=(up > down)", "accuracy=(up >= down)", "algo/test_preference.py::test_a_tie_is_not_ranked_right"),
        ("algo/preference.py", "else scored[0] - scored[1]", "else scored[1] - scored[0]", "algo/test_preference.py::test_golden_numbers"),
    ),
    *_family(
        "supervised and RAFT",
        ("algo/selection.py", "valid & (values >= threshold)", "valid & (values > threshold)", "algo/test_selection.py::test_the_rules_on_paper"),
        ("algo/selection.py", "chosen = valid if threshold is None else", "chosen = torch.ones_like(valid) if threshold is None else", "algo/test_selection.py::test_the_rules_on_paper"),
        ("algo/selection.py", "chosen = chosen & ~is_repeat", "chosen = chosen & is_repeat", "algo/test_selection.py::test_the_rules_on_paper"),
        ("algo/selection.py", "best = values.masked_fill(~chosen, -torch.inf).amax", "best = values.masked_fill(~valid, -torch.inf).amin", "algo/test_selection.py::test_the_rules_on_paper"),
        ("algo/selection.py", "chosen = _first(chosen & (values == best), 1)", "chosen = chosen & (values == best)", "algo/test_selection.py::test_the_rules_on_paper"),
        ("algo/selection.py", "(chosen.cumsum(dim=1) <= count)", "(chosen.cumsum(dim=1) < count)", "algo/test_selection.py::test_never_more_than_the_limit_and_never_less_than_possible"),
        ("algo/selection.py", "mask = loss_mask & selected[:, None]", "mask = loss_mask", "algo/test_selection.py::test_the_likelihood_of_the_selected_on_paper"),
        ("algo/selection.py", "return -torch.where(mask, at_least_float32(logprobs), 0.0).sum() / mask.sum().clamp(min=1)", "return -torch.where(mask, at_least_float32(logprobs), 0.0).mean()", "algo/test_selection.py::test_the_likelihood_of_the_selected_on_paper"),
        ("algo/estimate.py", "threshold=settings.threshold,", "threshold=None,", "algo/test_estimate.py::test_each_estimator_is_its_function_with_the_numbers_of_the_settings[raft]"),
        ("learner/minibatch.py", "        lengths[table == 0] = 0\n", "        pass\n", "learner/test_grading.py::test_raft_learns_an_answer_once_a_group"),
    ),
    *_family(
        "correction",
        ("algo/off_policy.py", "difference = at_least_float32(trainer_logprobs.detach()) - at_least_float32(sampler_logprobs.detach())", "difference = at_least_float32(sampler_logprobs.detach()) - at_least_float32(trainer_logprobs.detach())", "algo/test_off_policy.py::test_weights_on_paper"),
        ("algo/off_policy.py", "weights = token.clamp(low, high)", "weights = token.clamp(max=high)", "algo/test_formula.py::test_the_text_alone_is_enough_to_recompute_the_loss"),
        ("algo/off_policy.py", "weights = _inside(token, token, low, high)", "weights = token.clamp(low, high)", "algo/test_off_policy.py::test_weights_on_paper"),
        ("algo/off_policy.py", "weights = _inside(product, product, low, high)", "weights = _inside(token, product, low, high)", "algo/test_off_policy.py::test_weights_on_paper"),
        ("algo/off_policy.py", "(sums / loss_mask.sum(dim=1, keepdim=True).clamp(min=1)).exp()", "(sums / loss_mask.shape[1]).exp()", "algo/test_formula.py::test_the_text_alone_is_enough_to_recompute_the_loss"),
        ("algo/off_policy.py", "weights = _inside(token, geometric, low, high)", "weights = _inside(geometric, geometric, low, high)", "algo/test_off_policy.py::test_weights_on_paper"),
        ("algo/off_policy.py", "~((advantages < 0) & (mean > max_divergence))", "~(mean > max_divergence)", "algo/test_off_policy.py::test_only_bad_completions_that_the_policy_left_are_dropped"),
        ("algo/off_policy.py", "mean = moved / loss_mask.sum(dim=1).clamp(min=1)", "mean = moved / loss_mask.shape[1]", "algo/test_off_policy.py::test_only_bad_completions_that_the_policy_left_are_dropped"),
        ("algo/surrogate.py", "_rows(old), _rows(sampler), _rows(mask)", "_rows(current), _rows(sampler), _rows(mask)", "algo/test_formula.py::test_the_text_of_a_preset_is_its_loss_and_gradient[decoupled_ppo]"),
        ("algo/token_losses.py", "weight.masked_fill(weight > cap, 0.0)", "weight.clamp(max=cap)", "algo/test_losses.py::test_the_decoupled_weight_is_capped"),
    ),
    *_family(
        "estimators of evaluation",
        ("evaluate/estimators.py", "return 1 - comb(num_samples - num_correct, k) / comb(num_samples, k)", "return 1 - (1 - num_correct / num_samples) ** k", "golden/test_estimators.py::test_pass_at_k_and_pass_hat_k_are_means_over_all_subsets"),
        ("evaluate/estimators.py", "return comb(num_correct, k) / comb(num_samples, k)", "return (num_correct / num_samples) ** k", "golden/test_estimators.py::test_pass_at_k_and_pass_hat_k_are_means_over_all_subsets"),
        ("evaluate/estimators.py", "comb(votes[gold], won) * ways, 1 + ties)", "comb(votes[gold], won) * ways, 1)", "golden/test_estimators.py::test_a_majority_vote_is_the_mean_over_all_subsets"),
        ("evaluate/estimators.py", "silent = len(answers) - votes.total()", "silent = 0", "golden/test_estimators.py::test_a_majority_vote_is_the_mean_over_all_subsets"),
        ("evaluate/estimators.py", "for score in sorted(set(scores)):", "for score in sorted(set(scores), reverse=True):", "golden/test_estimators.py::test_best_of_n_is_the_mean_over_all_subsets"),
        ("evaluate/estimators.py", "return float(means.std(ddof=1) / sqrt(len(means)))", "return float(means.std() / sqrt(len(means)))", "golden/test_estimators.py::test_averages_and_errors_on_paper"),
        ("evaluate/estimators.py", "return float(_prompt_means(correct).mean())", "return float(np.concatenate([np.asarray(row, dtype=float) for row in correct]).mean())", "golden/test_estimators.py::test_rows_of_different_lengths_weigh_the_same"),
        ("evaluate/estimators.py", "tail = (1 + level) / 2", "tail = level", "golden/test_estimators.py::test_the_t_quantile_is_wider_and_limits_stay_inside"),
        ("evaluate/estimators.py", "if abs(total) >= observed)", "if abs(total) > observed)", "golden/test_estimators.py::test_the_sign_flip_test_is_exact"),
        ("evaluate/estimators.py", "2 * float(stats.binom.cdf", "float(stats.binom.cdf", "golden/test_estimators.py::test_a_comparison_on_paper"),
    ),
]
# fmt: on


def mutated(mutant: Mutant, text: str) -> str:
    """Return the file with the change.

    Raises:
        ValueError: the old text does not occur exactly once: the code moved on, renew the table.
    """
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.file}: {mutant.old!r} occurs {text.count(mutant.old)} times, wanted once")
    return text.replace(mutant.old, mutant.new)


def passes(package: Path, *tests: str) -> bool:
    """Run tests with another copy of the package first on the path."""
    environment = os.environ | {"PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        *(f"tests/{test}" for test in tests),
    ]
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if found.returncode not in (0, 1):
        raise RuntimeError(f"{tests} could not be run:\n{found.stdout[-2000:]}{found.stderr[-2000:]}")
    return found.returncode == 0


def is_killed(package: Path, mutant: Mutant) -> bool:
    """Plant a mutant, run its test, and take the mutant out again."""
    path = package / "oncurve" / mutant.file
    original = path.read_text(encoding="utf-8")
    path.write_text(mutated(mutant, original), encoding="utf-8")
    try:
        return not passes(package, mutant.test)
    finally:
        path.write_text(original, encoding="utf-8")


def table(mutants: list[Mutant]) -> str:
    """The page's tables, family by family."""
    lines: list[str] = []
    for family in dict.fromkeys(mutant.family for mutant in mutants):
        lines += [
            "",
            f"## {family[0].upper()}{family[1:]}",
            "",
            "| file | from | to | killed by |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| `{mutant.file}` | {_code(mutant.old)} | {_code(mutant.new)} | `{mutant.test}` |"
            for mutant in mutants
            if mutant.family == family
        ]
    return "\n".join(lines)


def _code(text: str) -> str:
    shown = " ".join(text.split()).replace("|", "\\|")
    return f"`{shown}`" if shown else "(nothing)"


def main() -> int:
    """Run the families named on the command line, or all; 0 when every mutant was killed."""
    wanted = sys.argv[1:]
    chosen = [mutant for mutant in MUTANTS if not wanted or mutant.family in wanted]
    survivors = []
    with TemporaryDirectory() as folder:
        package = Path(folder)
        shutil.copytree(ROOT / "src" / "oncurve", package / "oncurve")
        if not passes(package, *dict.fromkeys(mutant.test for mutant in chosen)):
            print("a named test fails without any mutant: mend that first")
            return 1
        for mutant in chosen:
            killed = is_killed(package, mutant)
            survivors += [] if killed else [mutant]
            print(f"{'killed  ' if killed else 'SURVIVED'} {mutant.family}: {_code(mutant.new)}", flush=True)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} killed")
    if not wanted and not survivors:
        head = PAGE.read_text(encoding="utf-8").partition("\n## ")[0].rstrip()
        PAGE.write_text(f"{head}\n{table(MUTANTS)}\n", encoding="utf-8")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
