"""Findings follow from figures: each with a case that agrees, one that differs, and one that does not decide."""

import pytest

from oncurve.icl.probe import Match, Matching, ProbeResult, ProbeSettings
from oncurve.icl.report.findings import (
    class_findings,
    curve_findings,
    probe_findings,
    shift_findings,
    sweep_findings,
    trace_finding,
)
from oncurve.icl.shift import Measured, ShiftResult, ShiftSettings
from oncurve.icl.sweep import BaselineCurve, Cell, SweepResult, SweepSettings
from oncurve.icl.traces import compare_traces
from oncurve.icl.trend import trend
from tests.icl.test_traces import rollout, simpson


def test_close_to_least_squares():
    exact = [1.0, 0.5, 0.0, 0.0, 0.0]
    (good,) = curve_findings([1.0, 0.5, 0.2, 0.1, 0.04], exact, "least squares", 2)
    assert good.agrees is True
    assert "1 times that of least squares, over all numbers of examples 1.23 times; E(4) is 0.04" in good.text
    assert curve_findings([1.0, 0.5, 0.2, 0.1, 0.06], exact, "least squares", 2)[0].agrees is False
    assert curve_findings([1.4, 0.5, 0.2, 0.1, 0.04], exact, "least squares", 2)[0].agrees is False


def test_close_to_ridge():
    ridge = [1.0, 0.5, 0.3, 0.2, 0.1]
    (good,) = curve_findings([1.0, 0.5, 0.35, 0.2, 0.14], ridge, "ridge", 2)
    assert good.agrees is True
    assert good.text.endswith("E(4) is 0.14, ridge 0.1.")
    assert curve_findings([1.0, 0.5, 0.5, 0.5, 0.5], ridge, "ridge", 2)[0].agrees is False


def test_other_classes_are_compared_with_what_was_made_for_them():
    found = {
        "ratio_reference": 1.2,
        "ratio_below_d": 0.98,
        "reference": "Lasso",
        "reference_counts": [2, 4],
        "dimension": 3,
    }
    near, sparse = class_findings(found, "sparse")
    assert (near.agrees, sparse.agrees) == (True, True)
    assert near.text == "Over 2, 4 examples the mean error is 1.2 times that of Lasso."
    assert "fewer than d = 3 examples the mean error is 0.98 times that of least squares" in sparse.text
    near, sparse = class_findings(found | {"ratio_reference": 1.21, "ratio_below_d": 1.0}, "sparse")
    assert (near.agrees, sparse.agrees) == (False, False)
    assert len(class_findings(found, "tree")) == 1


def probed(newton, descent, means=(1.0, 0.7, 0.5, 0.3, 0.2)):
    def matching(matched):
        rows = tuple((0.5, 0.9) for _ in matched)
        by_errors, by_weights = (
            Match(similarities=rows, matched=tuple(one), trend=trend(one, 100)) for one in (matched, matched[::-1])
        )
        return Matching(
            iterations=(0, 100), errors=((1.0, 1.0), (0.0, 0.0)), by_errors=by_errors, by_weights=by_weights
        )

    return ProbeResult(
        settings=ProbeSettings(),
        dimension=2,
        model_errors=(1.0, 0.1),
        layer_errors=tuple((mean, mean) for mean in means),
        reference_name="least squares",
        reference_errors=(1.0, 0.0),
        reference_similarities=tuple(0.5 for _ in means),
        weight_counts=(1, 2),
        newton=matching(newton),
        descent=matching(descent),
    )


def test_layers_and_iterations():
    falls, matched, by_weights = probe_findings(probed([0, 3, 6, 9, 12], [0, 2, 4, 8, 16]))
    assert falls.agrees is True
    assert "1 → 0.7 → 0.5 → 0.3 → 0.2" in falls.text
    assert matched.agrees is True
    assert "3 iterations more a layer (linear R² 1.000)" in matched.text
    assert "2 times as many a layer (geometric R² 1.000)" in matched.text
    assert matched.text.startswith("By their errors, layers match 0, 3, 6, 9, 12 Newton iterations and 0, 2, 4, 8, 16")
    assert by_weights.text.startswith(
        "By their induced weights, layers match 12, 9, 6, 3, 0 Newton iterations and 16, 8"
    )
    assert "-3 iterations more a layer (linear R² 1.000)" in by_weights.text
    assert probe_findings(probed([0, 2, 4, 8, 16], [0, 2, 4, 8, 16]))[1].agrees is False
    assert probe_findings(probed([0, 3, 6, 9, 12], [0, 3, 6, 9, 12]))[1].agrees is False
    assert probe_findings(probed([0, 0, 0, 9, 12], [0, 2, 4, 8, 16]))[1].agrees is None
    assert probe_findings(probed([0, 3, 6, 9, 12], [0, 2, 4, 8, 16], (1, 0.7, 0.8, 0.3, 0.2)))[0].agrees is False
    assert probe_findings(probed([0, 3, 6, 9, 12], [0, 2, 4, 8, 16], (1, 0.9, 0.8, 0.7, 0.6)))[0].agrees is False


def shifted(**errors):
    rows = []
    for name, error in errors.items():
        case, _, place = name.rpartition("@")
        rows.append(
            Measured(
                name=case,
                family="f",
                count=4,
                place=place,
                error=error,
                interval=(error, error),
                reference_name="least squares",
                reference_error=1.0,
                paper=None,
            )
        )
    return ShiftResult(settings=ShiftSettings(), dimension=2, paper_source="", rows=tuple(rows))


def test_scales():
    (worse,) = shift_findings(shifted(**{"weights × 2@2d": 0.1, "inputs × 2@2d": 0.2}))
    assert worse.agrees is True
    assert "1 of 1 cases" in worse.text
    mixed = {"weights × 2@2d": 0.1, "inputs × 2@2d": 0.2, "weights × 3@2d": 0.5, "inputs × 3@2d": 0.4}
    (found,) = shift_findings(shifted(**mixed))
    assert found.agrees is False
    assert "1 of 2 cases" in found.text


def test_other_shifts():
    good = {"as in training@2d": 0.01, "skewed covariance@2d": 0.1, "query is an example@2d": 0.01}
    assert shift_findings(shifted(**good))[0].agrees is True
    assert shift_findings(shifted(**good | {"random orthant@2d": 0.11}))[0].agrees is False
    assert shift_findings(shifted(**{"query orthogonal to the examples@d/2": 1.09}))[0].agrees is True
    assert shift_findings(shifted(**{"query orthogonal to the examples@d/2": 0.89}))[0].agrees is False
    assert shift_findings(shifted(**{"noisy targets@d": 0.5}))[0].agrees is None
    assert shift_findings(shifted()) == []


def swept(errors, lasso, *, seeds=(0,)):
    settings = SweepSettings(num_counts=2, seeds=seeds)
    label = settings.classes[0].label
    cells = [
        Cell(label=label, network=size, num_weights=1, seed=seed, steps=1, errors=(error,) * 17, cpu_seconds=1)
        for size, values in zip(("L2c32", "L3c64", "L4c96"), errors, strict=False)
        for seed, error in enumerate(values)
    ]
    curve = BaselineCurve(label=label, name="Lasso", is_strong=True, errors=(lasso,) * 17)
    return SweepResult(settings=settings, cells=tuple(cells), baselines=(curve,))


def test_sizes():
    size, strong = sweep_findings(swept([(0.9, 0.7), (0.5, 0.5), (0.2, 0.2)], 0.2, seeds=(0, 1)))
    assert (size.agrees, strong.agrees) == (True, True)
    assert "L2c32 0.800 [0.700, 0.900], L3c64 0.500 [0.500, 0.500], L4c96 0.200" in size.text
    assert "(2 seeds at least" in size.text
    size, strong = sweep_findings(swept([(0.9,), (0.3,), (0.5,)], 0.2))
    assert (size.agrees, strong.agrees) == (False, False)
    assert "L2c32 0.900, L3c64 0.300, L4c96 0.500 (1 seed at least" in size.text


@pytest.mark.parametrize("errors", [[(0.9,), (0.5,)], [(0.9, 0.7), (0.5, 0.5), (0.2,)]])
def test_an_interrupted_sweep_decides_nothing(errors):
    part = swept(errors, 0.5, seeds=(0, 1))
    assert part.num_missing > 0
    assert [one.verdict for one in sweep_findings(part)] == ["not decided", "not decided"]
    assert len(sweep_findings(swept([(0.9,)], 0.2))) == 1


def test_traces():
    better = trace_finding(compare_traces(simpson()))
    assert better.agrees is None
    assert "longer traces come with a lower error: Spearman −0.775" in better.text
    assert "Over all completions it is +0.1" in better.text
    worse = [
        rollout(length, is_right=right, group=group, task=f"t{group}")
        for group in range(6)
        for length, right in ((4, True), (8, True), (16 + group, False))
    ]
    assert "come with a higher error" in trace_finding(compare_traces(worse)).text
    assert "nothing can be said" in trace_finding(compare_traces([rollout(3, is_right=True)])).text


def test_truncated_completions_do_not_decide():
    rows = [
        rollout(length, is_right=right, group=group, task=f"t{group}", cut=cut)
        for group in range(4)
        for length, right, cut in ((4, False, False), (9, True, False), (64, False, True))
    ]
    found = trace_finding(compare_traces(rows))
    assert "come with a lower error" in found.text
    assert "The 4 truncated completions are left out." in found.text


@pytest.mark.parametrize("agrees", [True, False, None])
def test_verdicts_have_words(agrees):
    from oncurve.icl.report.findings import Finding

    words = {True: "agrees", False: "differs", None: "not decided"}
    assert Finding(text="", condition="", agrees=agrees, source="").verdict == words[agrees]
