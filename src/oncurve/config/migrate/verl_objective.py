"""verl's objective: estimator, policy loss and correction read in our settings.

Source: verl 0.9.1, ``trainer/ppo/core_algos.py``.
"""

from oncurve.config.migrate.ledger import Ledger
from oncurve.config.migrate.verl_kl import read_kl

ALGORITHM, ACTOR = "algorithm.", "actor_rollout_ref.actor."
NO_CLIP = 1e9
"""As clip_high: no ratio reaches it."""

_ESTIMATORS = {
    "gae": "gae",
    "grpo": "group_zscore",
    "grpo_vectorized": "group_zscore",
    "grpo_passk": "top_gap",
    "reinforce_plus_plus": "reinforce_pp",
    "reinforce_plus_plus_baseline": "reinforce_pp_baseline",
    "rloo": "rloo",
    "rloo_vectorized": "rloo",
    "opo": "length_weighted",
    "gpg": "group_mean",
    "gdpo": "gdpo",
}
_WITH_STD = ("group_zscore", "top_gap", "gdpo")
_LOSSES = {
    "vanilla": "clip",
    "clip_cov": "clip",
    "kl_cov": "clip",
    "gspo": "gspo_token",
    "geo_mean": "gmpo",
    "sapo": "sapo",
    "cispo": "cispo",
    "gpg": "reinforce",
}
_AGGREGATIONS = {
    "token-mean": "token-mean",
    "seq-mean-token-mean": "seq-mean-token-mean",
    "seq-mean-token-sum": "seq-mean-token-sum",
    "seq-mean-token-sum-norm": "constant",
}


def read_objective(book: Ledger) -> None:
    """Advantage, loss, KL, entropy, correction and group filter."""
    _groups(book)
    _advantage(book)
    _loss(book)
    read_kl(book)
    _correction(book)
    book.write("objective.entropy_coef", book.number(f"{ACTOR}entropy_coeff"), f"{ACTOR}entropy_coeff")
    if book.number(f"{ACTOR}entropy_coeff") > 0 and book.settings["objective.aggregation"] != "token-mean":
        book.absent(f"{ACTOR}entropy_coeff", "The bonus follows loss_agg_mode there; here it is a mean over tokens.")


def _groups(book: Ledger) -> None:
    keys = [f"{ALGORITHM}filter_groups.{name}" for name in ("enable", "metric", "max_num_gen_batches")]
    if not book.flag(keys[0]):
        book.settings["objective.zero_variance"] = "keep"
        book.remarks["objective.zero_variance"] = "groups whose rewards are all equal stay in the denominators there"
        for key in keys:
            book.same(key, "Groups are not filtered.")
        return
    book.write("objective.zero_variance", "resample", keys[0])
    rounds = book.whole(keys[2], least=0)
    book.write("objective.resample_rounds", min(rounds or 100, 100), keys[2])
    if book.value(keys[1]) in ("acc", "score", "seq_reward", "reward"):
        book.same(keys[1], "The task metric decides, that of the primary reward component.")
    else:
        book.absent(keys[1], "It names the figure that must differ within a group there; here the task metric.")


def _advantage(book: Ledger) -> None:
    key, norm = f"{ALGORITHM}adv_estimator", f"{ALGORITHM}norm_adv_by_std_in_grpo"
    theirs = str(book.value(key))
    ours = _ESTIMATORS.get(theirs)
    if ours is None:
        book.absent(key, _nearest_estimator(theirs))
        ours = "rloo" if theirs == "remax" else "group_mean"
        book.settings["objective.advantage.estimator"] = ours
    elif ours == "group_zscore" and not book.flag(norm):
        ours = "group_mean"
        book.write("objective.advantage.estimator", ours, key, norm)
    else:
        book.write("objective.advantage.estimator", ours, key)
    _scale(book, theirs, ours, norm)
    _details(book, theirs, ours, key)


def _nearest_estimator(theirs: str) -> str:
    if theirs == "remax":
        return (
            "Its baseline is the reward of a greedy answer there; here that of the other completions (rloo) is written."
        )
    return f"The estimator {theirs} is not known here; group_mean is written."


def _scale(book: Ledger, theirs: str, ours: str, norm: str) -> None:
    if ours in _WITH_STD:
        book.settings["objective.advantage.ddof"] = 1
        book.remarks["objective.advantage.ddof"] = "verl takes the sample std"
        if book.flag(norm):
            book.write("objective.advantage.std_eps", 1e-6, norm)
        else:
            book.absent(norm, f"{theirs} is not divided by the std there; here {ours} always is.")
    elif ours != "group_mean":
        book.same(norm, f"It does nothing with {theirs}.")
    if ours in ("gae", "reinforce_pp", "reinforce_pp_baseline"):
        book.settings["objective.advantage.ddof"] = 1
        book.remarks["objective.advantage.ddof"] = "of the whitening"


def _details(book: Ledger, theirs: str, ours: str, key: str) -> None:
    for name in ("gamma", "lam"):
        if ours == "gae" or (ours == "reinforce_pp" and name == "gamma"):
            book.write(f"objective.advantage.{name}", book.number(f"{ALGORITHM}{name}"), f"{ALGORITHM}{name}")
        else:
            book.same(f"{ALGORITHM}{name}", f"It does nothing there either with {theirs}.")
    if ours == "gae":
        book.write("objective.advantage.whiten", True, key)
    if ours in ("gae", "reinforce_pp", "reinforce_pp_baseline") and book.settings["objective.zero_variance"] != "keep":
        book.settings["objective.zero_variance"] = "keep"
        book.absent(
            f"{ALGORITHM}filter_groups.enable", f"Equal groups are left out there; {theirs} learns from them here."
        )
    if theirs == "gpg":
        book.absent(key, "It is scaled by completions / those with a reward there; here, rescale: by those in groups "
                    "that differ, the paper's definition.")  # fmt: skip
        if book.settings["objective.zero_variance"] == "keep":
            book.settings["objective.zero_variance"] = "rescale"
            book.remarks["objective.zero_variance"] = "GPG"
    if theirs == "gdpo":
        book.absent(key, "The sum is whitened over tokens there; here over completions.")
    _components(book, theirs)


def _components(book: Ledger, theirs: str) -> None:
    for name in ("gdpo_reward_keys", "gdpo_reward_weights"):
        if theirs != "gdpo":
            book.same(f"{ALGORITHM}{name}", f"It does nothing there either with {theirs}.")
        elif book.value(f"{ALGORITHM}{name}") is not None:
            book.absent(f"{ALGORITHM}{name}", "It names parts of the reward there; here they are reward.components.")


def _loss(book: Ledger) -> None:
    key = f"{ACTOR}policy_loss.loss_mode"
    mode = str(book.value(key))
    if mode in _LOSSES:
        book.write("objective.loss", _LOSSES[mode], key)
    else:
        book.settings["objective.loss"] = "clip"
        book.absent(key, f"The loss {mode} is not known here; the clipped surrogate is written.")
    _aggregation(book, mode)
    _clip(book, mode)
    _cov(book, mode)
    for name, setting in (("tau_pos", "tau_positive"), ("tau_neg", "tau_negative")):
        if mode == "sapo":
            book.write(f"objective.sapo.{setting}", book.number(ACTOR + name), ACTOR + name)
        else:
            book.same(ACTOR + name, f"It does nothing there either with {mode}.")


def _aggregation(book: Ledger, mode: str) -> None:
    key, scale, old = f"{ACTOR}loss_agg_mode", f"{ACTOR}loss_scale_factor", f"{ACTOR}use_token_level_loss"
    theirs = str(book.value(key))
    if book.value(old) is not None and not book.is_given(key):
        key, theirs = old, "token-mean" if book.flag(old) else "seq-mean-token-mean"
    elif book.value(old) is not None:
        book.same(old, "loss_agg_mode has taken its place.")
    if theirs not in (*_AGGREGATIONS, "token-sum"):
        raise book.error(key, f"must be one of {', '.join(_AGGREGATIONS)}, token-sum")
    if mode in ("sapo", "geo_mean"):
        book.settings["objective.aggregation"] = "seq-mean-token-mean"
        book.remarks["objective.aggregation"] = f"{mode} takes no other there"
        book.same(key, f"It does nothing there either with {mode}.")
    elif mode == "gspo" and theirs != "seq-mean-token-mean":
        _summed_gspo(book, theirs, key)
    elif theirs == "token-sum":
        book.settings["objective.aggregation"] = "token-mean"
        book.absent(
            key, "Token losses are added up there; here their mean is written, smaller by the number of tokens."
        )
    else:
        book.write("objective.aggregation", _AGGREGATIONS[theirs], key)
    limit = book.settings["rollout.sampling.max_tokens"]
    if book.value(scale) is not None and theirs == "seq-mean-token-sum-norm" and book.value(scale) != limit:
        book.absent(scale, f"It divides the sum there; here max_tokens = {limit} does: a constant factor.")
    else:
        book.same(scale, "The sum is divided by the longest completion allowed.")


def _summed_gspo(book: Ledger, theirs: str, key: str) -> None:
    """The same term on every token of a completion, added up: LUSPO, up to a factor that all tokens share."""
    book.write("objective.loss", "luspo", f"{ACTOR}policy_loss.loss_mode", key)
    book.write("objective.aggregation", "seq-mean-token-sum", key)
    if theirs != "seq-mean-token-sum":
        book.absent(
            key,
            f"GSPO terms are summed over tokens by {theirs} there; here by seq-mean-token-sum, which is LUSPO: the "
            "same up to a factor of all tokens, which AdamW takes out again and the bound of the gradient does not.",
        )


def _clip(book: Ledger, mode: str) -> None:
    keys = {name: f"{ACTOR}clip_ratio{name}" for name in ("", "_low", "_high", "_c")}
    low_key = keys[""] if book.value(keys["_low"]) is None else keys["_low"]
    high_key = keys[""] if book.value(keys["_high"]) is None else keys["_high"]
    low, high = book.number(low_key), book.number(high_key)
    if mode == "kl_cov":
        book.settings["objective.clip_low"], book.settings["objective.clip_high"] = 1.0, NO_CLIP
        book.remarks["objective.clip_high"] = "kl_cov does not clip there"
    elif mode == "cispo":
        book.write("objective.cispo.ratio_min", max(0.0, 1 - low), low_key)
        book.write("objective.cispo.ratio_max", 1 + high, high_key)
    elif mode not in ("sapo", "gpg"):
        book.write("objective.clip_low", low, low_key)
        book.write("objective.clip_high", high, high_key)
    if book.settings["objective.loss"] == "clip" and mode not in ("kl_cov", "clip_cov"):
        book.write("objective.dual_clip", book.number(keys["_c"]), keys["_c"])
    for key in keys.values():
        if key in (low_key, high_key) and mode not in ("kl_cov", "sapo", "gpg"):
            continue
        if key == keys["_c"] and "objective.dual_clip" in book.settings:
            continue
        why = "clip_ratio_low and clip_ratio_high win" if key == keys[""] else f"it does nothing with {mode}"
        book.same(key, f"There, too, {why}.")


def _cov(book: Ledger, mode: str) -> None:
    group = f"{ACTOR}policy_loss."
    ours = {
        "clip_cov_ratio": ("clip_cov", "frac"),
        "clip_cov_lb": ("clip_cov", "low"),
        "clip_cov_ub": ("clip_cov", "high"),
        "kl_cov_ratio": ("kl_cov", "frac"),
        "ppo_kl_coef": ("kl_cov", "coef"),
    }
    if mode in ("clip_cov", "kl_cov"):
        book.write("objective.token_filter.mode", mode, f"{group}loss_mode")
    for name, (owner, setting) in ours.items():
        if mode == owner:
            book.write(f"objective.token_filter.{setting}", book.number(group + name), group + name)
        else:
            book.same(group + name, f"It does nothing there either with {mode}.")


def _correction(book: Ledger) -> None:
    group, cap = f"{ALGORITHM}rollout_correction.", f"{ACTOR}tis_imp_ratio_cap"
    is_bypass = book.flag(f"{group}bypass_mode")
    book.write("learner.old_logprobs", "sampler" if is_bypass else "recompute", f"{group}bypass_mode")
    level = book.value(f"{group}rollout_is")
    if is_bypass and (level or book.value(cap)):
        key = f"{group}rollout_is" if level else cap
        book.absent(key, "With bypass_mode the ratio holds the mismatch already; here no weight is added.")
    elif level is None and book.value(cap) is not None and book.number(cap) > 0:
        book.write("objective.correction.mode", "token_truncate", cap)
        book.write("objective.correction.high", book.number(cap), cap)
    elif level is not None:
        _weights(book, group)
    else:
        book.same(f"{group}rollout_is", "Nothing is weighed.")
        book.same(f"{group}rollout_is_threshold", "Nothing is weighed.")
    for name, off in (("rollout_rs", None), ("rollout_is_batch_normalize", False), ("loss_type", "ppo_clip")):
        if book.value(group + name) == off:
            book.same(group + name, "It is off, as here.")
        else:
            book.absent(group + name, "It rejects, rescales or replaces terms there; here objective.correction is all.")
    threshold = f"{group}rollout_rs_threshold"
    if book.value(threshold) is not None:
        book.absent(threshold, "It bounds what rollout_rs rejects there; here nothing is rejected by it.")


def _weights(book: Ledger, group: str) -> None:
    level = book.choice(f"{group}rollout_is", ("token", "sequence"))
    threshold = book.value(f"{group}rollout_is_threshold")
    low, _, high = threshold.rpartition("_") if isinstance(threshold, str) else ("", "", threshold)
    try:
        bounds = float(low or 0.0), float(high)
    except (TypeError, ValueError):
        raise book.error(f"{group}rollout_is_threshold", 'must be a number, or two as "0.5_5.0"') from None
    mode = ("token_" if level == "token" else "seq_") + ("mask" if low else "truncate")
    book.write("objective.correction.mode", mode, f"{group}rollout_is")
    book.write("objective.correction.low", bounds[0], f"{group}rollout_is_threshold")
    book.write("objective.correction.high", bounds[1], f"{group}rollout_is_threshold")
