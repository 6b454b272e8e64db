"""Hypothesis strategies: every valid combination of the settings of an objective."""

from typing import Any, get_args

from hypothesis import strategies as st

from oncurve.algo import CLIPPED, AdvantageSettings, Aggregation, ObjectiveSettings
from oncurve.algo.advantage_settings import BINARY, TOKEN_LEVEL, Estimator, idle_numbers
from oncurve.algo.objective_settings import OF_COMPLETIONS, CorrectionMode, Loss

LOSSES: tuple[str, ...] = get_args(Loss)
ESTIMATORS: tuple[str, ...] = get_args(Estimator)
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)
CORRECTIONS: tuple[str, ...] = get_args(CorrectionMode)
ONLY_WHITENED = ("raft", "reinforce_pp", "reinforce_pp_baseline")
WITHOUT_KL_IN_REWARD = ("gdpo", "maxrl", "pass_at_k", "difficulty", "raft", "ngrpo")

numbers = st.floats(1e-3, 0.9)


def allowed_aggregations(loss: str) -> list[str]:
    """Aggregations that a loss accepts, found by asking."""
    found = []
    for aggregation in AGGREGATIONS:
        try:
            ObjectiveSettings(loss=loss, aggregation=aggregation)  # type: ignore[arg-type]
        except ValueError:
            continue
        found.append(aggregation)
    return found


PAIRS = [(loss, aggregation) for loss in LOSSES for aggregation in allowed_aggregations(loss)]


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def advantages(draw: st.DrawFn, *, estimators: tuple[str, ...] = ESTIMATORS) -> AdvantageSettings:
    estimator = draw(st.sampled_from(estimators))
    whiten = estimator not in ONLY_WHITENED and draw(st.booleans())
    best = draw(st.booleans())
    alpha = draw(optional(st.floats(0.1, 3)))
    chosen = {
        "ddof": draw(st.sampled_from([0, 1])),
        "std_eps": draw(numbers),
        "tolerance": draw(st.sampled_from([0.0, 1e-6, 0.3])),
        "k": draw(st.integers(2, 3)),
        "leave_one_out": draw(st.booleans()),
        "shrinkage": draw(numbers),
        "std_of": draw(st.sampled_from(["rewards", "centered"])),
        "max_reward": draw(st.floats(0.5, 2)),
        "num_virtual": draw(st.integers(1, 3)),
        "gamma": draw(numbers),
        "lam": 1.0 if alpha is not None else draw(numbers),
        "lam_alpha": alpha,
        "threshold": draw(st.sampled_from([0.0, 0.4, 1.0])),
        "best_of_group": best,
        "max_per_group": None if best else draw(optional(st.integers(1, 2))),
        "difficulty": {"weight_min": draw(numbers), "weight_max": 1 + draw(numbers), "slope": 3 * draw(numbers)},
        "whiten": whiten,
        "clip": draw(optional(st.floats(0.2, 2))),
    }
    idle = idle_numbers(estimator, whiten=whiten)
    kept = {name: value for name, value in chosen.items() if name not in idle}
    return AdvantageSettings(estimator=estimator, **kept)  # type: ignore[arg-type]


@st.composite
def objectives(draw: st.DrawFn) -> ObjectiveSettings:
    loss, aggregation = draw(st.sampled_from(PAIRS))
    fits = loss not in OF_COMPLETIONS - {"gspo_token"}
    advantage = draw(advantages(estimators=tuple(name for name in ESTIMATORS if fits or name not in TOKEN_LEVEL)))
    values: dict[str, Any] = {"loss": loss, "aggregation": aggregation, "advantage": advantage}
    if loss in CLIPPED:
        values |= {"clip_low": draw(numbers), "clip_high": draw(numbers)}
    if loss == "clip":
        values |= draw(
            st.sampled_from([{}, {"dual_clip": 1.7}, {"ratio_cap": 2.3}, {"dual_clip": 3.0}])  # above 1 + clip_high
        )
    values |= draw(st.sampled_from([{}, SHAPES.get(loss, {})]))
    values["correction"] = draw(corrections())
    values["max_divergence"] = draw(optional(st.floats(0.01, 0.5)))
    values["token_filter"] = draw(token_filters(loss))
    values |= draw(divergences(advantage))
    values["entropy_coef"] = draw(st.just(0.0) | numbers)
    values["entropy_adaptive"] = draw(st.sampled_from([None, {"coef_max": 0.95, "step": 0.02, "target": 0.4}]))
    if not advantage.learns_from_equal_groups and values.get("kl_placement") != "reward":
        values["zero_variance"] = draw(st.sampled_from(["keep", "skip", "resample", "rescale"]))
    values["mask_truncated"] = draw(st.booleans())
    return ObjectiveSettings(**values)


SHAPES: dict[str, dict[str, Any]] = {
    "cispo": {"cispo": {"ratio_min": 0.8, "ratio_max": 1.3}},
    "sapo": {"sapo": {"tau_positive": 0.7, "tau_negative": 2.0}},
    "vespo": {"vespo": {"power_positive": 1.5, "rate_positive": 2.5, "power_negative": 0.0, "rate_negative": 0.5}},
}


def corrections() -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from([{}, *({"mode": mode, "low": 0.7, "high": 1.4} for mode in CORRECTIONS if mode != "none")])


def token_filters(loss: str) -> st.SearchStrategy[dict[str, Any]]:
    found: list[dict[str, Any]] = [{}, {"mode": "high_entropy", "frac": 0.4}]
    if loss == "clip":
        found += [
            {"mode": "clip_cov", "frac": 0.3, "low": -0.4, "high": 0.5},
            {"mode": "kl_cov", "frac": 0.3, "coef": 0.4},
        ]
    return st.sampled_from(found)


@st.composite
def divergences(draw: st.DrawFn, advantage: AdvantageSettings) -> dict[str, Any]:
    """No KL, one in the loss, or one in the reward where that makes sense."""
    found: dict[str, Any] = {}
    is_keeping = advantage.learns_from_equal_groups
    if is_keeping:
        found["zero_variance"] = "keep"
    places = [None, "loss"] if advantage.estimator in WITHOUT_KL_IN_REWARD else [None, "loss", "reward"]
    place = draw(st.sampled_from(places))
    if place is None:
        return found
    names = ["k2", "k3", "k3_weighted"] if place == "loss" else ["k1", "k2", "k3"]
    found |= {"kl_coef": draw(numbers), "kl_placement": place, "kl_estimator": draw(st.sampled_from(names))}
    if place == "reward" and not is_keeping:
        found["zero_variance"] = draw(st.sampled_from(["skip", "resample"]))
    found["kl_adaptive"] = draw(st.sampled_from([None, {"target": 0.3, "horizon": 99}]))
    return found


def is_binary(objective: ObjectiveSettings) -> bool:
    return objective.advantage.estimator in BINARY
