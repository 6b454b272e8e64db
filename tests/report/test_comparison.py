"""A finished comparison of objectives as a table, as a page and as data; the numbers are invented here."""

import html
import json
from pathlib import Path

import pytest
from rich.console import Console
from run_builder import HOSTILE

from oncurve.report.comparison import (
    REASONS,
    Before,
    Change,
    FrozenComparison,
    ObjectiveReading,
    StepEffect,
    comparison_tables,
    comparison_text,
    figure_rows,
    render_comparison,
)
from oncurve.types import StorageError


def reading(name: str, *, effect: StepEffect | None = None, kl: float | None = None, **shares: float):
    return ObjectiveReading(
        name=name,
        formula=f"minimise\n  L of {name}",
        gradient=f"  the gradient of {name}",
        loss=-0.0123456,
        policy=-0.0223456,
        kl=kl,
        grad_norm=0.5,
        num_groups=3,
        shares={"nonzero": 1 - sum(shares.values()), **dict.fromkeys(REASONS, 0.0), **shares},
        effect=effect,
        notes=(f"a note on {name}",),
    )


def comparison(*objectives: ObjectiveReading, before: Before | None = None) -> FrozenComparison:
    size = len(objectives)
    return FrozenComparison(
        run="countdown-001",
        step=7,
        weights="checkpoint step_000004 and 3 repeated updates",
        num_groups=4,
        num_set_aside=0,
        num_completions=32,
        num_tokens=900,
        gap=3.14e-7,
        lr=1e-4,
        before=before,
        objectives=objectives,
        cosines=tuple(tuple(1.0 if i == j else -0.25 for j in range(size)) for i in range(size)),
    )


AFTER = StepEffect(
    greedy=0.5,
    interval=(0.4, 0.6),
    change=Change(difference=-0.125, p=0.04),
    against_first=Change(difference=0.25, p=1),
)
FIRST = StepEffect(greedy=0.25, interval=(0.2, 0.3), change=Change(difference=0.0, p=1.0), against_first=None)
PAIR = comparison(
    reading("grpo", effect=FIRST, kl=0.25, equal_group=0.25, clipped=0.125),
    reading("dr_grpo", effect=AFTER, equal_group=0.25),
    before=Before(num_tasks=64, greedy=0.25, interval=(0.2, 0.3)),
)


def rows_of(found: FrozenComparison) -> dict[str, list[str]]:
    return {label.strip(): cells for label, cells in figure_rows(found)}


def page_of(found: FrozenComparison, folder: Path) -> str:
    return render_comparison(found, folder).read_text(encoding="utf-8")


def test_the_rows_are_the_figures_side_by_side() -> None:
    assert rows_of(PAIR) == {
        "loss": ["−0.01235", "−0.01235"],
        "KL term": ["0.25", "–"],
        "gradient norm": ["0.5", "0.5"],
        "groups in the step": ["3", "3"],
        "tokens with a policy gradient": ["62.5 %", "75.0 %"],
        "zero: equal group": ["25.0 %", "25.0 %"],
        "zero: clipped": ["12.5 %", "0.0 %"],
        "greedy after one step, lr 0.0001, 64 tasks": ["25.0 % [20.0, 30.0]", "50.0 % [40.0, 60.0]"],
        "change, before 25.0 % [20.0, 30.0]": ["+0.0 (p 1)", "−12.5 (p 0.04)"],
        "against grpo": ["–", "+25.0 (p 1)"],
    }


def test_what_was_not_measured_has_no_row() -> None:
    found = rows_of(comparison(reading("grpo"), reading("cispo")))
    assert [label for label in found if "greedy" in label or "KL" in label or label.startswith("zero")] == []


@pytest.mark.parametrize(("share", "shown"), [(0.0002, "<0.1 %"), (0.9998, ">99.9 %"), (1.0, "100.0 %")])
def test_a_share_that_is_not_zero_never_reads_as_zero(share: float, shown: str) -> None:
    assert rows_of(comparison(reading("a", filter=share)))["zero: token filter"] == [shown]


def test_the_terminal_shows_tables_then_notes_and_formulas() -> None:
    console = Console(width=140, record=True, file=None, quiet=False, stderr=True)
    for table in comparison_tables(PAIR):
        console.print(table)
    text = console.export_text()
    assert "countdown-001, step 7: 4 groups, 32 completions, 900 tokens" in text
    assert "checkpoint step_000004 and 3 repeated updates; log-prob gap 3.1e-07" in text
    assert "−0.2500" in text
    below = comparison_text(PAIR)
    assert below.index("grpo: a note on grpo") < below.index("=== grpo") < below.index("the gradient of dr_grpo")


def test_a_name_in_brackets_is_no_markup() -> None:
    name = '{advantage = {std_eps = 1}, x = ["[bold]"]}'
    console = Console(width=200, record=True, stderr=True)
    for table in comparison_tables(comparison(reading(name))):
        console.print(table)
    assert console.export_text().count(name) == 3


def test_the_page_stands_alone_and_trusts_no_name(tmp_path: Path) -> None:
    page = page_of(comparison(*(reading(text, equal_group=0.5) for text in HOSTILE)), tmp_path / "new" / "folder")
    assert page.count("<script") == 0
    assert page.count("<img") == page.count("<svg") == page.count("<iframe") == page.count("<link") == 0
    assert "default-src 'none'" in html.unescape(page)
    assert "&lt;script&gt;window.hostile = 1&lt;/script&gt;" in page


def test_the_page_shows_what_the_table_shows(tmp_path: Path) -> None:
    page = page_of(PAIR, tmp_path)
    for _, cells in figure_rows(PAIR):
        assert all(f"<td>{cell}</td>" in page for cell in cells)
    assert 'class="equal_group" style="width:25.0%"' in page
    assert 'class="clipped" style="width:12.5%"' in page
    assert page.count("<article>") == 2
    assert "L of dr_grpo" in page


def test_the_data_beside_the_page_are_the_comparison(tmp_path: Path) -> None:
    render_comparison(PAIR, tmp_path)
    data = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    assert data == PAIR.as_dict()
    assert data["objectives"][1]["effect"]["change"] == {"difference": -0.125, "p": 0.04}
    assert data["cosines"] == [[1.0, -0.25], [-0.25, 1.0]]
    assert sum(data["objectives"][0]["shares"].values()) == 1.0


def test_a_file_in_the_way_of_the_folder_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(StorageError, match="cannot create"):
        render_comparison(PAIR, tmp_path / "out")
