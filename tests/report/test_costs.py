"""What a run cost, from three steps that can be added up on paper."""

import json
import re

import pytest
from run_builder import create_run

from oncurve.report import render_report, summarise
from oncurve.report.costs import (
    Costs,
    as_memory,
    as_time,
    cost_cells,
    cost_facts,
    cost_segments,
    costs_of,
    with_collection,
)

STEPS = [
    {
        "step": step,
        "seconds/rollout": 3.0,
        "seconds/verify": 0.25,
        "seconds/verify_busy": 2.5,  # beside the rollout, no phase of its own
        "seconds/update": 1.0 + step,
        "seconds/reference": 0.5 if step else None,
        "tokens/completion": 100.0,
        "tokens/trained": 40.0 * step,
        "completions/correct": 2.0 + step,
        "memory/peak_bytes": 1000.0 * (3 - step),
    }
    for step in range(3)
]
BEFORE, AFTER = {"greedy": 0.125, "num_tasks": 16}, {"greedy": 0.4375, "num_tasks": 16}


def test_the_account_adds_up():
    costs = costs_of(STEPS, BEFORE, AFTER)
    assert dict(costs.seconds) == {"rollout": 9.0, "verify": 0.75, "reference": 1.0, "update": 6.0}
    assert list(costs.seconds) == ["rollout", "verify", "reference", "update"]  # the order of a step
    assert (costs.steps, costs.total) == (3, 16.75)
    assert (costs.rollout_tokens, costs.trained_tokens) == (300, 120)
    assert (costs.correct, costs.peak_bytes) == (9, 3000)  # 2 + 3 + 4 right ones; the most, not the last
    assert (costs.held_out_correct, costs.held_out_gained) == (7, 5)  # 16 * 0.4375 and 16 * 0.125 less
    assert costs.tokens_per_correct == 300 / 9
    assert costs.seconds_per_gained == 16.75 / 5


def test_a_row_divides_by_steps_by_right_completions_and_by_right_held_out_tasks():
    rollout, *_, update, total = costs_of(STEPS, BEFORE, AFTER).rows()
    assert (rollout.phase, rollout.share) == ("rollout", 9 / 16.75)
    assert (rollout.per_step, rollout.per_correct, rollout.per_held_out_correct) == (3.0, 1.0, 9 / 7)
    assert (update.phase, update.per_step) == ("update", 2.0)
    assert (total.phase, total.seconds, total.share, total.per_correct) == ("total", 16.75, 1.0, 16.75 / 9)


def test_what_cannot_be_divided_is_a_dash_and_not_a_zero():
    nothing_right = costs_of([STEPS[0] | {"completions/correct": 0.0}], None, {"greedy": 0.0, "num_tasks": 16})
    assert cost_cells(nothing_right)[0] == ("rollout", ["3 s", "70.6 %", "3 s", "–", "–"])  # 3 / 4.25
    assert (nothing_right.tokens_per_correct, nothing_right.held_out_gained) == (None, None)
    older = costs_of([{"step": 0, "seconds/rollout": 1.0, "tokens/completion": 5.0}])
    assert (older.correct, older.peak_bytes, older.held_out_correct) == (None, None, None)
    assert costs_of([]).rows() == []


def test_fewer_right_answers_than_before_have_no_price():
    worse = costs_of(STEPS, AFTER, BEFORE)
    assert (worse.held_out_gained, worse.seconds_per_gained) == (-5, None)
    assert dict(cost_facts(worse))["held-out tasks won"] == "-5"


def test_given_completions_are_trained_and_not_sampled():
    own = costs_of([{"step": 0, "seconds/update": 2.0, "tokens/completion": 70.0}], BEFORE, AFTER, samples=False)
    assert (own.rollout_tokens, own.trained_tokens, own.correct) == (0, 70, None)


def test_a_collection_is_paid_by_whoever_learns_from_it():
    collection = costs_of(STEPS[:2])
    own = costs_of([{"step": 0, "seconds/update": 4.0, "tokens/completion": 70.0}], BEFORE, AFTER, samples=False)
    both = with_collection(collection, own)
    assert dict(both.seconds) == {"rollout": 6.0, "verify": 0.5, "reference": 0.5, "update": 3.0 + 4.0}
    assert (both.steps, both.rollout_tokens, both.trained_tokens) == (1, 200, 40 + 70)
    assert (both.correct, both.held_out_gained, both.peak_bytes) == (5, 5, 3000)


def test_a_bar_is_as_long_as_its_seconds():
    costs = costs_of(STEPS)
    assert sum(segment.percent for segment in cost_segments(costs)) == pytest.approx(100.0, abs=0.01)
    first = cost_segments(costs, longest=33.5)[0]
    assert (first.percent, first.colour, first.title) == (round(900 / 33.5, 3), "--blue", "rollout 9 s")
    assert cost_segments(costs_of([])) == []


def test_times_and_memory_are_short():
    assert [as_time(value) for value in (None, 0.0, 0.01234, 1.5, 99.94, 1234.5)] == [
        *("–", "0 s", "12.3 ms", "1.5 s", "99.9 s", "1,234 s"),
    ]
    assert (as_memory(300 * 1024**2), as_memory(3 * 1024**3), as_memory(None)) == ("300 MiB", "3.00 GiB", None)


def test_the_summary_and_the_page_hold_the_account(tmp_path):
    run = create_run(tmp_path / "run")
    for row in STEPS:
        run.append_metrics(row)
    run.append_evaluation(0, BEFORE)
    run.append_evaluation(3, AFTER)
    costs = summarise(run)["costs"]
    assert json.loads(json.dumps(costs)) == costs == costs_of(STEPS, BEFORE, AFTER).as_dict()
    assert costs["phases"]["update"] == {
        "seconds": 6.0,
        "share": 6 / 16.75,
        "per_step": 2.0,
        "per_correct": 6 / 9,
        "per_held_out_correct": 6 / 7,
    }
    page = render_report(run.path).read_text()
    section = page[page.index('id="costs"') : page.index('id="events"')]
    rows = re.findall(r'<tr><th scope="row">(\w+)</th><td>([^<]*)</td>', section)
    expected = [("rollout", "9 s"), ("verify", "750 ms"), ("reference", "1 s"), ("update", "6 s"), ("total", "16.8 s")]
    assert rows == expected
    assert "<dt>tokens sampled per right completion</dt><dd>33.3</dd>" in section
    assert [float(width) for width in re.findall(r"width:([\d.]+)%", section)] == pytest.approx(
        [100 * part / 16.75 for part in (9, 0.75, 1, 6)], abs=1e-3
    )


def test_a_run_without_steps_has_no_account(tmp_path):
    page = render_report(create_run(tmp_path / "run").path).read_text()
    assert "Nothing measured yet." in page
    assert Costs(steps=0, seconds={}, rollout_tokens=0, trained_tokens=0, correct=None).as_dict()["phases"] == {}


def test_the_parts_of_a_phase_are_not_counted_again() -> None:
    row = {"step": 0, "seconds/update": 2.0, "seconds/update/forward": 0.5, "tokens/completion": 70.0}
    assert costs_of([row]).seconds == {"update": 2.0}
