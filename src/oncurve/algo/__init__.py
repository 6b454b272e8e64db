"""Pure mathematics of the trainer: tensors in, tensors out. No files, clocks, logging or random state."""

from oncurve.algo.advantage import group_advantages, informative_scale, is_zero_variance
from oncurve.algo.advantage_settings import AdvantageSettings, DifficultySettings
from oncurve.algo.aggregation import Aggregation, sequence_weights, token_weights
from oncurve.algo.batch_baselines import (
    batch_loo_advantages,
    batch_std_advantages,
    gdpo_advantages,
    shrink_advantages,
)
from oncurve.algo.batch_stats import (
    GroupStats,
    LengthStats,
    Staleness,
    group_stats,
    length_stats,
    staleness,
)
from oncurve.algo.clipping import MAX_LOG_RATIO, clipped_surrogate, importance_ratio
from oncurve.algo.credit import TokenCredit, generalized_advantages, length_adaptive_lambda
from oncurve.algo.critic import clipped_value_loss, explained_variance, value_clip_fraction
from oncurve.algo.entropy_control import (
    EntropyCoef,
    adapted_entropy_coef,
    clip_cov_dropped,
    clip_cov_eligible,
    entropy_threshold,
    kl_cov_loss,
    kl_cov_tokens,
    num_controlled,
    token_covariance,
    top_entropy_mask,
)
from oncurve.algo.estimate import GradedRewards, estimate_advantages, finish_advantages, token_advantages
from oncurve.algo.formula import Formula, describe_objective
from oncurve.algo.formula_critic import describe_critic
from oncurve.algo.formula_offline import describe_preference, describe_supervised
from oncurve.algo.group_variants import (
    difficulty_advantages,
    length_weighted_advantages,
    maxrl_advantages,
    ngrpo_advantages,
)
from oncurve.algo.kl import (
    KlEstimator,
    KlPlacement,
    adapted_kl_coef,
    exact_kl,
    importance_weighted_kl,
    kl_estimate,
    kl_token_rewards,
    rewards_to_go,
)
from oncurve.algo.logits import entropy_from_logits, token_logprobs_from_logits
from oncurve.algo.masks import CompletionMask, completion_mask
from oncurve.algo.monitor import ClipFractions, LogprobGap, RatioStats, clip_fractions, logprob_gap, ratio_stats
from oncurve.algo.objective import LossTerms, policy_loss
from oncurve.algo.objective_settings import CLIPPED, ObjectiveSettings
from oncurve.algo.off_policy import WeightMode, importance_weights, off_policy_keep
from oncurve.algo.pass_at_k import passk_advantages, pkpo_advantages, top_gap_advantages
from oncurve.algo.preference import (
    PreferenceSettings,
    PreferenceTerms,
    PreferenceVariant,
    RewardModelTerms,
    preference_loss,
    reward_model_loss,
)
from oncurve.algo.presets import PRESETS, Preset
from oncurve.algo.reinforce_pp import reinforce_pp_advantages, reinforce_pp_baseline_advantages
from oncurve.algo.running_baselines import KalmanAdvantages, RunningBaseline, kalman_advantages
from oncurve.algo.selection import mean_nll, raft_selection
from oncurve.algo.sequence_losses import completion_ratio, gmpo_loss, gspo_loss, gspo_token_loss, topr_loss, vespo_loss
from oncurve.algo.token_losses import cispo_loss, decoupled_loss, reinforce_loss, sapo_loss
from oncurve.algo.whiten import whiten

__all__ = [
    "CLIPPED",
    "MAX_LOG_RATIO",
    "PRESETS",
    "AdvantageSettings",
    "Aggregation",
    "ClipFractions",
    "CompletionMask",
    "DifficultySettings",
    "EntropyCoef",
    "Formula",
    "GradedRewards",
    "GroupStats",
    "KalmanAdvantages",
    "KlEstimator",
    "KlPlacement",
    "LengthStats",
    "LogprobGap",
    "LossTerms",
    "ObjectiveSettings",
    "PreferenceSettings",
    "PreferenceTerms",
    "PreferenceVariant",
    "Preset",
    "RatioStats",
    "RewardModelTerms",
    "RunningBaseline",
    "Staleness",
    "TokenCredit",
    "WeightMode",
    "adapted_entropy_coef",
    "adapted_kl_coef",
    "batch_loo_advantages",
    "batch_std_advantages",
    "cispo_loss",
    "clip_cov_dropped",
    "clip_cov_eligible",
    "clip_fractions",
    "clipped_surrogate",
    "clipped_value_loss",
    "completion_mask",
    "completion_ratio",
    "decoupled_loss",
    "describe_critic",
    "describe_objective",
    "describe_preference",
    "describe_supervised",
    "difficulty_advantages",
    "entropy_from_logits",
    "entropy_threshold",
    "estimate_advantages",
    "exact_kl",
    "explained_variance",
    "finish_advantages",
    "gdpo_advantages",
    "generalized_advantages",
    "gmpo_loss",
    "group_advantages",
    "group_stats",
    "gspo_loss",
    "gspo_token_loss",
    "importance_ratio",
    "importance_weighted_kl",
    "importance_weights",
    "informative_scale",
    "is_zero_variance",
    "kalman_advantages",
    "kl_cov_loss",
    "kl_cov_tokens",
    "kl_estimate",
    "kl_token_rewards",
    "length_adaptive_lambda",
    "length_stats",
    "length_weighted_advantages",
    "logprob_gap",
    "maxrl_advantages",
    "mean_nll",
    "ngrpo_advantages",
    "num_controlled",
    "off_policy_keep",
    "passk_advantages",
    "pkpo_advantages",
    "policy_loss",
    "preference_loss",
    "raft_selection",
    "ratio_stats",
    "reinforce_loss",
    "reinforce_pp_advantages",
    "reinforce_pp_baseline_advantages",
    "reward_model_loss",
    "rewards_to_go",
    "sapo_loss",
    "sequence_weights",
    "shrink_advantages",
    "staleness",
    "token_advantages",
    "token_covariance",
    "token_logprobs_from_logits",
    "token_weights",
    "top_entropy_mask",
    "top_gap_advantages",
    "topr_loss",
    "value_clip_fraction",
    "vespo_loss",
    "whiten",
]
