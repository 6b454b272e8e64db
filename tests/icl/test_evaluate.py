"""Examination: errors of known predictors, ratios, intervals, files."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from oncurve.icl.baselines import least_squares, strong_baselines_for, zero
from oncurve.icl.evaluate import held_out, squared_errors
from oncurve.icl.evaluate_run import curves_csv, examine, examine_run
from oncurve.icl.functions import FunctionSettings
from oncurve.icl.settings import LabSettings
from oncurve.icl.training import Training, train
from oncurve.report import read_evaluations


def settings(**functions) -> LabSettings:
    return LabSettings(functions=FunctionSettings(**({"dimension": 3} | functions)))


def predictor(predict) -> SimpleNamespace:
    """As far as an examination looks, a network."""
    return SimpleNamespace(predict=predict)


def test_the_error_is_over_the_normaliser_and_to_the_function_without_noise():
    noisy = settings(kind="sparse", sparsity=2, noise_std=3.0)
    prompts = held_out(noisy, 4)
    errors = squared_errors(noisy, prompts.clean + 0.5, prompts)
    torch.testing.assert_close(errors, torch.full((4, 7), 0.125, dtype=torch.float64), atol=1e-6, rtol=0)  # 0.25 / 2


def test_least_squares_examined_has_ratio_one_and_is_exact_from_d_examples_on():
    found = examine(settings(), predictor(least_squares), step=5, num_prompts=1280)
    assert (found.step, found.num_prompts, found.dimension, found.reference) == (5, 1280, 3, "least squares")
    assert found.ratio_mean == found.ratio_below_d == found.ratio_reference == 1.0
    assert found.ratio_mean_interval == (1.0, 1.0)
    assert found.e_2d == pytest.approx(0.0, abs=1e-6)
    model = found.curves[0]
    assert [one.name for one in found.curves][:2] == ["model", "least squares"]
    # n independent directions are known of d: E(n) = 1 - n/d
    expected = (1.0, 2 / 3, 1 / 3, 0.0, 0.0, 0.0, 0.0)
    assert model.errors == pytest.approx(expected, abs=0.12)  # 4 standard errors


def test_answering_zero_is_three_times_worse_below_d_and_as_bad_as_can_be_beyond():
    found = examine(settings(), predictor(zero), step=0, num_prompts=1280)
    assert found.e_2d == pytest.approx(1.0, abs=0.12)
    assert found.ratio_below_d == pytest.approx(3 / (1 + 2 / 3 + 1 / 3), rel=0.15)
    assert found.ratio_mean == pytest.approx(7 / 2, rel=0.15)
    assert found.ratio_mean_interval[0] < found.ratio_mean < found.ratio_mean_interval[1]
    averaging = next(one for one in found.curves if one.name == "averaging")
    assert found.averaging_ratio == pytest.approx(averaging.errors[6] / found.e_2d)


def test_noise_makes_ridge_the_reference():
    found = examine(settings(noise_std=0.5), predictor(zero), step=0, num_prompts=200)
    assert found.reference == "ridge"
    ridge, squares = (next(one for one in found.curves if one.name == name) for name in ("ridge", "least squares"))
    assert sum(ridge.errors) < sum(squares.errors)
    assert found.ratio_reference > found.ratio_mean


@pytest.mark.parametrize(
    ("functions", "name"),
    [
        ({"kind": "sparse", "sparsity": 1}, "Lasso"),
        ({"kind": "tree", "tree_depth": 2}, "boosted trees on signs"),
    ],
)
def test_other_classes_are_set_against_the_best_known_for_them_and_not_least_squares(functions, name):
    found = examine(settings(**functions), predictor(zero), step=0, num_prompts=80)
    assert found.reference == name
    assert found.reference_counts == (1, 2, 4, 5, 6)  # 6 examples at most, in fifths, rounded
    reference = found.curves[-1]
    assert (reference.name, reference.counts) == (name, (1, 2, 4, 5, 6))
    # The same fit by hand, on the first 64 of the 80 prompts.
    chosen = settings(**functions)
    prompts = held_out(chosen, 64)
    best = strong_baselines_for(chosen.functions, [1, 2, 4, 5, 6])[-1].predict(prompts.inputs, prompts.targets)
    theirs, mine = ((one - prompts.clean)[:, [1, 2, 4, 5, 6]].square().sum() for one in (best, zero(*_seen(prompts))))
    assert found.ratio_reference == pytest.approx(float(mine / theirs), rel=1e-5)
    rows = [row for row in csv.DictReader(curves_csv(found).splitlines()) if row["predictor"] == name]
    assert [row["examples"] for row in rows] == ["1", "2", "4", "5", "6"]


def _seen(prompts):
    return prompts.inputs, prompts.targets


def test_linear_functions_are_compared_at_every_number_of_examples_up_to_2d():
    longer = settings().model_copy(update={"num_points": 9})
    assert examine(longer, predictor(zero), step=0, num_prompts=20).reference_counts == tuple(range(7))


def test_the_wide_interval_holds_the_narrow_one_and_the_mean():
    found = examine(settings(), predictor(zero), step=0, num_prompts=200)
    for curve in found.curves:
        for error, inner, outer in zip(curve.errors, curve.interval_90, curve.interval_95, strict=True):
            assert outer[0] <= inner[0] <= error <= inner[1] <= outer[1]


def test_a_prompt_too_short_for_2d_examples_has_no_error_there():
    short = settings().model_copy(update={"num_points": 4})
    found = examine(short, predictor(zero), step=0, num_prompts=50)
    assert found.e_2d is None
    assert found.averaging_ratio is None
    assert len(found.curves[0].errors) == 4


def test_the_table_has_a_row_for_each_predictor_and_number_of_examples():
    found = examine(settings(), predictor(zero), step=0, num_prompts=50)
    rows = list(csv.DictReader(curves_csv(found).splitlines()))
    assert len(rows) == len(found.curves) * 7
    assert rows[2]["predictor"] == "model"
    assert rows[2]["examples"] == "2"
    assert float(rows[2]["error"]) == found.curves[0].errors[2]
    assert float(rows[2]["high_95"]) == found.curves[0].interval_95[2][1]
    assert float(rows[2]["median"]) == found.curves[0].medians[2]


def test_examining_a_run_writes_both_files_and_repeats_itself(tiny):
    with Training.create(tiny, {}) as training:
        list(train(training))
    run = Path(tiny.run_dir)
    found = examine_run(run)
    assert found.step == 8
    assert found.num_prompts == tiny.eval_prompts
    assert examine_run(run) == found
    (document,) = read_evaluations(run)
    assert document["e_2d"] == found.e_2d
    assert document["curves"][0]["errors"] == list(found.curves[0].errors)
    assert (run / "eval" / "step_8.csv").read_text() == curves_csv(found)
    assert examine_run(run, 20).num_prompts == 20
    assert json.dumps(found.summary())
