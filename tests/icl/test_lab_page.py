"""The page and its pictures, from a small run."""

import json
import re

import matplotlib.image
import pytest

from oncurve.icl.evaluate_run import examine_run
from oncurve.icl.report import render_lab_report
from oncurve.icl.report.drawings import FLOOR, Bars, BarSeries, Heat, Lines, curve
from oncurve.icl.report.page import gather, page_parts
from oncurve.icl.report.png import page_colours, picture
from oncurve.icl.traces import compare_traces
from oncurve.types import RunError
from tests.icl.lab_builder import build_lab, build_sweep, train_lab
from tests.icl.test_traces import simpson


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    run = build_lab(folder / "run")
    compare_traces(simpson(), run="<script>rl</script>").write(run / "traces.json")
    page = render_lab_report(run, sweep=build_sweep(folder / "sweep"))
    return run, page, folder / "sweep"


def test_every_part_is_there(lab):
    run, page, sweep = lab
    parts = page_parts(gather(run, sweep))
    assert [part.key for part in parts] == ["errors", "layers", "shift", "sizes", "traces"]
    assert [drawing.key for part in parts for drawing in part.drawings] == [
        "errors",
        "learning",
        "layers",
        "depth",
        "similarity-errors-newton",
        "similarity-errors-descent",
        "similarity-weights-newton",
        "similarity-weights-descent",
        "shift-2d",
        "shift-d",
        "shift-d-over-2",
        "sweep-sparse-s1-d3-k5",
        "sweep-tree-depth1-d2-k5",
        "sweep-relu-width3-d2-k5",
        "traces",
        "layers-error",
        "traces-training",
    ]
    text = page.read_text()
    for part in parts:
        assert f'id="{part.key}"' in text
        for finding in part.findings:
            assert finding.verdict in text


def test_the_page_is_whole_and_escapes_what_it_shows(lab):
    _, page, _ = lab
    text = page.read_text()
    assert "default-src &#39;none&#39;" in text
    assert "<script>rl" not in text
    assert "&lt;script&gt;rl&lt;/script&gt;" in text
    ours = text.partition('id="figures"')[0]
    assert not re.search(r'(?:src|href)="(?!#)', ours)


def test_every_drawing_has_a_picture(lab):
    run, page, _ = lab
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', page.read_text(), re.DOTALL)[1])
    pictures = sorted((run / "pictures").glob("*.png"))
    assert len(pictures) == len(figures) == 17
    for path in pictures:
        pixels = matplotlib.image.imread(path)
        assert min(pixels.shape[:2]) > 350
        assert pixels[..., :3].std() > 0.02  # not a blank sheet


def test_a_run_that_was_only_trained_has_a_learning_curve(tmp_path):
    run = train_lab(tmp_path / "run", steps=20)
    page = render_lab_report(run)
    assert [part.key for part in page_parts(gather(run, None))] == ["errors"]
    assert [path.name for path in (run / "pictures").iterdir()] == ["learning.png"]
    assert "0 findings" in page.read_text()


def test_no_run_no_page(tmp_path):
    with pytest.raises(RunError, match="is not a run folder"):
        render_lab_report(tmp_path)


def test_what_is_too_small_is_not_drawn_on_a_logarithmic_axis():
    one = curve("x", "--blue", [0, 1], [FLOOR / 2, 2 * FLOOR], is_log=True)
    assert one.values == [None, 2 * FLOOR]
    assert curve("x", "--blue", [0, 1], [FLOOR / 2, 1.0], is_log=False).values == [FLOOR / 2, 1.0]
    bars = Bars(
        key="b",
        title="",
        reading="",
        x_title="",
        labels=["a", "b"],
        series=[
            BarSeries(label="s", colour="--blue", values=[0.1, 1e-12], low=[0.05, 0.0], high=[0.3, 0.0]),
            BarSeries(label="m", colour="--red", values=[None, 0.2], is_mark=True),
        ],
    )
    bar, mark = bars.figure()["data"]
    assert bar["x"] == [0.1, None]
    assert bar["error_x"]["array"][0] == pytest.approx(0.2)
    assert bar["error_x"]["arrayminus"][0] == pytest.approx(0.05)
    assert mark["x"] == [None, 0.2]
    axes = picture(bars).axes[0]
    assert [round(patch.get_width(), 3) for patch in axes.patches] == [0.1]


def test_a_band_is_drawn_where_its_curve_is():
    # The second error is below what the axis shows, the third one's interval begins below it.
    band = [(0.1, 0.3), (0.0, FLOOR), (FLOOR / 4, 3 * FLOOR)]
    one = curve("c", "--blue", [0, 1, 2], [0.2, FLOOR / 2, 2 * FLOOR], is_log=True, band=band)
    assert (one.low, one.high) == ([0.1, None, FLOOR], [0.3, None, 3 * FLOOR])
    lines = Lines(key="l", title="", reading="", x_title="x", curves=[one], is_log=True)
    axes = picture(lines).axes[0]
    assert axes.lines[0].get_xdata().tolist() == [0, 2]
    assert set(axes.collections[0].get_paths()[0].vertices[:, 0]) == {0, 2}
    assert lines.figure()["data"][0]["x"] == (0, 2)


def test_an_axis_is_logarithmic_where_it_is_said_to_be():
    drawn = [curve("c", "--blue", [1, 10], [0.1, 1.0], is_log=True)]
    lines = Lines(key="l", title="", reading="", x_title="x", curves=drawn, is_log=True)
    assert lines.figure()["layout"]["yaxis"]["type"] == "log"
    assert picture(lines).axes[0].get_yscale() == "log"


def test_the_heat_map_marks_the_best_match():
    heat = Heat(
        key="h",
        title="",
        reading="",
        x_title="steps",
        columns=["0", "1", "3"],
        rows=[[0.9, 0.1, 0.0], [0.1, 0.2, 0.8]],
        marked=["0", "3"],
    )
    table, marks = heat.figure()["data"]
    assert table["z"][1] == [0.1, 0.2, 0.8]
    assert (marks["x"], marks["y"]) == (["0", "3"], [0, 1])
    assert picture(heat).axes[0].lines[0].get_xdata().tolist() == [0, 2]


def test_pictures_have_the_colours_of_the_page():
    assert page_colours()["--blue"] == "#2f6db3"
    assert page_colours()["--ink"] == "#1e1f22"


def test_a_run_on_trees_is_set_against_boosted_trees_and_drawn_where_they_were_fitted(tmp_path):
    run = train_lab(tmp_path / "run", steps=20, kind="tree", tree_depth=1)
    examine_run(run, 20)
    render_lab_report(run)
    (part,) = page_parts(gather(run, None))
    assert "times that of boosted trees on signs" in part.findings[0].text
    drawn = next(one for one in part.drawings[0].curves if one.label == "boosted trees on signs")
    assert list(drawn.steps) == [1, 2, 4, 5, 6]
