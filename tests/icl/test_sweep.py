"""The grid: what is finished stays, what was interrupted continues, what differs is refused."""

import pytest

from oncurve.icl.functions import FunctionSettings
from oncurve.icl.sweep import (
    Cell,
    SweepClass,
    SweepResult,
    SweepSettings,
    run_sweep,
)
from oncurve.types import RunError
from tests.icl.lab_builder import SMALL, SWEEP

ONE = SWEEP.model_copy(update={"classes": SWEEP.classes[:1]})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    made = []
    return folder, run_sweep(folder, SWEEP, on_cell=made.append), made


def test_every_cell_is_made_and_measured(finished):
    folder, result, made = finished
    assert result.num_missing == 0
    assert list(result.cells) == made
    assert len({(cell.label, cell.network, cell.seed) for cell in made}) == 3 * 2 * 2
    assert all(len(cell.errors) == 5 and cell.steps == 3 and cell.cpu_seconds > 0 for cell in made)
    # One block of width 16: attention 4 * 16^2 + 4 * 16, units 8 * 16^2 + 5 * 16, two norms.
    one, two = (result.of("sparse-s1-d3-k5", size)[0].num_weights for size in ("L1c16", "L2c16"))
    assert two - one == 12 * 16**2 + 9 * 16 + 4 * 16
    assert SweepResult.read(folder / "sweep.json") == result


def test_each_class_has_its_baselines(finished):
    _, result, _ = finished
    strong = {one.label: [] for one in result.baselines}
    for one in result.baselines:
        strong[one.label] += [one.name] if one.is_strong else []
    assert strong == {
        "sparse-s1-d3-k5": ["Lasso"],
        "tree-depth1-d2-k5": ["greedy tree", "greedy tree on signs", "boosted trees", "boosted trees on signs"],
        "relu-width3-d2-k5": ["two-layer network by Adam"],
    }
    lasso = next(one for one in result.baselines if one.name == "Lasso")
    assert [error is not None for error in lasso.errors] == [False, False, True, False, True]


def test_finished_cells_are_not_made_again(finished):
    folder, result, _ = finished
    again = []
    assert run_sweep(folder, SWEEP, on_cell=again.append) == result
    assert again == []


def test_an_interrupted_sweep_continues(tmp_path):
    calls = []

    def stop() -> bool:
        calls.append(1)
        return len(calls) == 5  # in the middle of the second cell

    part = run_sweep(tmp_path, ONE, should_stop=stop)
    assert (len(part.cells), part.num_missing) == (1, 3)
    whole = run_sweep(tmp_path, ONE)
    assert whole.num_missing == 0
    assert whole.cells[1].cpu_seconds is None
    fresh = run_sweep(tmp_path / "fresh", ONE)
    assert [cell.errors for cell in whole.cells] == [cell.errors for cell in fresh.cells]


def test_a_folder_of_other_settings_is_refused(finished):
    folder, _, _ = finished
    with pytest.raises(RunError, match=r"made with other settings \(batch_size\)"):
        run_sweep(folder, SWEEP.model_copy(update={"batch_size": 8}))


def test_baselines_are_measured_again_when_they_are_to_be_others(tmp_path):
    tiny = ONE.model_copy(update={"networks": SWEEP.networks[:1], "seeds": (0,), "steps": 1})
    first = run_sweep(tmp_path, tiny)
    more = run_sweep(tmp_path, tiny.model_copy(update={"num_counts": 4, "baseline_prompts": 6}))
    assert [sum(error is not None for error in one.baselines[-1].errors) for one in (first, more)] == [2, 4]


def test_the_networks_of_each_prompt_are_trained_as_long_as_said(finished, tmp_path):
    _, result, _ = finished
    relu = SWEEP.model_copy(
        update={"classes": SWEEP.classes[2:], "networks": SWEEP.networks[:1], "seeds": (0,), "network_steps": 60}
    )
    longer = run_sweep(tmp_path, relu).baselines[-1]
    assert longer.name == result.baselines[-1].name
    assert longer.errors != result.baselines[-1].errors


def test_the_spread_over_seeds():
    def cell(seed, last):
        return Cell(label="x", network="L1c16", num_weights=1, seed=seed, steps=1, errors=(9, 1, last), cpu_seconds=1)

    cells = tuple(cell(seed, last) for seed, last in enumerate((3, 5, 11)))
    found = SweepResult(settings=SWEEP, cells=cells, baselines=()).spread("x", "L1c16", [1, 2])
    assert (found.median, found.low, found.high, found.num_seeds) == (3, 2, 6, 3)
    assert SweepResult(settings=SWEEP, cells=cells, baselines=()).spread("y", "L1c16", [1]) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": ()}, "at least one class, one network and one seed"),
        ({"networks": (SMALL, SMALL)}, "same name"),
        ({"classes": (SweepClass(functions=FunctionSettings(), num_points=5),) * 2}, "same name"),
    ],
)
def test_grids_that_make_no_sense_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        SweepSettings(**change)
