"""The printed formula is complete and true."""

import re
from itertools import product
from math import exp, sqrt
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oncurve.algo import (
    AdvantageSettings,
    ObjectiveSettings,
    describe_objective,
    group_advantages,
    kl_token_rewards,
    policy_loss,
    sequence_weights,
    token_weights,
)

SHAPE = {"group_size": 3, "max_tokens": 5, "temperature": 0.7}
numbers = st.floats(1e-3, 0.9)


@st.composite
def objectives(draw: st.DrawFn) -> ObjectiveSettings:
    placement, estimator = draw(
        st.sampled_from([("loss", "k2"), ("loss", "k3"), *product(["reward"], ["k1", "k2", "k3"])])
    )
    advantage = draw(st.sampled_from(["group_zscore", "group_mean", "rloo"]))
    return ObjectiveSettings(
        advantage=AdvantageSettings(
            estimator=advantage,
            ddof=draw(st.sampled_from([0, 1])),
            std_eps=draw(numbers),
            tolerance=draw(numbers) / 1e4,
        ),
        clip_low=draw(numbers),
        clip_high=draw(numbers),
        aggregation=draw(st.sampled_from(sorted(PREFIXES))),
        kl_coef=draw(st.just(0.0) | numbers),
        kl_estimator=estimator,
        kl_placement=placement,
        entropy_coef=draw(st.just(0.0) | numbers),
        zero_variance=draw(st.sampled_from(["skip", "resample"])),
        resample_rounds=draw(st.integers(1, 9)),
        mask_truncated=draw(st.booleans()),
    )


PREFIXES = {
    "seq-mean-token-mean": "L = 1/B · Σᵢ 1/Lᵢ · Σₜ [",
    "token-mean": "L = 1/(Σᵢ Lᵢ) · Σᵢ Σₜ [",
    "seq-mean-token-sum": "L = 1/B · Σᵢ Σₜ [",
    "constant": "L = 1/(B · 5) · Σᵢ Σₜ [",
    "prompt-mean": "L = 1/N · Σg 1/(Σ_{i∈g} Lᵢ) · Σ_{i∈g} Σₜ [",
}


def changed(objective: ObjectiveSettings) -> dict[str, ObjectiveSettings]:
    """Return a neighbour for every setting that changes the update under this objective."""

    def other(**values: Any) -> ObjectiveSettings:
        return ObjectiveSettings.model_validate(objective.model_dump() | values)

    def advantage(**values: Any) -> ObjectiveSettings:
        return other(advantage=objective.advantage.model_dump() | values)

    names = sorted(PREFIXES)
    estimators = ["group_zscore", "group_mean", "rloo"]
    found = {
        "estimator": advantage(estimator=estimators[estimators.index(objective.advantage.estimator) - 1]),
        "tolerance": advantage(tolerance=objective.advantage.tolerance * 1.0001),
        "clip_low": other(clip_low=objective.clip_low * 1.0001),
        "clip_high": other(clip_high=objective.clip_high * 1.0001),
        "aggregation": other(aggregation=names[names.index(objective.aggregation) - 1]),
        "kl_coef": other(kl_coef=objective.kl_coef * 1.0001 + 1e-9),
        "entropy_coef": other(entropy_coef=objective.entropy_coef * 1.0001 + 1e-9),
        "zero_variance": other(zero_variance="resample" if objective.zero_variance == "skip" else "skip"),
        "mask_truncated": other(mask_truncated=not objective.mask_truncated),
    }
    if objective.advantage.estimator == "group_zscore":
        found["ddof"] = advantage(ddof=1 - objective.advantage.ddof)
        found["std_eps"] = advantage(std_eps=objective.advantage.std_eps * 1.0001)
    if objective.kl_coef > 0:
        found["kl_estimator"] = other(kl_estimator="k3" if objective.kl_estimator == "k2" else "k2")
        found["kl_placement"] = other(
            kl_placement="reward" if objective.kl_placement == "loss" else "loss",
            kl_estimator="k3" if objective.kl_estimator == "k1" else objective.kl_estimator,
        )
    if objective.zero_variance == "resample":
        found["resample_rounds"] = other(resample_rounds=objective.resample_rounds + 1)
    return found


@given(objective=objectives())
def test_every_setting_that_changes_the_update_changes_the_text(objective: ObjectiveSettings) -> None:
    own = describe_objective(objective, **SHAPE).text  # type: ignore[arg-type]
    same = [name for name, other in changed(objective).items() if describe_objective(other, **SHAPE).text == own]  # type: ignore[arg-type]
    assert same == []


@pytest.mark.parametrize("change", [{"group_size": 4}, {"max_tokens": 6}, {"temperature": 0.71}])
@given(objective=objectives())
def test_the_shape_of_the_run_is_in_the_text(change: dict[str, Any], objective: ObjectiveSettings) -> None:
    assert describe_objective(objective, **SHAPE).text != describe_objective(objective, **(SHAPE | change)).text  # type: ignore[arg-type]


def test_all_discrete_choices_give_different_texts() -> None:
    texts = []
    for estimator, aggregation, kl, silent, masked in product(
        ["group_zscore", "group_mean", "rloo"],
        PREFIXES,
        [("loss", "k2"), ("loss", "k3"), ("reward", "k1"), ("reward", "k2"), ("reward", "k3"), None],
        ["skip", "resample", "keep"],
        [False, True],
    ):
        placement, kl_estimator = kl or ("loss", "k3")
        if silent == "keep" and placement == "reward" and estimator == "group_zscore":
            continue
        objective = ObjectiveSettings(
            advantage=AdvantageSettings(estimator=estimator),  # type: ignore[arg-type]
            aggregation=aggregation,  # type: ignore[arg-type]
            kl_coef=0.1 if kl else 0.0,
            kl_estimator=kl_estimator,  # type: ignore[arg-type]
            kl_placement=placement,  # type: ignore[arg-type]
            zero_variance=silent,  # type: ignore[arg-type]
            mask_truncated=masked,
        )
        texts.append(describe_objective(objective, **SHAPE).text)  # type: ignore[arg-type]
    assert len(set(texts)) == len(texts) == 3 * 5 * 6 * 3 * 2 - 3 * 5 * 2


@given(objective=objectives(), size=st.integers(2, 10**6), limit=st.integers(1, 10**6), temperature=st.floats(1e-5, 10))
def test_every_line_fits_a_hundred_columns(
    objective: ObjectiveSettings, size: int, limit: int, temperature: float
) -> None:
    formula = str(describe_objective(objective, group_size=size, max_tokens=limit, temperature=temperature))
    assert max(map(len, formula.splitlines())) <= 100


def number(pattern: str, text: str) -> float | None:
    found = re.search(pattern, text)
    return float(found[1]) if found else None


class Reader:
    """Computes the loss from the printed text alone, in plain loops: a second opinion on what the text says."""

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())
        clip = re.search(r"limited to \[1 − (\S+), 1 \+ (\S+)\]", self.text)
        assert clip is not None
        self.low, self.high = 1 - float(clip[1]), 1 + float(clip[2])
        self.kl_loss = number(r"\+ (\S+) · k\dᵢₜ \]", self.text) or 0.0
        self.kl_reward = number(r"r̃ᵢ = rᵢ − (\S+) · Σₜ k\dᵢₜ", self.text) or 0.0
        self.bonus = number(r"\] − (\S+) · H", self.text) or 0.0
        formulas = {"= d with": "k1", "= d²/2 with": "k2", "= exp(−d) − 1 + d with": "k3"}
        self.kl_name = next((name for text, name in formulas.items() if text in self.text), None)

    def kl(self, logprob: float, reference: float) -> float:
        d = logprob - reference
        return {"k1": d, "k2": d * d / 2, "k3": exp(-d) - 1 + d, None: 0.0}[self.kl_name]

    def advantages(self, rewards: list[float]) -> list[float]:
        tolerance = number(r"in the group is at most (\S+)", self.text)
        assert tolerance is not None
        if max(rewards) - min(rewards) <= tolerance:
            return [0.0] * len(rewards)
        if "others of its group" in self.text:
            return [r - (sum(rewards) - r) / (len(rewards) - 1) for r in rewards]
        mean = sum(rewards) / len(rewards)
        if "not divided by a std" in self.text:
            return [r - mean for r in rewards]
        divisor, eps = number(r"std divides by [^=]+ = (\d+)", self.text), number(r"\(std r̃? ?\+ (\S+)\)", self.text)
        assert divisor is not None
        assert eps is not None
        std = sqrt(sum((r - mean) ** 2 for r in rewards) / divisor)
        return [(r - mean) / (std + eps) for r in rewards]

    def weight(self, lengths: list[list[int]], group: int, index: int) -> float:
        num = sum(map(len, lengths))
        weights = {
            PREFIXES["seq-mean-token-mean"]: 1 / num / max(1, lengths[group][index]),
            PREFIXES["token-mean"]: 1 / sum(map(sum, lengths)),
            PREFIXES["seq-mean-token-sum"]: 1 / num,
            PREFIXES["constant"]: 1 / num / 5,
            PREFIXES["prompt-mean"]: 1 / len(lengths) / sum(lengths[group]),
        }
        return next(weight for prefix, weight in weights.items() if prefix in self.text)

    def loss(self, rewards: list[list[float]], tokens: list[list[list[dict[str, float]]]]) -> float:
        lengths = [[len(sequence) for sequence in group] for group in tokens]
        total = 0.0
        for g, group in enumerate(tokens):
            shaped = [
                reward - self.kl_reward * sum(self.kl(t["old"], t["ref"]) for t in sequence)
                for reward, sequence in zip(rewards[g], group, strict=True)
            ]
            for i, (advantage, sequence) in enumerate(zip(self.advantages(shaped), group, strict=True)):
                for t in sequence:
                    ratio = exp(t["new"] - t["old"])
                    clipped = min(max(ratio, self.low), self.high)
                    value = -min(ratio * advantage, clipped * advantage) + self.kl_loss * self.kl(t["new"], t["ref"])
                    total += self.weight(lengths, g, i) * value
                    total -= self.bonus * t["entropy"] / sum(map(sum, lengths))
        return total


LENGTHS = [[1, 3, 2], [5, 1, 4]]
REWARDS = [[1.0, 0.0, 0.25], [0.0, 1.0, 1.0]]


def random_tokens(seed: int) -> list[list[list[dict[str, float]]]]:
    rng = torch.Generator().manual_seed(seed)

    def token() -> dict[str, float]:
        new, old, ref, entropy = torch.randn(4, generator=rng).tolist()
        return {"new": new - 2, "old": new - 2 + 0.4 * old, "ref": new - 2 + 0.4 * ref, "entropy": abs(entropy)}

    return [[[token() for _ in range(length)] for length in group] for group in LENGTHS]


def computed(objective: ObjectiveSettings, tokens: list[list[list[dict[str, float]]]]) -> float:
    """Run the package on the same numbers."""
    sequences = [sequence for group in tokens for sequence in group]
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    mask = torch.arange(5) < lengths[:, None]

    def padded(name: str) -> torch.Tensor:
        rows = [[t[name] for t in sequence] + [9.0] * (5 - len(sequence)) for sequence in sequences]
        return torch.tensor(rows, dtype=torch.float64)

    rewards = torch.tensor(REWARDS, dtype=torch.float64).flatten()
    if objective.kl_placement == "reward":
        rewards = kl_token_rewards(
            rewards,
            padded("old"),
            padded("ref"),
            mask,
            kl_coef=objective.kl_coef,
            estimator=objective.kl_estimator,
        ).sum(dim=1)
    advantages = group_advantages(rewards.view(2, 3), objective.advantage).flatten()
    weights = sequence_weights(lengths, torch.tensor([0, 0, 0, 1, 1, 1]), objective.aggregation, max_tokens=5)
    return policy_loss(
        objective,
        logprobs=padded("new"),
        old_logprobs=padded("old"),
        ref_logprobs=padded("ref"),
        advantages=advantages[:, None].expand(mask.shape),
        weights=token_weights(weights, mask),
        entropy=padded("entropy"),
        num_step_tokens=int(lengths.sum()),
    ).total.item()


@given(objective=objectives(), seed=st.integers(0, 10**6))
@settings(max_examples=200)
def test_the_text_alone_is_enough_to_recompute_the_loss(objective: ObjectiveSettings, seed: int) -> None:
    tokens = random_tokens(seed)
    reader = Reader(describe_objective(objective, **SHAPE).text)  # type: ignore[arg-type]
    assert reader.loss(REWARDS, tokens) == pytest.approx(computed(objective, tokens), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("placement", "estimator", "statement"),
    [
        ("loss", "k2", "along the gradient of KL(policy ‖ ref)"),
        ("loss", "k3", "the gradient of KL(ref ‖ policy)"),
        ("reward", "k1", "adds the gradient of KL(policy ‖ ref)"),
        ("reward", "k2", "not the gradient of KL(policy ‖ ref)"),
        ("reward", "k3", "gradient of KL(policy ‖ ref) minus that of KL(ref ‖ policy)"),
    ],
)
def test_the_gradient_of_each_kl_is_stated(placement: str, estimator: str, statement: str) -> None:
    objective = ObjectiveSettings(kl_coef=0.1, kl_placement=placement, kl_estimator=estimator)  # type: ignore[arg-type]
    formula = describe_objective(objective, **SHAPE)  # type: ignore[arg-type]
    assert statement in " ".join(formula.gradient.split())
    assert formula.symbols[f"{estimator}ᵢₜ"] == "kl_estimate"


def test_the_gradient_of_clipping_and_of_no_kl_is_stated() -> None:
    formula = describe_objective(ObjectiveSettings(clip_low=0.1, clip_high=0.4), **SHAPE)  # type: ignore[arg-type]
    stated = " ".join(formula.gradient.split())
    assert "at ρ = 1" in stated
    assert "0 where A > 0 and ρ > 1 + 0.4, or A < 0 and ρ < 1 − 0.1" in stated
    assert stated.endswith("KL: none.")
    assert not any("kl" in name or "entropy" in name for name in formula.symbols.values())


@pytest.mark.parametrize("estimator", ["group_zscore", "group_mean", "rloo"])
def test_each_estimator_has_its_own_statement(estimator: str) -> None:
    def gradient(name: str) -> str:
        objective = ObjectiveSettings(advantage=AdvantageSettings(estimator=name))  # type: ignore[arg-type]
        return describe_objective(objective, **SHAPE).gradient  # type: ignore[arg-type]

    others = {"group_zscore", "group_mean", "rloo"} - {estimator}
    assert gradient(estimator) not in {gradient(name) for name in others}


def test_what_is_printed_holds_all_three_parts() -> None:
    formula = describe_objective(ObjectiveSettings(entropy_coef=0.1), **SHAPE)  # type: ignore[arg-type]
    assert str(formula).startswith(formula.text)
    assert formula.gradient in str(formula)
    assert "H=entropy_from_logits" in str(formula)
    assert "ρᵢₜ=importance_ratio" in str(formula)


@pytest.mark.parametrize(
    "shape", [{"group_size": 1}, {"max_tokens": 0}, {"temperature": 0.0}, {"temperature": float("inf")}]
)
def test_impossible_runs_have_no_formula(shape: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"baseline|temperature"):
        describe_objective(ObjectiveSettings(), **(SHAPE | shape))
