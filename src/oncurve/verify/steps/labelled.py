"""How often a step checker errs, measured on labelled rows that come with it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oncurve.types import DataError, Task
from oncurve.verify.items import Item
from oncurve.verify.steps.protocol import Checked, StepChecker, StepStatus, Unchecked

_FOLDER = Path(__file__).with_name("labelled")


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledRow:
    """A completion, and what is true of it whatever a checker says."""

    id: str
    item: Item
    label: StepStatus
    """``right``: everything it claims is true. ``wrong``: something is false. ``unknown``: it claims nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorRates:
    """What a checker said of labelled completions, against their labels."""

    checker: str
    num_right: int
    """Rows that are right by their labels."""
    num_wrong: int
    num_unknown: int
    false_accepts: tuple[str, ...]
    """Ids of the rows that are not right and that the checker called right."""
    false_refusals: tuple[str, ...]
    """Ids of the right rows that it called wrong, and of rows without a claim that it called wrong."""
    undecided: tuple[str, ...]
    """Ids of the right and wrong rows that it could not decide."""
    failed: tuple[str, ...]
    """Ids of the rows on which it gave no verdict."""

    @property
    def false_accept_rate(self) -> float:
        """Share of the rows that are not right that pass as right."""
        return len(self.false_accepts) / max(self.num_wrong + self.num_unknown, 1)

    @property
    def false_refusal_rate(self) -> float:
        """Share of the rows that are not wrong that are called wrong."""
        return len(self.false_refusals) / max(self.num_right + self.num_unknown, 1)

    @property
    def undecided_rate(self) -> float:
        """Share of the rows that are right or wrong that stay undecided."""
        return len(self.undecided) / max(self.num_right + self.num_wrong, 1)


def labelled_rows(checker: str) -> list[LabelledRow]:
    """The rows of a checker.

    Raises:
        DataError: none come with a checker of that name.
    """
    file = _FOLDER / f"{checker}.jsonl"
    if not file.is_file():
        raise DataError(f"no labelled rows come with a step checker {checker!r}: hand rows of your own to error_rates")
    return [_row(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def error_rates(checker: StepChecker, rows: Sequence[LabelledRow] | None = None) -> ErrorRates:
    """Measure a checker.

    A completion counts as called wrong when any of its steps is, as called right when one is right and none wrong or
    unknown, and as undecided otherwise.

    Args:
        checker: what is measured.
        rows: labelled completions; by default those that come with the checker.

    Raises:
        DataError: no rows are given, and none come with it.
    """
    rows = labelled_rows(checker.name) if rows is None else rows
    said = [_said(checked) for checked in checker.check([row.item for row in rows])]
    pairs = list(zip(rows, said, strict=True))
    labels = [row.label for row in rows]
    right, wrong, unknown = StepStatus.RIGHT, StepStatus.WRONG, StepStatus.UNKNOWN
    return ErrorRates(
        checker=checker.name,
        num_right=labels.count(right),
        num_wrong=labels.count(wrong),
        num_unknown=labels.count(unknown),
        false_accepts=tuple(row.id for row, status in pairs if status is right and row.label is not right),
        false_refusals=tuple(row.id for row, status in pairs if status is wrong and row.label is not wrong),
        undecided=tuple(row.id for row, status in pairs if status is unknown and row.label is not unknown),
        failed=tuple(row.id for row, status in pairs if status is None),
    )


def _row(row: dict[str, str]) -> LabelledRow:
    meta = {key: value for key, value in row.items() if key not in ("id", "text", "label")}
    task = Task(id=row["id"], prompt="", gold="", kind="labelled", verifier="", meta=meta)
    return LabelledRow(id=row["id"], item=Item(task=task, text=row["text"]), label=StepStatus(row["label"]))


def _said(checked: Checked) -> StepStatus | None:
    if isinstance(checked, Unchecked):
        return None
    statuses = {step.status for step in checked}
    if StepStatus.WRONG in statuses:
        return StepStatus.WRONG
    return StepStatus.RIGHT if statuses == {StepStatus.RIGHT} else StepStatus.UNKNOWN
