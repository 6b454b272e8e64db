"""A finished comparison of arms as sentences, table, Markdown, data and page; the numbers are invented here."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from run_builder import HOSTILE

from oncurve.report.arms import (
    Accuracy,
    ArmResult,
    ArmsComparison,
    CurvePoint,
    Lead,
    Paired,
    arm_rows,
    arms_markdown,
    arms_table,
    lead_sentences,
)
from oncurve.report.arms_page import accuracy_charts, render_arms
from oncurve.report.costs import Costs
from oncurve.types import StorageError


def accuracy(mean: float, against: Paired | None = None) -> Accuracy:
    return Accuracy(
        mean=mean, interval=(mean - 0.1, mean + 0.1), seeds=(mean - 0.05, mean + 0.05), against_first=against
    )


def arm(
    name: str, mean: float, seconds: dict[str, float], *, against: Paired | None = None, critic: int = 0
) -> ArmResult:
    return ArmResult(
        name=name,
        data="its own samples",
        is_online=critic > 0,
        baseline="group_zscore",
        constraint="clip 0.2/0.2",
        trained_parameters=618752,
        critic_parameters=critic,
        costs=Costs(
            steps=10,
            seconds=seconds,
            rollout_tokens=1000,
            trained_tokens=800,
            correct=40,
            held_out_correct=60,
            held_out_gained=20,
            peak_bytes=512 * 1024**2,
        ),
        start=0.125,
        greedy=accuracy(mean, against),
        pass_at_1=accuracy(mean - 0.02, against),
        in_time=accuracy(mean - 0.1, against),
        curve=(
            CurvePoint(tokens=0.0, seconds=0.0, mean=0.125, low=0.1, high=0.15),
            CurvePoint(tokens=1000.0, seconds=20.0, mean=mean, low=mean - 0.05, high=mean + 0.05),
        ),
        formula=f"minimise\n  L of {name}",
    )


def comparison(*arms: ArmResult, p: float = 0.01, difference: float = 0.1) -> ArmsComparison:
    lead = Lead(best=arms[-1].name, second=arms[0].name, paired=Paired(difference=difference, p=p))
    return ArmsComparison(
        name="algorithms",
        tokens=1000,
        seeds=(0, 1),
        num_tasks=64,
        num_samples=4,
        shortest_seconds=12.5,
        at_equal_tokens=lead,
        at_equal_time=lead,
        arms=arms,
    )


GRPO = arm("grpo", 0.5, {"rollout": 6.0, "update": 14.0})
PPO = arm(
    "ppo",
    0.6,
    {"rollout": 6.0, "critic": 4.0, "update": 30.0},
    against=Paired(difference=-0.1, p=0.034),
    critic=600000,
)
PAIR = comparison(GRPO, PPO)


def cells(label: str, of: ArmsComparison = PAIR) -> list[str]:
    return next(found for name, found in arm_rows(of) if name.strip() == label)


def test_the_rows_are_the_numbers():
    assert cells("greedy, equal tokens") == ["50.0 % [40.0, 60.0]", "60.0 % [50.0, 70.0]"]
    assert cells("each seed") == ["45.0 55.0", "55.0 65.0"]
    assert cells("against grpo") == ["–", "−10.0 (p 0.034)"]
    assert cells("pass@1, equal tokens")[0].startswith("48.0 %")
    assert cells("greedy, equal time (12.5 s)") == ["40.0 % [30.0, 50.0]", "50.0 % [40.0, 60.0]"]
    assert cells("of the critic, besides") == ["–", "600,000"]
    assert cells("peak memory") == ["512 MiB", "512 MiB"]
    assert (cells("seconds"), cells("rollout"), cells("critic")) == (["20 s", "40 s"], ["6 s", "6 s"], ["–", "4 s"])
    labels = [label for label, _ in arm_rows(PAIR)]
    assert labels[labels.index("seconds") + 1 :][:3] == ["  rollout", "  critic", "  update"]  # the order of a step
    assert cells("seconds per step") == ["2 s", "4 s"]
    assert cells("seconds per right completion") == ["500 ms", "1 s"]  # 20 / 40 and 40 / 40
    assert cells("seconds per held-out task won") == ["1 s", "2 s"]
    assert cells("tokens sampled per right completion") == ["25", "25"]


def test_a_measure_that_no_arm_has_is_left_out():
    alone = comparison(GRPO, replace(GRPO, name="raft"))
    assert not [label for label, _ in arm_rows(alone) if "critic, besides" in label]


@pytest.mark.parametrize(
    ("p", "difference", "says"),
    [
        (
            0.01,
            0.1,
            "ppo won with 60.0 %, +10.0 points on grpo with 50.0 % (p 0.01: other tasks would hardly turn that)",
        ),
        (0.05, 0.1, "(p 0.05: these tasks do not tell the two apart)"),
        (1.0, 0.0, "ppo and grpo share the lead with 60.0 %."),
    ],
)
def test_the_winner_is_said_with_how_sure_that_is(p, difference, says):
    tokens, seconds = lead_sentences(comparison(GRPO, PPO, p=p, difference=difference))
    assert tokens.startswith("At equal tokens (1,000 sampled): ")
    assert says in tokens
    assert seconds.startswith("At equal time (12.5 s of training): ")


def test_the_terminal_and_markdown_hold_every_row():
    console = Console(width=200)
    with console.capture() as captured:
        console.print(arms_table(PAIR))
    page = arms_markdown(PAIR)
    for label, found in arm_rows(PAIR):
        for text in (label.strip(), *found):
            assert text in captured.get()
            assert text in page
    assert "|  | grpo | ppo |" in page
    assert "## ppo\n\n```\nminimise\n  L of ppo\n```" in page
    assert lead_sentences(PAIR)[0] in page


def test_a_bar_in_a_cell_stays_in_its_cell():
    page = arms_markdown(comparison(replace(GRPO, baseline="a|b\nc"), PPO))
    assert "| baseline or critic | a\\|b c | group_zscore |" in page


def test_the_charts_are_the_curves_with_their_bands():
    (by_tokens, axis), (by_seconds, _) = accuracy_charts(PAIR)
    assert [curve.label for curve in by_tokens.curves] == ["grpo", "ppo"]
    assert (by_tokens.curves[1].steps, by_seconds.curves[1].steps) == ([0.0, 1000.0], [0.0, 20.0])
    assert by_tokens.curves[0].values == [0.125, 0.5]
    assert (by_tokens.curves[0].low, by_tokens.curves[0].high) == ([0.1, 0.45], [0.15, 0.55])
    assert axis["title"]["text"] == "sampled tokens"


def test_files_hold_the_same_comparison(tmp_path: Path):
    page = render_arms(PAIR, tmp_path / "new" / "folder").read_text(encoding="utf-8")
    data = json.loads((tmp_path / "new" / "folder" / "comparison.json").read_text(encoding="utf-8"))
    assert data == json.loads(json.dumps(PAIR.as_dict()))
    assert data["arms"][1]["costs"]["phases"]["critic"]["share"] == 0.1  # 4 of 40 s
    assert (tmp_path / "new" / "folder" / "comparison.md").read_text(encoding="utf-8") == arms_markdown(PAIR)
    figures = json.loads(re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)[1])
    assert [figure["layout"]["xaxis"]["title"]["text"] for figure in figures] == [
        "sampled tokens",
        "seconds of training",
    ]
    widths = [float(width) for width in re.findall(r'width:([\d.]+)%;background:var\(--\w+\)"', page)]
    assert widths == [15.0, 35.0, 15.0, 10.0, 75.0]  # of 40 s, the longest arm
    for label, found in arm_rows(PAIR):
        assert html.escape(label) in page
        assert all(html.escape(text) in page for text in found)


def test_hostile_names_are_text_everywhere(tmp_path: Path):
    hostile = comparison(*(replace(GRPO, name=text, formula=text, baseline=text) for text in HOSTILE))
    page = render_arms(hostile, tmp_path).read_text(encoding="utf-8")
    body = page.replace(re.search(r"<script>.*</script>", page, re.DOTALL)[0], "")  # plotly and our script
    assert set(re.findall(r"<(?:script|img|svg|iframe|link)\b[^>]*>", body)) == {
        '<script type="application/json" id="figures">'
    }
    console = Console(width=300)
    with console.capture():
        console.print(arms_table(hostile))  # what rich would take for markup is text


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot create"):
        render_arms(PAIR, tmp_path / "file" / "folder")
