"""The page as people see it: headless Chromium, from disk."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_builder import HOSTILE, build_run
from selenium import webdriver
from selenium.webdriver.common.by import By

from oncurve.report import RunFolder, render_report
from oncurve.report.sample import shown

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs a browser: apt-get install chromium chromium-driver"
)


def start_browser(profile: Path, *, width: int, height: int) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    return browser


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    run = build_run(tmp_path_factory.mktemp("browser") / "run", num_steps=41)
    for text in HOSTILE:
        run.append_event(40, text, text, text=text)
    render_report(run.path)
    return run


@pytest.fixture(scope="module", params=[(1280, 900), (390, 844)], ids=["wide", "phone"])
def browser(request, run, tmp_path_factory) -> Iterator[webdriver.Chrome]:
    width, height = request.param
    browser = start_browser(tmp_path_factory.mktemp("profile"), width=width, height=height)
    try:
        browser.get("about:blank")
        browser.get_log("performance")  # what the browser itself loaded when it started
        browser.get(run.report_path.as_uri())
        yield browser
    finally:
        browser.quit()


def test_it_opens_from_disk_without_an_error_or_a_request(browser, run):
    assert "Held-out accuracy rose" in browser.title
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requested = [
        event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in requested if not url.startswith(("data:", "blob:"))] == [run.report_path.as_uri()]


def test_every_curve_is_drawn(browser):
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('.drawing')].map(drawing => "
        "[...drawing.querySelectorAll('path.js-line, path.js-fill')]"
        ".filter(path => path.getAttribute('d').length > 9).length)"
    )
    assert len(drawn) == 13
    assert min(drawn) >= 1


def test_the_seconds_of_a_step_are_drawn_as_wide_as_they_are_long(browser):
    # Every step of the builder: 0.7 of rollout, 0.02 of verify, 0.5 of update and 0.005 of record, times a jitter, and
    # 1.5 of evaluation every 20 steps of 41.
    blocks = browser.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('#flame g.slice')].map(slice => "
        "[slice.__data__.data.id, slice.querySelector('path.surface').getBoundingClientRect().width]))"
    )
    names = {"step", "rollout", "verify", "update", "update/forward", "update/backward", "record", "evaluation"}
    assert set(blocks) == names
    assert blocks["update"] / blocks["rollout"] == pytest.approx(5 / 7, rel=0.05)
    assert blocks["update/backward"] / blocks["update"] == pytest.approx(1 / 2, rel=0.05)
    assert blocks["evaluation"] / blocks["rollout"] == pytest.approx(1.5 * 3 / 41 / 0.7, rel=0.1)
    written = browser.execute_script(
        "return [...document.querySelectorAll('#flame .slicetext')].map(text => text.textContent)"
    )
    assert any(text.startswith("rollout") for text in written)
    assert browser.find_elements(By.CSS_SELECTOR, "#flame .xy, #flame .cartesianlayer .subplot") == []  # no axes


def test_nothing_is_wider_than_the_screen(browser):
    assert browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth") <= 0


def test_a_step_is_selected_by_a_click(browser):
    def visible() -> list[str]:
        sections = browser.find_elements(By.CSS_SELECTOR, "section[data-step]")
        return [section.get_attribute("data-step") for section in sections if section.is_displayed()]

    assert visible() == ["40"]
    for step in ("0", "20", "40"):
        button = browser.find_element(By.CSS_SELECTOR, f"button[data-step='{step}']")
        browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
        button.click()
        assert visible() == [step]
        pressed = browser.find_elements(By.CSS_SELECTOR, "button[aria-pressed=true]")
        assert [button.text for button in pressed] == [step]


def test_hostile_text_is_shown_and_does_not_run(browser):
    assert browser.execute_script("return typeof window.hostile") == "undefined"
    texts = browser.execute_script(
        "return [...document.querySelectorAll('section[data-step=\"40\"] .member pre')].map(pre => pre.textContent)"
    )
    assert [shown(text) for text in HOSTILE] == [text for text in texts if text in {shown(text) for text in HOSTILE}]
    assert browser.find_elements(By.CSS_SELECTOR, "#rollouts :is(script, img, svg, iframe, link, style, a, b)") == []
    assert browser.find_elements(By.CSS_SELECTOR, "#events :is(script, img, svg, iframe, link, style, a, b)") == []


def test_a_script_that_got_in_would_still_not_run(browser):
    browser.execute_script(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hostile = 9\">');"
        "const script = document.createElement('script'); script.textContent = 'window.hostile = 8';"
        "document.body.append(script);"
    )
    browser.execute_async_script("setTimeout(arguments[0], 100)")
    assert browser.execute_script("return typeof window.hostile") == "undefined"
    assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))
