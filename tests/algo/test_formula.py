"""The printed formula is complete and true: computed from its text alone, it is the loss and has its gradient."""

from collections.abc import Callable, Iterator
from inspect import signature
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from oncurve import algo
from oncurve.algo import PRESETS, ObjectiveSettings, describe_objective, policy_loss
from oncurve.algo.surrogate import policy_terms
from tests.algo.formula_cases import MAX_TOKENS, Package, Reading, printed, random_rollout
from tests.algo.formula_reader import Text
from tests.algo.objectives import ESTIMATORS, LOSSES, advantages, allowed_aggregations, is_binary, objectives

SHAPE: dict[str, Any] = {"group_size": 4, "max_tokens": MAX_TOKENS, "temperature": 0.7}
seeds = st.integers(0, 10**6)


def compare(objective: ObjectiveSettings, seed: int, *, drift: float = 0.4, slopes: int = 0) -> None:
    """Assert that text and package agree on the loss and on ``slopes`` entries of its gradient."""
    rollout = random_rollout(seed, is_binary=is_binary(objective), drift=drift)
    package = Package(objective, rollout)
    advantages = package.advantages()
    assume(int(package.trained.sum()) > 2)
    found, reading = package.result(advantages), Reading(printed(objective), rollout)
    assert reading.loss() == pytest.approx(found.total, rel=1e-9, abs=1e-12)
    places = reading.places()
    for i, t in places[:: max(1, len(places) // slopes)] if slopes else []:
        assert reading.slope(i, t) == pytest.approx(found.gradient[i][t], rel=1e-6, abs=1e-8), (i, t)


@pytest.mark.parametrize("preset", PRESETS)
@given(seed=seeds)
@settings(max_examples=4)
def test_the_text_of_a_preset_is_its_loss_and_gradient(preset: str, seed: int) -> None:
    compare(ObjectiveSettings(preset=preset), seed, slopes=100)


@given(objective=objectives(), seed=seeds)
@settings(max_examples=150)
def test_the_text_alone_is_enough_to_recompute_the_loss(objective: ObjectiveSettings, seed: int) -> None:
    compare(objective, seed)


@given(objective=objectives(), seed=seeds)
@settings(max_examples=50)
def test_the_gradient_of_the_text_is_that_of_the_loss(objective: ObjectiveSettings, seed: int) -> None:
    compare(objective, seed, slopes=4)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(data=st.data(), seed=seeds)
@settings(max_examples=25)
def test_the_text_of_every_estimator_is_its_advantage(estimator: str, data: st.DataObject, seed: int) -> None:
    advantage = data.draw(advantages(estimators=(estimator,)))
    compare(ObjectiveSettings(advantage=advantage, zero_variance="keep"), seed)


@pytest.mark.parametrize("loss", LOSSES)
@given(seed=seeds, kl=st.sampled_from(["k2", "k3"]))
@settings(max_examples=25)
def test_the_limits_of_log_ratios_are_in_the_text(loss: str, kl: str, seed: int) -> None:
    # Log-probs that differ by tens of nats reach every clip.
    aggregation = "seq-mean-token-sum" if loss == "luspo" else "seq-mean-token-mean"
    correction = {"mode": "seq_truncate", "high": 1e12}
    compare(
        ObjectiveSettings(loss=loss, aggregation=aggregation, kl_coef=0.1, kl_estimator=kl, correction=correction),  # type: ignore[arg-type]
        seed,
        drift=15,
    )


@given(objective=objectives())
def test_every_definition_is_used_and_every_symbol_explained(objective: ObjectiveSettings) -> None:
    text = Text(printed(objective))
    known = {
        "B",
        "N",
        "M",
        "t",
        "β",
        "η",
        "nᵢ",
        "Lᵢ",
        "rᵢ",
        "lᵢₜ",
        "oldᵢₜ",
        "refᵢₜ",
        "sampledᵢₜ",
        "hᵢₜ",
        "Vᵢₜ",
        "rₖᵢ",
        "wₖ",
    }
    known |= {"dropᵢₜ", "holdᵢₜ", "selectedᵢ", "count_g", "count_all", "count_groups", "count_tokens"}
    prose = {"covᵢₜ", "ρᵢₜ"}  # needed by the description of dropᵢₜ and holdᵢₜ
    reached = text.reachable()
    assert reached - set(text.symbols) <= known
    assert set(text.symbols) - reached <= (prose if "covᵢₜ" in text.symbols else set())


def test_the_reader_reads_signs_powers_and_choices_as_people_do() -> None:
    # The reader is trusted above, so it is checked here on paper.
    world = Reading(
        "minimise\n  L = 2 − 3·2^2/4 − 1 if 1 < 2 and 2 ≤ 2 else 9\nwhere", random_rollout(0, is_binary=True)
    )
    assert world.loss() == 2 - 3 - 1
    nested = Reading(
        "minimise\n  L = −f(2)·[ 1 + x2 ]\nwhere\n  f(x) = (x + 1)^2 — so\n  x2 = 0 if 2 > 3 else 4",
        random_rollout(0, is_binary=True),
    )
    assert nested.loss() == -9 * 5


INERT: dict[tuple[str, ...], Callable[[ObjectiveSettings], bool]] = {
    ("kl_estimator",): lambda objective: objective.kl_coef == 0,
    ("kl_placement",): lambda objective: objective.kl_coef == 0,
    ("resample_rounds",): lambda objective: objective.zero_variance != "resample",
    ("advantage", "tolerance"): lambda objective: (
        objective.zero_variance == "keep"
        and objective.advantage.estimator in ("pass_at_k", "pkpo", "gae", "reinforce_pp", "raft")
    ),
}
"""Settings that do not change the update, as their documentation says, and when. Everything else must be printed."""

NAMES_ONLY = ("preset",)
SOME: dict[type, list[Any]] = {float: [2.5, 0.3], int: [2]}


def neighbours(annotation: Any, value: Any) -> Iterator[Any]:
    """Yield other values of a field, from its type alone."""
    options = [option for option in get_args(annotation) if option is not NoneType]
    if get_origin(annotation) is Literal:
        yield from (option for option in options if option != value)
    elif NoneType in get_args(annotation):
        if value is not None:
            yield None
            yield from neighbours(options[0], value)
        else:
            is_table = issubclass(options[0], BaseModel)
            yield from [{}] if is_table else SOME[options[0]]
    elif annotation is bool:
        yield not value
    elif annotation is int:
        yield from (value + 1, value - 1)
    elif annotation is float:
        yield from (value * 1.0001 + 1e-7, value * 0.9999 - 1e-7)
    else:
        raise AssertionError(f"no neighbour of a {annotation} is known: say one here")


def fields_of(table: BaseModel) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield (path, annotation, value) of every field, of nested settings too."""
    for name, info in type(table).model_fields.items():
        value = getattr(table, name)
        if isinstance(value, BaseModel):
            yield from (((name, *path), annotation, inner) for path, annotation, inner in fields_of(value))
            yield from [((name,), info.annotation, value)] if NoneType in get_args(info.annotation) else []
        elif name not in NAMES_ONLY:
            yield (name,), info.annotation, value


def replaced(table: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    name, *rest = path
    return table | {name: replaced(table[name], tuple(rest), value) if rest else value}


def other_texts(objective: ObjectiveSettings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (path, text) for every valid neighbour of an objective."""
    table = objective.model_dump() | {"preset": ""}
    for path, annotation, value in fields_of(objective):
        near = [None] if isinstance(value, BaseModel) else neighbours(annotation, value)
        for other in near:
            try:
                yield path, printed(ObjectiveSettings.model_validate(replaced(table, path, other)))
            except ValidationError:
                continue


def check_neighbours(objective: ObjectiveSettings) -> set[tuple[str, ...]]:
    """Assert that exactly the inert settings leave the text as it is; return those that changed it."""
    own, changed = printed(objective), set()
    for path, text in other_texts(objective):
        is_inert = path in INERT and INERT[path](objective)
        assert (text == own) == is_inert, path
        changed |= set() if is_inert else {path}
    return changed


@given(objective=objectives())
@settings(max_examples=25)
def test_every_setting_that_changes_the_update_changes_the_text(objective: ObjectiveSettings) -> None:
    check_neighbours(objective)


def test_every_field_of_the_settings_is_printed_somewhere() -> None:
    adaptive: dict[str, Any] = {"kl_coef": 0.1, "kl_adaptive": {}, "entropy_adaptive": {}}
    bases = [ObjectiveSettings(preset=preset) for preset in PRESETS]
    bases += [ObjectiveSettings(**adaptive), ObjectiveSettings(ratio_cap=2.0), ObjectiveSettings(max_divergence=0.1)]
    bases += [ObjectiveSettings(advantage={"estimator": "shrink"}, zero_variance="keep")]  # type: ignore[arg-type]
    changed = set().union(*map(check_neighbours, bases))
    everything = {path for base in bases for path, _, _ in fields_of(base)}
    assert everything - changed == set()


@pytest.mark.parametrize("change", [{"group_size": 5}, {"max_tokens": 6}, {"temperature": 0.71}])
@given(objective=objectives())
@settings(max_examples=20)
def test_the_shape_of_the_run_is_in_the_text(change: dict[str, Any], objective: ObjectiveSettings) -> None:
    assert describe_objective(objective, **SHAPE).text != describe_objective(objective, **(SHAPE | change)).text


@given(objective=objectives(), size=st.integers(4, 10**6), limit=st.integers(1, 10**6), temperature=st.floats(1e-5, 10))
def test_every_line_fits_a_hundred_columns(
    objective: ObjectiveSettings, size: int, limit: int, temperature: float
) -> None:
    formula = str(describe_objective(objective, group_size=size, max_tokens=limit, temperature=temperature))
    assert max(map(len, formula.splitlines())) <= 100


@given(objective=objectives())
def test_the_names_in_code_exist(objective: ObjectiveSettings) -> None:
    symbols = describe_objective(objective, **SHAPE).symbols
    known = {*dir(algo), *signature(policy_loss).parameters, policy_terms.__name__}
    assert set(symbols.values()) <= known


@pytest.mark.parametrize(
    ("placement", "estimator", "statement"),
    [
        ("loss", "k2", "along the gradient of KL(policy ‖ ref)"),
        ("loss", "k3", "the gradient of KL(ref ‖ policy)"),
        ("loss", "k3_weighted", "the gradient of KL(policy ‖ ref) at each token, also for tokens of an older policy"),
        ("reward", "k1", "adds the gradient of KL(policy ‖ ref)"),
        ("reward", "k2", "not the gradient of KL(policy ‖ ref)"),
        ("reward", "k3", "gradient of KL(policy ‖ ref) minus that of KL(ref ‖ policy)"),
    ],
)
def test_the_gradient_of_each_kl_is_stated(placement: str, estimator: str, statement: str) -> None:
    objective = ObjectiveSettings(kl_coef=0.1, kl_placement=placement, kl_estimator=estimator)  # type: ignore[arg-type]
    assert statement in " ".join(describe_objective(objective, **SHAPE).gradient.split())


def test_the_gradient_of_clipping_and_of_no_kl_is_stated() -> None:
    formula = describe_objective(ObjectiveSettings(clip_low=0.1, clip_high=0.4), **SHAPE)
    stated = " ".join(formula.gradient.split())
    assert "at ρ = 1" in stated
    assert "0 where A > 0 and ρ > 1 + 0.4, or A < 0 and ρ < 1 − 0.1" in stated
    assert stated.endswith("KL: none.")
    assert not any("kl" in name or "entropy" in name for name in formula.symbols.values())


def test_each_estimator_and_each_loss_has_its_own_statement() -> None:
    def gradient(**values: Any) -> str:
        return describe_objective(ObjectiveSettings(zero_variance="keep", **values), **SHAPE).gradient

    by_estimator = {gradient(advantage={"estimator": name}) for name in ESTIMATORS}
    by_loss = {gradient(loss=loss, aggregation=allowed_aggregations(loss)[0]) for loss in LOSSES}
    assert len(by_estimator) == len(ESTIMATORS)
    assert len(by_loss) == len(LOSSES) - 1  # those of gspo and gspo_token agree, as the paper shows


def test_groups_that_influence_each_other_are_stated() -> None:
    for estimator in ESTIMATORS:
        objective = ObjectiveSettings(advantage={"estimator": estimator}, zero_variance="keep")  # type: ignore[arg-type]
        stated = "Groups: the rewards of one group change the advantages of the others." in " ".join(
            describe_objective(objective, **SHAPE).gradient.split()
        )
        assert stated == objective.advantage.couples_groups


def test_what_is_printed_holds_all_three_parts() -> None:
    formula = describe_objective(ObjectiveSettings(entropy_coef=0.1), **SHAPE)
    assert str(formula).startswith(formula.text)
    assert formula.gradient in str(formula)
    assert "H=entropy_from_logits" in str(formula)


@pytest.mark.parametrize(
    "shape", [{"group_size": 1}, {"max_tokens": 0}, {"temperature": 0.0}, {"temperature": float("inf")}]
)
def test_impossible_runs_have_no_formula(shape: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"baseline|temperature"):
        describe_objective(ObjectiveSettings(), **(SHAPE | shape))


def test_more_attempts_than_completions_have_no_formula() -> None:
    objective = ObjectiveSettings(preset="pass_at_k", advantage={"k": 5})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"k is 5 .* group_size is 4"):
        describe_objective(objective, **SHAPE)
