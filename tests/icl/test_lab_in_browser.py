"""The page as people see it: headless Chromium, from disk."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from oncurve.icl.report import render_lab_report
from oncurve.icl.traces import compare_traces
from tests.icl.lab_builder import build_lab, build_sweep
from tests.icl.test_traces import simpson

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
from test_report_in_browser import start_browser

pytestmark = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="needs a browser: apt-get install chromium chromium-driver",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    run = build_lab(folder / "run")
    compare_traces(simpson(), run="rl").write(run / "traces.json")
    return render_lab_report(run, sweep=build_sweep(folder / "sweep"))


@pytest.fixture(scope="module", params=[(1280, 900), (390, 844)], ids=["wide", "phone"])
def browser(request, page, tmp_path_factory) -> Iterator[webdriver.Chrome]:
    width, height = request.param
    browser = start_browser(tmp_path_factory.mktemp("profile"), width=width, height=height)
    try:
        browser.get(page.as_uri())
        yield browser
    finally:
        browser.quit()


def test_it_opens_without_an_error_and_draws_everything(browser):
    assert browser.get_log("browser") == []
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('.drawing')].map(drawing => drawing.querySelectorAll("
        "'path.js-line, .bars path, .heatmaplayer image, .points path').length)"
    )
    assert len(drawn) == 17
    assert min(drawn) >= 1


def test_nothing_is_wider_than_the_screen(browser):
    assert browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_drawings_have_the_height_that_they_ask_for(browser):
    gaps = browser.execute_script(
        "const asked = JSON.parse(document.getElementById('figures').textContent).map(figure => figure.layout.height);"
        "return asked.map((height, index) => Math.abs(document.querySelector(`#chart-${index} .main-svg`)"
        ".getBoundingClientRect().height - height))"
    )
    assert max(gaps) <= 1
