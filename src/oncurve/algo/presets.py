"""Names that people know, each a documented set of objective settings.

A preset stands under what the user sets: ``[objective] preset = "dapo"`` and one more line changes that one thing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from oncurve.types import did_you_mean


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A set of objective settings under a known name."""

    settings: Mapping[str, Any]
    """What differs from the defaults of ``ObjectiveSettings``."""
    source: str
    differs: str = ""
    """What the source does and these settings do not say; empty when they say it all."""


def _zscore(ddof: int = 1, std_eps: float = 1e-6) -> dict[str, Any]:
    return {"estimator": "group_zscore", "ddof": ddof, "std_eps": std_eps}


def _estimator(name: str, **numbers: Any) -> dict[str, Any]:
    return {"estimator": name, **numbers}


def _preset(source: str, differs: str = "", **settings: Any) -> Preset:
    return Preset(settings=MappingProxyType(settings), source=source, differs=differs)


_PAPERS = {
    "grpo": _preset(
        "DeepSeekMath, arXiv:2402.03300",
        "The paper states neither the kind of std nor its eps.",
        advantage=_zscore(),
        kl_coef=0.04,
        zero_variance="keep",
    ),
    "dr_grpo": _preset(
        "arXiv:2503.20783", advantage=_estimator("group_mean"), aggregation="constant", zero_variance="keep"
    ),
    "dapo": _preset(
        "arXiv:2503.14476",
        "The paper writes a mean over prompts, its code takes one over all tokens, as here. Its overlong punishment "
        "is a "
        "reward: reward.length. Generates 3 times the prompts at once where this resamples what is missing.",
        advantage=_zscore(),
        clip_high=0.28,
        aggregation="token-mean",
        zero_variance="resample",
        resample_rounds=10,
    ),
    "gspo": _preset(
        "arXiv:2507.18071", loss="gspo", advantage=_zscore(), clip_low=3e-4, clip_high=4e-4, zero_variance="keep"
    ),
    "gspo_token": _preset(
        "arXiv:2507.18071, section 4.3",
        loss="gspo_token",
        advantage=_zscore(),
        clip_low=3e-4,
        clip_high=4e-4,
        zero_variance="keep",
    ),
    "luspo": _preset(
        "arXiv:2602.05261",
        loss="luspo",
        advantage=_zscore(),
        clip_low=2e-3,
        clip_high=2.5e-3,
        aggregation="seq-mean-token-sum",
        zero_variance="keep",
    ),
    "gmpo": _preset(
        "arXiv:2507.20673", loss="gmpo", advantage=_zscore(), clip_low=0.4, clip_high=0.4, zero_variance="keep"
    ),
    "cispo": _preset(
        "MiniMax-M1, arXiv:2506.13585",
        "The paper tunes the upper bound and does not state it; 5 is that of ScaleRL.",
        loss="cispo",
        advantage=_zscore(),
        aggregation="token-mean",
        zero_variance="keep",
    ),
    "scale_rl": _preset(
        "arXiv:2510.13786",
        "Retires prompts with a pass rate of 0.9 and more: tasks.curriculum.",
        loss="cispo",
        advantage=_estimator("batch_std", ddof=1),
        aggregation="prompt-mean",
    ),
    "sapo": _preset("arXiv:2511.20347", loss="sapo", advantage=_zscore(), zero_variance="keep"),
    "vespo": _preset(
        "arXiv:2602.10693", loss="vespo", advantage=_zscore(), aggregation="token-mean", zero_variance="keep"
    ),
    "topr": _preset(
        "arXiv:2503.14286",
        loss="topr",
        advantage=_estimator("group_mean"),
        aggregation="seq-mean-token-sum",
        zero_variance="keep",
    ),
    "gpg": _preset(
        "arXiv:2504.02546",
        loss="reinforce",
        advantage=_estimator("group_mean"),
        aggregation="token-mean",
        zero_variance="rescale",
    ),
    "rloo": _preset(
        "arXiv:2402.14740",
        loss="reinforce",
        advantage=_estimator("rloo"),
        aggregation="seq-mean-token-sum",
        kl_coef=0.05,
        kl_estimator="k1",
        kl_placement="reward",
        zero_variance="keep",
    ),
    "reinforce": _preset(
        "Williams 1992, doi:10.1007/BF00992696; baseline: the mean of all other completions",
        loss="reinforce",
        advantage=_estimator("batch_loo"),
        aggregation="seq-mean-token-sum",
        zero_variance="keep",
    ),
    "reinforce_pp": _preset(
        "arXiv:2501.03262",
        advantage=_estimator("reinforce_pp"),
        aggregation="token-mean",
        kl_coef=0.01,
        kl_estimator="k1",
        kl_placement="reward",
        zero_variance="keep",
    ),
    "reinforce_pp_baseline": _preset(
        "arXiv:2501.03262",
        advantage=_estimator("reinforce_pp_baseline"),
        aggregation="token-mean",
        kl_coef=0.01,
        kl_estimator="k2",
        zero_variance="keep",
    ),
    "opo": _preset(
        "arXiv:2505.23585",
        loss="reinforce",
        advantage=_estimator("length_weighted"),
        aggregation="token-mean",
        zero_variance="keep",
    ),
    "lite_ppo": _preset(
        "arXiv:2508.08221",
        advantage=_estimator("batch_std", ddof=1),
        aggregation="token-mean",
        zero_variance="keep",
    ),
    "maxrl": _preset("arXiv:2602.02710", advantage=_estimator("maxrl"), aggregation="token-mean", zero_variance="keep"),
    "ngrpo": _preset(
        "arXiv:2509.18851",
        advantage=_estimator("ngrpo", ddof=1),
        clip_low=0.16,
        clip_high=0.24,
        aggregation="token-mean",
        zero_variance="keep",
    ),
    "pass_at_k": _preset(
        "arXiv:2508.10751", advantage=_estimator("pass_at_k"), aggregation="token-mean", zero_variance="keep"
    ),
    "pkpo": _preset(
        "arXiv:2505.15201",
        "The paper sums over the completions of a prompt where this takes their mean: a factor of the group size.",
        loss="reinforce",
        advantage=_estimator("pkpo"),
        aggregation="seq-mean-token-sum",
        zero_variance="keep",
    ),
    "gdpo": _preset(
        "arXiv:2601.05242",
        advantage=_estimator("gdpo", ddof=1, std_eps=1e-4),
        aggregation="token-mean",
        zero_variance="keep",
    ),
    "grpo_lead": _preset(
        "arXiv:2504.09696",
        "Its length reward among right answers is a reward: reward.length.",
        advantage=_estimator("difficulty", ddof=1),
        zero_variance="keep",
    ),
    "entropy_tokens": _preset(
        "arXiv:2506.01939",
        advantage=_zscore(),
        clip_high=0.28,
        aggregation="token-mean",
        token_filter={"mode": "high_entropy", "frac": 0.2},
    ),
    "clip_cov": _preset(
        "arXiv:2505.22617",
        advantage=_zscore(),
        aggregation="token-mean",
        token_filter={"mode": "clip_cov", "frac": 2e-4},
    ),
    "kl_cov": _preset(
        "arXiv:2505.22617",
        "The paper's code weighs the penalty by 1, its configuration says 0.1.",
        advantage=_zscore(),
        aggregation="token-mean",
        token_filter={"mode": "kl_cov", "frac": 2e-4},
    ),
    "decoupled_ppo": _preset(
        "arXiv:2110.00641; AReaL, arXiv:2505.24298",
        advantage=_zscore(),
        aggregation="token-mean",
        correction={"mode": "token_mask", "high": 5.0},
        zero_variance="keep",
    ),
    "deepseek_v32": _preset(
        "arXiv:2512.02556",
        advantage=_estimator("group_mean"),
        kl_coef=0.001,
        kl_estimator="k3_weighted",
        max_divergence=0.5,
        zero_variance="keep",
    ),
    "ppo": _preset(
        "arXiv:1707.06347, arXiv:1506.02438",
        "The critic has its own settings: critic.",
        advantage=_estimator("gae", whiten=True),
        aggregation="token-mean",
        zero_variance="keep",
    ),
    "vapo": _preset(
        "arXiv:2504.05118",
        "Also adds the likelihood of right completions with weight 0.1, which is left out here.",
        advantage=_estimator("gae", lam_alpha=0.05, whiten=True),
        clip_high=0.28,
        aggregation="token-mean",
        zero_variance="keep",
    ),
    "raft": _preset(
        "arXiv:2304.06767, arXiv:2308.01825",
        loss="reinforce",
        advantage=_estimator("raft"),
        aggregation="token-mean",
        zero_variance="keep",
    ),
}

_TRAINERS = {
    "trl": _preset(
        "TRL 1.16, defaults of GRPOConfig",
        advantage=_zscore(std_eps=1e-4),
        aggregation="token-mean",
        correction={"mode": "seq_mask", "high": 3.0},
        kl_estimator="k3_weighted",
        zero_variance="keep",
    ),
    "verl": _preset(
        "verl at b178a3cd (2026-01), adv_estimator grpo",
        "The log-prob of the KL is clamped to 20 and k3 to 10 there.",
        advantage=_zscore(),
        aggregation="token-mean",
        dual_clip=3.0,
        zero_variance="keep",
    ),
    "openrlhf": _preset(
        "OpenRLHF at 3c3be623 (2026-08), group_norm",
        "There the KL is subtracted a token at a time after the group is normalised; here before, so all-equal groups "
        "are skipped.",
        advantage=_zscore(std_eps=1e-9),
        aggregation="token-mean",
        kl_coef=0.01,
        kl_estimator="k1",
        kl_placement="reward",
        zero_variance="skip",
    ),
    "nemo_rl": _preset(
        "NeMo RL at 7ea279ab (2026-08)",
        "There the std, too, is that of the other completions of the group; no std is divided by here. Its KL is k3 "
        "times exp(l - stop_gradient(l)), which is k3_weighted on data of the policy itself.",
        advantage=_estimator("rloo"),
        aggregation="token-mean",
        kl_coef=0.01,
        kl_estimator="k3_weighted",
        zero_variance="keep",
    ),
    "areal": _preset(
        "AReaL at 4aef98d8 (2026-05), its example configurations",
        "There 1e-5 is added to the variance of the tokens; here the variance is at least 1e-8.",
        advantage=_estimator("reinforce_pp", ddof=1),
        aggregation="token-mean",
        kl_coef=0.1,
        kl_estimator="k1",
        kl_placement="reward",
        zero_variance="keep",
    ),
    "prime_rl": _preset(
        "prime-rl at 004274ec (2026), docs/algorithms.md",
        "There a token is left out where its probability, not its ratio, has moved by more than 0.2 the way its "
        "advantage pushes; the ratio is to the sampler's own log-probs; and 0.001 times the squared log-ratio of every "
        "token is added. Rollouts of repetitive or improbable text are left out before.",
        advantage=_estimator("group_mean"),
        aggregation="token-mean",
    ),
    "slime": _preset(
        "slime at 624b824a (2026-08)",
        advantage=_zscore(),
        zero_variance="keep",
    ),
}

PRESETS: Mapping[str, Preset] = MappingProxyType(_PAPERS | _TRAINERS)


def preset_settings(name: str) -> dict[str, Any]:
    """The objective settings of a preset, as plain data.

    Raises:
        ValueError: no preset has that name.
    """
    if name not in PRESETS:
        raise ValueError(
            f"there is no preset {name!r}.{did_you_mean(name, PRESETS)} Known: {', '.join(sorted(PRESETS))}."
        )
    return dict(PRESETS[name].settings)
