import html
import json
import re

import pytest
from run_builder import (
    HOSTILE,
    append_groups,
    build_run,
    create_run,
    evaluation,
    hostile_group,
    make_group,
    make_task,
)

from oncurve.report import RunFolder, count_rollouts, read_rollouts, render_report, summarise
from oncurve.report.charts import MAX_CURVES, MAX_POINTS, Chart, charts, thinned
from oncurve.report.markup import named_texts
from oncurve.report.page import certainty, headline, measures
from oncurve.report.sample import MAX_BYTES, MAX_TEXT, sample_rollouts, shown
from oncurve.types import RunError, StorageError

MAX_PAGE_BYTES = 6_000_000


def page_of(run: RunFolder) -> str:
    return render_report(run.path).read_bytes().decode()


def figures_of(page: str) -> list[dict]:
    return json.loads(re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)[1])


def chart_named(found: list[Chart], title: str) -> Chart:
    return next(chart for chart in found if chart.title == title)


# the held-out result


def test_the_headline_says_what_was_found():
    assert headline(evaluation(0, 0.34), evaluation(160, 0.77)) == "Held-out accuracy rose from 34.0 % to 77.0 %"
    assert headline({"greedy": 0.5}, {"greedy": 0.25}) == "Held-out accuracy fell from 50.0 % to 25.0 %"
    assert headline({"greedy": 0.5}, {"greedy": 0.5}) == "Held-out accuracy stayed at 50.0 %"
    assert headline({"greedy": 0.5}, None) == "Held-out accuracy 50.0 % before training; no result after it yet"
    assert headline(None, {"greedy": 0.5}) == "Held-out accuracy 50.0 % after training"
    assert headline(None, {"pass_at_1": 0.5}) == "Not evaluated on held-out tasks yet"


def test_a_change_counts_only_when_the_intervals_are_apart():
    low, touching, high = {"interval": [0.1, 0.3]}, {"interval": [0.3, 0.5]}, {"interval": [0.31, 0.5]}
    assert "do not overlap" in certainty(low, high)
    assert "do not overlap" in certainty(high, low)
    assert "does not show a change" in certainty(low, touching)
    assert "does not show a change" in certainty(touching, low)
    assert certainty(low, {"greedy": 0.5}) == certainty(None, high) == ""


def test_the_measures_are_the_numbers_of_the_evaluations():
    rows = {row.label: row for row in measures(evaluation(0, 0.34), evaluation(160, 0.77))}
    greedy = rows["greedy"]
    assert (greedy.before, greedy.after) == ("34.0 % [28.0, 40.0]", "77.0 % [71.0, 83.0]")
    assert greedy.change == "+43.0 points"
    assert greedy.tracks == (("before", 28.0, 40.0, 34.0), ("after", 71.0, 83.0, 77.0))
    assert rows["pass@4"].after == "98.0 %"
    tokens = rows["tokens per correct answer"]  # 12.5/0.34 = 36.8, 12.5/0.77 = 16.2, a change of 0.34/0.77 - 1
    assert (tokens.before, tokens.after, tokens.change) == ("36.8", "16.2", "−56 %")


def test_what_was_not_measured_is_a_dash_and_not_a_zero():
    rows = {row.label: row for row in measures(None, {"greedy": 0.0, "tokens_per_correct": None})}
    assert (rows["greedy"].before, rows["greedy"].after, rows["greedy"].change) == ("–", "0.0 %", "–")
    assert rows["pass@k"].tracks == ()
    assert rows["tokens per correct answer"].after == "–"


# summarise


def test_a_summary_is_plain_data_of_the_whole_run(tmp_path):
    run = build_run(tmp_path / "run", num_steps=60)
    summary = summarise(run.path)
    assert json.loads(json.dumps(summary)) == summary
    assert (summary["steps"], summary["last_step"], summary["rollouts"]) == (60, 59, 60 * 32 + 8)
    assert (summary["eval_before"], summary["eval_after"]) == (evaluation(0, 0.34), evaluation(60, 0.77))
    assert summary["tokens_per_correct"] == 12.5 / 0.77
    assert summary["events"] == {"dropped_group": 1}
    assert summary["missing"] == []
    assert set(summary["seconds_by_phase"]) == {"rollout", "verify", "update"}
    assert summary["seconds"] == sum(summary["seconds_by_phase"].values())


def test_the_reward_of_a_summary_is_the_mean_of_the_ends(tmp_path):
    run = create_run(tmp_path / "run")
    for step in range(20):
        run.append_metrics({"step": step, "reward/mean": step / 10, "seconds/step": 2.0, "seconds/rollout": 1.5})
    summary = summarise(run)
    assert summary["reward"] == {"first": 0.05, "last": 1.85, "window": 2}  # (0 + 0.1)/2 and (1.8 + 1.9)/2
    assert (summary["seconds"], summary["seconds_by_phase"]) == (40.0, {"rollout": 30.0})
    assert summary["last"] == {"reward/mean": 1.9, "seconds/rollout": 1.5, "seconds/step": 2.0}


def test_a_summary_says_what_is_missing(tmp_path):
    run = create_run(tmp_path / "run")
    assert summarise(run)["missing"] == [
        "No step is recorded yet.",
        "No held-out evaluation is recorded yet.",
        "No rollouts are recorded.",
    ]
    run.append_metrics({"step": 1, "reward/mean": None})
    run.append_evaluation(1, {"greedy": 0.5})
    assert summarise(run)["missing"][0] == "There is no held-out evaluation after training yet."
    assert (summarise(run)["eval_before"], summarise(run)["eval_after"]) == ({"step": 1, "greedy": 0.5}, None)
    run.rewind(1)
    run.append_metrics({"step": 1, "reward/mean": None})
    run.append_evaluation(8, {"greedy": 0.5})
    summary = summarise(run)
    assert summary["missing"][0] == "The starting policy was not evaluated: there is no before."
    assert (summary["eval_before"], summary["eval_after"], summary["reward"]) == (
        None,
        {"step": 8, "greedy": 0.5},
        None,
    )
    run.append_evaluation(0, {"greedy": 0.25})
    assert summarise(run)["eval_before"] == {"step": 0, "greedy": 0.25}


# curves


def test_a_short_run_is_drawn_as_it_is_and_a_long_one_as_means():
    short = [{"step": step, "a": step} for step in range(MAX_POINTS)]
    assert thinned(short) == short
    long = [{"step": step, "a": None if step == 1 else float(step)} for step in range(2 * MAX_POINTS + 1)]
    rows = thinned(long)  # three steps a point
    assert len(rows) == 201
    assert rows[0] == {"step": 2, "a": 1.0}  # (0 + 2) / 2: what was not measured is left out
    assert rows[-1] == {"step": 600, "a": 600.0}  # 601 = 3 * 200 + 1: the last point is one step


def test_curves_are_the_recorded_numbers():
    metrics = [
        {"step": 3, "groups/all_right": 0.25, "groups/mixed": 0.75, "length/p50": 4, "length/p10": 2, "length/p90": 9},
        {
            "step": 4,
            "groups/all_right": 0.5,
            "groups/mixed": None,
            "length/p50": 5,
            "length/p10": None,
            "length/p90": 9,
        },
    ]
    found, missing = charts(metrics, [])
    assert [chart.title for chart in found] == ["Group composition", "Completion length"]
    assert {"Held-out accuracy", "Reward", "Entropy", "Seconds per step"} <= set(missing)
    data = chart_named(found, "Group composition").figure()["data"]
    assert [(trace["name"], trace["x"], trace["y"]) for trace in data] == [
        ("all right", [3, 4], [0.25, 0.5]),
        ("mixed", [3, 4], [0.75, None]),
    ]
    assert {trace["stackgroup"] for trace in data} == {"one"}
    low, high, median = chart_named(found, "Completion length").figure()["data"]
    assert (low["x"], low["y"], high["y"], high["fill"], median["y"]) == ((3,), [2.0], [9.0], "tonexty", [4.0, 5.0])


def test_held_out_curves_carry_their_intervals():
    found, _ = charts([], [evaluation(0, 0.5), {"step": 5, "greedy": 0.75, "k": 8}])
    chart = chart_named(found, "Held-out accuracy")
    assert [curve.label for curve in chart.curves] == ["greedy", "pass@1", "pass@k"]  # k differs: no single name
    low, high, greedy = chart.figure()["data"][:3]
    assert (low["y"], high["y"], greedy["y"], greedy["x"]) == ([0.44], [0.56], [0.5, 0.75], [0, 5])
    assert (chart.curves[0].first, chart.curves[0].last) == (0.5, 0.75)


def test_phases_and_components_are_found_by_name():
    metrics = [{"step": 0, "seconds/step": 9, "seconds/rollout": 5, "seconds/odd": 1, "component/tag<b>/mean": 1.0}]
    metrics[0] |= {f"tokens_per_second/{index}": 1.0 for index in range(MAX_CURVES + 2)}
    found, _ = charts(metrics, [])
    assert [curve.label for curve in chart_named(found, "Seconds per step").curves] == ["rollout", "odd"]
    assert chart_named(found, "Reward components").figure()["data"][0]["name"] == "tag&lt;b&gt;"
    speed = chart_named(found, "Tokens per second")
    assert (len(speed.curves), speed.num_left_out) == (MAX_CURVES, 2)


@pytest.mark.parametrize(("smallest", "kind"), [(1e-9, "log"), (0.0, None)])
def test_the_gap_is_logarithmic_unless_it_is_zero(smallest, kind):
    found, _ = charts([{"step": 0, "gap/max_abs": 1e-3, "gap/mean_abs": smallest}], [])
    assert found[0].figure()["layout"]["yaxis"].get("type") == kind


# the rollouts shown


def test_the_sample_spans_the_run_and_shows_mixed_groups_first(tmp_path):
    run = create_run(tmp_path / "run")
    groups = [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 0.1], [None, None], [1.0, 0.0]]
    for step in range(11):
        append_groups(run, step, [make_group(number, rewards) for number, rewards in enumerate(groups)])
    samples = sample_rollouts(run)
    assert [sample.step for sample in samples] == [0, 2, 5, 8, 10]
    assert [group.members[0].group for group in samples[0].groups] == [7, 5, 0, 6, 1, 2]
    assert (samples[0].num_groups, samples[0].groups[0].size) == (8, 2)


def test_the_sample_keeps_within_its_bytes_and_counts_the_rest(tmp_path):
    run = create_run(tmp_path / "run")
    append_groups(run, 0, [make_group(n, [0.0] * 64, texts=["<" * 9000] * 64) for n in range(4)])
    (sample,) = sample_rollouts(run)
    page = page_of(run)
    num_shown = page.count('class="member')
    assert 0 < num_shown < 64 * 4
    assert num_shown * 4 * MAX_TEXT < MAX_BYTES
    assert f"{len(sample.groups[0].members)} of 64 completions" in page
    assert f"… {9000 - MAX_TEXT} more characters" in page


def test_nothing_invisible_is_shown():
    assert shown("a\nb\tc 十 é 👍") == "a\nb\tc 十 é 👍"
    assert shown("\x00\x1b\r\u202e\u200b\u2028") == "⟨U+0000⟩⟨U+001B⟩⟨U+000D⟩⟨U+202E⟩⟨U+200B⟩⟨U+2028⟩"
    assert shown("abcd", 3) == "abc\n… 1 more characters"
    assert shown("abc", 3) == "abc"


# the page


def test_the_page_holds_the_run(tmp_path):
    run = build_run(tmp_path / "run", num_steps=30)
    page = page_of(run)
    assert "<title>Held-out accuracy rose from 34.0 % to 77.0 % · run</title>" in page
    assert html.escape("min( ratio A, clip(ratio, 1 - 0.2, 1 + 0.28) A )") in page
    assert "<dt>objective.clip_high</dt><dd>0.28</dd>" in page
    assert "<dt>python</dt><dd>3.11.7</dd>" in page
    assert "countdown-49: fewer than two verdicts" in page
    assert "Not recorded in this run: Ratio." in page
    assert "5 of 30 steps are shown" in page
    assert len(page.encode()) < MAX_PAGE_BYTES
    assert len(figures_of(page)) == page.count("<figure") == page.count('class="drawing"') + page.count('class="flame"')


def test_the_same_records_give_the_same_page(tmp_path):
    pages = {page_of(build_run(tmp_path / name / "run", num_steps=5)) for name in "ab"}
    assert len(pages) == 1


def test_hostile_text_is_text(tmp_path):
    run = create_run(tmp_path / "<run>")
    run.append_metrics({"step": 0, "component/</script><b>/mean": 1.0, "component/<!--\u2028/mean": 1.0})
    run.append_rollouts(0, [hostile_group(0)], [[0.0] * 8])
    for text in HOSTILE:
        run.append_event(0, text, text, text=text)
    page = page_of(run)
    body = page.replace(re.search(r"<script>.*</script>", page, re.DOTALL)[0], "")  # plotly and our script
    for text in HOSTILE:
        assert html.escape(shown(text)).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in body
    assert set(re.findall(r"<(?:script|img|svg|a|iframe|link|style|b)\b[^>]*>", body)) == {
        '<script type="application/json" id="figures">',
        "<style>",
        "<b>",
        *(f'<a href="#{part}">' for part in ("result", "formula", "curves", "costs", "events", "rollouts")),
    }
    assert "<!--" not in body
    assert "\u2028" not in body


@pytest.mark.parametrize("num_steps", [0, 1])
def test_a_run_that_has_just_begun_has_a_page(tmp_path, num_steps):
    run = create_run(tmp_path / "run")
    for step in range(num_steps):
        run.append_metrics({"step": step, "reward/mean": 0.5, "clip/low": None})
    page = page_of(run)
    assert "No held-out evaluation is recorded yet." in page
    assert ("No step is recorded yet." in page) == (num_steps == 0)
    assert len(figures_of(page)) == num_steps


def test_evaluations_with_little_in_them_are_shown(tmp_path):
    run = create_run(tmp_path / "run")
    run.append_evaluation(0, {})
    run.append_evaluation(4, {"greedy": 0.5, "by_kind": {"a": 0.25, "b": {"pass_at_1": 0.75}, "c": {"note": "x"}}})
    page = page_of(run)
    assert '<td>a</td><td class="value">–</td><td class="value after">25.0 %</td>' in page
    assert '<td>b</td><td class="value">–</td><td class="value after">75.0 %</td>' in page
    assert '<td>c</td><td class="value">–</td><td class="value after">–</td>' in page


def test_a_config_that_is_no_toml_is_shown_as_it_is(tmp_path):
    run = create_run(tmp_path / "run")
    (run.path / "config.toml").write_text("= broken <")
    assert "<dd>= broken &lt;</dd>" in page_of(run)


def test_a_long_run_with_long_texts_stays_small(tmp_path):
    run = create_run(tmp_path / "run")
    names = [f"component/part-{index}-{'x' * 100}/mean" for index in range(30)] + ["reward/mean", "kl/reference"]
    for step in range(1500):
        run.append_metrics({"step": step} | dict.fromkeys(names, 1 / (step + 3)))
        run.append_event(step, f"kind-{step}", "&" * 5000, text="&" * 5000)
    texts = ["<&\"'" * 5000] * 16
    task = make_task(1, prompt="<" * 50_000, gold="&" * 50_000)
    for step in range(6):
        append_groups(run, step, [make_group(1, [1.0, 0.0] * 8, texts=texts, task=task) for _ in range(8)])
    page = page_of(run)
    assert len(page.encode()) < MAX_PAGE_BYTES
    assert "The latest 150 of 1500." in page
    assert "<td>kind-1499</td>" in page
    assert "<td>kind-1349</td>" not in page
    assert "Each point is the mean of 5 consecutive steps." in page


def test_sealed_and_open_rollouts_give_the_same_page(tmp_path):
    run = build_run(tmp_path / "run", num_steps=25, is_final=False)
    before = page_of(run)
    run.seal(is_final=True)
    assert page_of(run) == before
    assert len(list(read_rollouts(run))) == sum(count_rollouts(run).values())


def test_a_folder_that_is_no_run_gets_no_page(tmp_path):
    with pytest.raises(RunError, match="is not a run folder"):
        render_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_cannot_be_written_is_one_clear_error(tmp_path):
    run = create_run(tmp_path / "run")
    (run.path / "report.html").mkdir()
    with pytest.raises(StorageError, match=r"cannot write .*report\.html: Is a directory"):
        render_report(run.path)


def test_a_change_on_the_same_tasks_is_judged_by_the_answers_that_changed() -> None:
    # Ten tasks won and one lost: twice the chance of at most 1 of 11 heads is 2 * 12 / 2048 = 0.0117.
    before = {"task_digest": "a", "greedy_correct": "1" + "0" * 10 + "1" * 5, "interval": [0.2, 0.6]}
    after = {"task_digest": "a", "greedy_correct": "0" + "1" * 10 + "1" * 5, "interval": [0.5, 0.99]}
    assert certainty(before, after) == (
        "10 held-out tasks became right and 1 wrong: chance alone hardly does that (exact sign test, p 0.012)."
    )
    assert "No held-out answer changed" in certainty(before, before)
    assert "overlap" in certainty(before, after | {"task_digest": "b"})


def test_the_curve_of_held_out_accuracy_shows_what_hostile_completions_are_paid():
    rows = [evaluation(0, 0.25) | {"adversarial": {"paid_frac": 0.5}}, evaluation(2, 0.5) | {"adversarial": None}]
    (held_out,), _ = charts([], rows)
    (curve,) = (one for one in held_out.curves if one.label == "hostile completions paid")
    assert curve.values == [0.5, None]
    (without,), _ = charts([], [evaluation(0, 0.25)])
    assert "hostile completions paid" not in {one.label for one in without.curves}


def test_settings_are_shown_by_dotted_name_text_as_it_is_and_all_else_as_json():
    table = {"name": "a", "network": {"width": 8, "blocks": {"bias": True}}, "seeds": [1, 2], "empty": {}}
    assert named_texts(table) == [
        ("name", "a"),
        ("network.width", "8"),
        ("network.blocks.bias", "true"),
        ("seeds", "[1, 2]"),
    ]
