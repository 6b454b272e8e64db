"""Presets: each is valid, explained, sourced, and stands under what the user sets."""

from typing import Any

import pytest
from pydantic import ValidationError

from oncurve.algo import PRESETS, ObjectiveSettings, describe_objective
from tests.algo.presets_page import PAGE, TRAINERS, renewed


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_valid_explained_and_sourced(name: str) -> None:
    objective = ObjectiveSettings(preset=name)
    formula = describe_objective(objective, group_size=8, max_tokens=64, temperature=1.0)
    assert formula.text.startswith("minimise\n  L = ")
    assert formula.gradient
    assert PRESETS[name].source
    assert ObjectiveSettings.model_validate(objective.model_dump()) == objective


def test_no_two_presets_are_the_same_objective() -> None:
    texts = {
        name: describe_objective(ObjectiveSettings(preset=name), group_size=8, max_tokens=64, temperature=1.0).text
        for name in PRESETS
    }
    assert [(a, b) for a in texts for b in texts if a < b and texts[a] == texts[b]] == []


FACTS: dict[str, dict[str, Any]] = {
    # What each source states, by the path of the setting.
    "grpo": {"kl_coef": 0.04, "kl_estimator": "k3", "kl_placement": "loss", "aggregation": "seq-mean-token-mean"},
    "dr_grpo": {"advantage.estimator": "group_mean", "aggregation": "constant", "kl_coef": 0.0},
    "dapo": {"clip_low": 0.2, "clip_high": 0.28, "aggregation": "token-mean", "zero_variance": "resample"},
    "gspo": {"loss": "gspo", "clip_low": 3e-4, "clip_high": 4e-4},
    "luspo": {"loss": "luspo", "clip_low": 2e-3, "clip_high": 2.5e-3},
    "gmpo": {"clip_low": 0.4, "clip_high": 0.4},
    "cispo": {"cispo.ratio_min": 0.0, "cispo.ratio_max": 5.0},
    "sapo": {"sapo.tau_positive": 1.0, "sapo.tau_negative": 1.05},
    "vespo": {"vespo.power_positive": 2.0, "vespo.rate_positive": 3.0, "vespo.power_negative": 3.0},
    "gpg": {"loss": "reinforce", "zero_variance": "rescale", "advantage.estimator": "group_mean"},
    "rloo": {"kl_placement": "reward", "kl_estimator": "k1", "kl_coef": 0.05, "advantage.estimator": "rloo"},
    "ngrpo": {"clip_low": 0.16, "clip_high": 0.24, "advantage.ddof": 1, "advantage.num_virtual": 1},
    "gdpo": {"advantage.std_eps": 1e-4, "advantage.ddof": 1},
    "vapo": {"advantage.lam_alpha": 0.05, "clip_high": 0.28},
    "entropy_tokens": {"token_filter.mode": "high_entropy", "token_filter.frac": 0.2},
    "clip_cov": {"token_filter.frac": 2e-4, "token_filter.low": 1.0, "token_filter.high": 5.0},
    "decoupled_ppo": {"correction.mode": "token_mask", "correction.high": 5.0},
    "deepseek_v32": {"kl_estimator": "k3_weighted", "max_divergence": 0.5},
    "trl": {
        "advantage.ddof": 1,
        "advantage.std_eps": 1e-4,
        "aggregation": "token-mean",
        "correction.mode": "seq_mask",
        "correction.high": 3.0,
        "kl_coef": 0.0,
        "kl_estimator": "k3_weighted",
        "dual_clip": None,
    },
    "verl": {"advantage.ddof": 1, "advantage.std_eps": 1e-6, "dual_clip": 3.0, "aggregation": "token-mean"},
    "openrlhf": {
        "advantage.ddof": 1,
        "advantage.std_eps": 1e-9,
        "kl_coef": 0.01,
        "kl_estimator": "k1",
        "kl_placement": "reward",
        "dual_clip": None,
    },
    "nemo_rl": {"advantage.estimator": "rloo", "kl_coef": 0.01, "kl_placement": "loss", "dual_clip": None},
    "areal": {"advantage.estimator": "reinforce_pp", "advantage.ddof": 1, "kl_coef": 0.1, "kl_estimator": "k1"},
    "prime_rl": {"advantage.estimator": "group_mean", "aggregation": "token-mean", "zero_variance": "skip"},
    "slime": {"advantage.ddof": 1, "advantage.std_eps": 1e-6, "aggregation": "seq-mean-token-mean", "kl_coef": 0.0},
}


@pytest.mark.parametrize("name", FACTS)
def test_a_preset_says_what_its_source_says(name: str) -> None:
    objective: Any = ObjectiveSettings(preset=name)
    for path, expected in FACTS[name].items():
        value = objective
        for part in path.split("."):
            value = getattr(value, part)
        assert value == expected, path


def test_what_stands_beside_a_preset_wins() -> None:
    objective = ObjectiveSettings(preset="dapo", clip_high=0.3, advantage={"std_eps": 0.5})  # type: ignore[arg-type]
    assert (objective.clip_high, objective.aggregation) == (0.3, "token-mean")
    assert (objective.advantage.std_eps, objective.advantage.ddof) == (0.5, 1)  # a table is merged key by key


def test_a_number_of_the_preset_gives_way_and_one_set_by_hand_is_refused() -> None:
    assert ObjectiveSettings(preset="dapo", loss="cispo").clip_high == 0.2
    with pytest.raises(ValidationError, match="clip_high does nothing with loss cispo"):
        ObjectiveSettings(preset="dapo", loss="cispo", clip_high=0.3)
    assert ObjectiveSettings(preset="grpo", advantage={"estimator": "rloo"}).advantage.ddof == 0  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="ddof does nothing with the estimator rloo"):
        ObjectiveSettings(preset="grpo", advantage={"estimator": "rloo", "ddof": 1})  # type: ignore[arg-type]
    assert ObjectiveSettings(preset="grpo", advantage={"estimator": "batch_std"}).advantage.ddof == 1  # type: ignore[arg-type]
    assert ObjectiveSettings(preset="trl", correction={"mode": "none"}).correction.high == 2.0  # type: ignore[arg-type]
    assert ObjectiveSettings(preset="kl_cov", token_filter={"mode": "all"}).token_filter.frac == 0.2  # type: ignore[arg-type]


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ValidationError, match=r"there is no preset 'dr_grp'\. Did you mean .*dr_grpo"):
        ObjectiveSettings(preset="dr_grp")


def test_the_tables_of_the_page_are_those_of_the_presets() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert renewed(page) == page, "run python -m tests.algo.presets_page"
    assert set(TRAINERS) <= set(PRESETS)
