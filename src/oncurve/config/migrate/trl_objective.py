"""TRL's objective: how its loss types, ratios, scales and corrections read in our settings.

Source: TRL 1.16, ``GRPOTrainer``: ``_compute_loss`` and ``_generate_and_score_completions``.
"""

from oncurve.config.migrate.ledger import Ledger

CLIPPED = ("grpo", "dapo", "bnpo", "dr_grpo", "luspo")
LOSS_TYPES = (*CLIPPED, "cispo", "sapo", "vespo")
NO_LIMIT = 1e9
"""Above every weight that a clamped log-ratio allows (e^20), so it bounds nothing."""

_AGGREGATIONS = {
    "grpo": "seq-mean-token-mean",
    "sapo": "seq-mean-token-mean",
    "dapo": "token-mean",
    "bnpo": "token-mean",
    "cispo": "token-mean",
    "vespo": "token-mean",
    "dr_grpo": "constant",
    "luspo": "seq-mean-token-sum",
}
_IS_MODES = {
    "token_truncate": "token_truncate",
    "token_mask": "token_mask",
    "sequence_truncate": "seq_truncate",
    "sequence_mask": "seq_mask",
}


def read_objective(book: Ledger) -> None:
    """Loss, advantage, correction, KL, entropy and token filter."""
    _loss(book)
    _advantage(book)
    _correction(book)
    _kl(book)
    _entropy(book)
    _filters(book)
    book.settings["objective.zero_variance"] = "keep"
    book.remarks["objective.zero_variance"] = "groups whose rewards are all equal stay in TRL's denominators"


def _loss(book: Ledger) -> None:
    kind = book.choice("loss_type", LOSS_TYPES)
    level = book.choice("importance_sampling_level", ("token", "sequence"))
    if level == "sequence" and kind in CLIPPED:
        _sequence_loss(book, kind)
    else:
        _token_loss(book, kind, level)
    _clip(book, kind)
    _soft_weights(book, kind)


def _token_loss(book: Ledger, kind: str, level: str) -> None:
    loss = kind if kind in ("cispo", "sapo", "vespo") else "clip"
    book.write("objective.loss", loss, "loss_type")
    if kind == "bnpo" and book.whole("per_device_train_batch_size") == 1:
        book.write("objective.aggregation", "seq-mean-token-mean", "loss_type", "per_device_train_batch_size")
    else:
        book.write("objective.aggregation", _AGGREGATIONS[kind], "loss_type")
    if kind == "bnpo" and book.whole("per_device_train_batch_size") > 1:
        book.absent("loss_type", "bnpo takes the token mean of each micro-batch; here it is that of the whole step.")
    if level == "token" or kind == "vespo":
        why = "VESPO has a ratio of its own for the completion." if kind == "vespo" else "A ratio for each token."
        book.same("importance_sampling_level", why)
    else:
        book.absent(
            "importance_sampling_level",
            f"With {kind} it weighs a completion by one ratio there; here {kind} has a ratio for each token.",
        )


def _sequence_loss(book: Ledger, kind: str) -> None:
    """GSPO, in its own aggregation; summed over tokens it is LUSPO up to a factor that all tokens share."""
    is_mean = kind == "grpo" or (kind == "bnpo" and book.whole("per_device_train_batch_size") == 1)
    book.write("objective.loss", "gspo" if is_mean else "luspo", "loss_type", "importance_sampling_level")
    book.write("objective.aggregation", "seq-mean-token-mean" if is_mean else "seq-mean-token-sum", "loss_type")
    if kind == "dr_grpo":
        book.absent(
            "loss_type", "The sum is divided by max_completion_length there; here it is not: a constant factor."
        )
    elif not is_mean and kind != "luspo":
        book.absent(
            "loss_type",
            "The sum over tokens is divided by all tokens there, by completions here: longer by the mean length, a "
            "factor that AdamW takes out again and max_grad_norm does not.",
        )


def _clip(book: Ledger, kind: str) -> None:
    high_key = "epsilon" if book.value("epsilon_high") is None else "epsilon_high"
    high = book.number(high_key)
    if kind in CLIPPED:
        book.write("objective.clip_low", book.number("epsilon"), "epsilon")
        book.write("objective.clip_high", high, high_key)
    elif kind == "cispo":
        book.write("objective.cispo.ratio_max", high, high_key, note="With cispo it is the largest weight itself.")
        book.write("objective.cispo.ratio_min", 0.0, "loss_type")
    for key in ("epsilon", "epsilon_high"):
        if book.is_given(key) and not (kind in CLIPPED or (kind == "cispo" and key == high_key)):
            book.same(key, f"It does nothing there either with loss_type {kind}.")
    _cap(book, kind, high)


def _cap(book: Ledger, kind: str, high: float) -> None:
    if book.value("delta") is None:
        return
    cap = book.number("delta")
    if kind not in CLIPPED:
        book.same("delta", f"It does nothing there either with loss_type {kind}.")
    elif book.settings["objective.loss"] != "clip":
        book.absent("delta", "It caps the ratio of the completion there; here only token ratios can be capped.")
    elif cap <= 1 + high:
        book.absent("delta", "It lies inside the clip and changes the loss below it there; here a cap lies above.")
    else:
        book.write("objective.ratio_cap", cap, "delta")


def _soft_weights(book: Ledger, kind: str) -> None:
    ours = {
        "sapo_temperature_pos": "sapo.tau_positive",
        "sapo_temperature_neg": "sapo.tau_negative",
        "vespo_k_pos": "vespo.power_positive",
        "vespo_lambda_pos": "vespo.rate_positive",
        "vespo_k_neg": "vespo.power_negative",
        "vespo_lambda_neg": "vespo.rate_negative",
    }
    for key, setting in ours.items():
        if setting.startswith(f"{kind}."):
            book.write(f"objective.{setting}", book.number(key), key)
        elif book.is_given(key):
            book.same(key, f"It does nothing there either with loss_type {kind}.")


def _advantage(book: Ledger) -> None:
    spelled = {True: "group", False: "none", "true": "group", "false": "none"}
    given = book.value("scale_rewards")
    scale = spelled.get(given.lower() if isinstance(given, str) else given, given)
    if scale not in ("group", "batch", "none"):
        raise book.error("scale_rewards", "must be group, batch, none, true or false")
    how = book.choice("multi_objective_aggregation", ("sum_then_normalize", "normalize_then_sum"))
    if how == "normalize_then_sum":
        estimator, keys = "gdpo", ["multi_objective_aggregation"]
        if book.is_given("scale_rewards"):
            book.same("scale_rewards", "It does nothing there either with normalize_then_sum.")
    else:
        estimator = {"group": "group_zscore", "batch": "batch_std", "none": "group_mean"}[scale]
        keys = ["scale_rewards", "multi_objective_aggregation"]
    book.write("objective.advantage.estimator", estimator, *keys)
    if estimator == "group_mean":
        return
    book.settings["objective.advantage.ddof"] = 1
    book.settings["objective.advantage.std_eps"] = 1e-4
    book.remarks["objective.advantage.ddof"] = "TRL takes the sample std"
    book.remarks["objective.advantage.std_eps"] = "fixed in TRL"


def _correction(book: Ledger) -> None:
    """TRL's ratio is between two passes of the trainer; the sampler comes in by a weight, with vLLM only."""
    book.settings["learner.old_logprobs"] = "recompute"
    book.remarks["learner.old_logprobs"] = "TRL's ratio never contains the sampler's rounding"
    names = [key for key in (*_WEIGHT_KEYS, "vllm_importance_sampling_cap") if book.is_given(key)]
    if not book.flag("use_vllm"):
        book.same("use_vllm", "The model itself generates, so nothing is to be corrected.")
        for key in names:
            book.same(key, "It does nothing there either without use_vllm.")
        return
    book.absent("use_vllm", "There vLLM generates; here the engine inside the process does, with a far smaller gap.")
    if not book.flag("vllm_importance_sampling_correction"):
        for key in names:
            book.same(key, "Without the correction nothing is weighed.")
        return
    if book.settings["objective.loss"] == "vespo":
        book.settings["learner.old_logprobs"] = "sampler"
        book.remarks["learner.old_logprobs"] = "so that R contains the sampler's log-probs, as in TRL's VESPO"
        book.absent(
            "vllm_importance_sampling_mode", "VESPO bounds the sampler's part of R by it there; here R is whole."
        )
        return
    _weights(book)


_WEIGHT_KEYS = (
    "vllm_importance_sampling_correction",
    "vllm_importance_sampling_mode",
    "vllm_importance_sampling_clip_min",
    "vllm_importance_sampling_clip_max",
)


def _weights(book: Ledger) -> None:
    mode = book.choice("vllm_importance_sampling_mode", tuple(_IS_MODES))
    keys = ("vllm_importance_sampling_mode", "vllm_importance_sampling_correction")
    book.write("objective.correction.mode", _IS_MODES[mode], *keys)
    is_old_name = book.value("vllm_importance_sampling_cap") is not None
    high_key = "vllm_importance_sampling_cap" if is_old_name else "vllm_importance_sampling_clip_max"
    high = NO_LIMIT if book.value(high_key) is None else book.number(high_key)
    low_key = "vllm_importance_sampling_clip_min"
    low = 0.0 if book.value(low_key) is None else book.number(low_key)
    book.write("objective.correction.high", high, high_key)
    book.write("objective.correction.low", low, low_key)
    if is_old_name and book.is_given("vllm_importance_sampling_clip_max"):
        book.same("vllm_importance_sampling_clip_max", "vllm_importance_sampling_cap wins there, too.")


def _kl(book: Ledger) -> None:
    book.write("objective.kl_coef", book.number("beta"), "beta")
    is_weighted = book.flag("use_bias_correction_kl")
    book.write("objective.kl_estimator", "k3_weighted" if is_weighted else "k3", "use_bias_correction_kl")
    book.settings["objective.kl_placement"] = "loss"
    if is_weighted and book.number("beta") > 0 and book.value("importance_sampling_level") == "sequence":
        book.absent(
            "use_bias_correction_kl",
            "With sequence ratios it weighs the KL by that of the completion there; here by that of the token.",
        )


def _entropy(book: Ledger) -> None:
    is_adaptive = book.flag("use_adaptive_entropy")
    book.write("objective.entropy_coef", book.number("entropy_coef"), "entropy_coef")
    if is_adaptive:
        book.write("objective.entropy_adaptive.target", book.number("entropy_target"), "entropy_target")
        book.write("objective.entropy_adaptive.step", book.number("entropy_coef_delta"), "entropy_coef_delta")
        book.write(
            "objective.entropy_adaptive.coef_max",
            book.number("entropy_coef_max"),
            "entropy_coef_max",
            "use_adaptive_entropy",
        )
    for key in ("use_adaptive_entropy", "entropy_target", "entropy_coef_delta", "entropy_coef_max", "entropy_coef_min"):
        if not is_adaptive and book.is_given(key):
            book.same(key, "The weight of the bonus stays fixed.")
    if is_adaptive and book.number("entropy_coef_min") != 0:
        book.absent("entropy_coef_min", "It is the smallest weight of the bonus there; here that is 0.")
    elif is_adaptive and book.is_given("entropy_coef_min"):
        book.same("entropy_coef_min", "The smallest weight is 0.")


def _filters(book: Ledger) -> None:
    book.write("objective.mask_truncated", book.flag("mask_truncated_completions"), "mask_truncated_completions")
    share = book.number("top_entropy_quantile")
    if share >= 1:
        if book.is_given("top_entropy_quantile"):
            book.same("top_entropy_quantile", "Every token is trained.")
    else:
        book.write("objective.token_filter.mode", "high_entropy", "top_entropy_quantile")
        note = "The threshold is that of the micro-batch there, of the whole step here."
        book.write("objective.token_filter.frac", max(share, 1e-9), "top_entropy_quantile", note=note)
        if book.number("entropy_coef") > 0 or book.flag("use_adaptive_entropy"):
            book.absent("entropy_coef", "The bonus acts on the kept tokens only there; here on all of them.")
    if book.value("off_policy_mask_threshold") is not None:
        book.write("objective.max_divergence", book.number("off_policy_mask_threshold"), "off_policy_mask_threshold")
