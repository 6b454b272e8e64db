"""Which columns of a file hold the prompt and the gold: recognised by name, or said by the user."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from oncurve.tasks.reading import Row
from oncurve.tasks.settings import ColumnSettings
from oncurve.types import DataError, did_you_mean


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Where a row keeps what; columns may be dotted paths into nested ones."""

    name: str
    prompt: str
    gold: str | None
    """None: the last message of the prompt, when it is the assistant's, is the gold. Empty: there is none."""
    gold_format: str = "auto"
    split: str | None = None
    kind: str | None = None
    difficulty: str | None = None
    language: str | None = None

    @property
    def used(self) -> set[str]:
        """Columns that this layout reads; the parent of a nested one is not among them and stays in ``meta``."""
        columns = (self.prompt, self.gold, self.split, self.kind, self.difficulty, self.language)
        return {column for column in columns if column}


LAYOUTS = (
    Layout(name="verl", prompt="prompt", gold="reward_model.ground_truth"),
    Layout(name="TRL", prompt="prompt", gold="answer"),
    Layout(name="TRL", prompt="prompt", gold="solution"),
    Layout(name="plain", prompt="prompt", gold="gold"),
    Layout(name="GSM8K", prompt="question", gold="answer"),
    Layout(name="plain", prompt="question", gold="gold"),
    Layout(name="MATH with final answers", prompt="problem", gold="answer"),
    Layout(name="MATH", prompt="problem", gold="solution", gold_format="box"),
    Layout(name="messages", prompt="messages", gold="answer"),
    Layout(name="messages", prompt="messages", gold="solution"),
    Layout(name="messages", prompt="messages", gold="gold"),
    Layout(name="messages", prompt="messages", gold=None),
)
"""Known layouts; the first whose columns are there is taken."""

_EXTRAS = {
    "split": ("split", "extra_info.split"),
    "kind": ("data_source", "kind"),
    "difficulty": ("difficulty", "level"),
    "language": ("language",),
}


def lookup(values: dict[str, Any], column: str) -> tuple[bool, Any]:
    """Follow a dotted path; a column whose own name holds the dots wins. Returns (found, value)."""
    if column in values:
        return True, values[column]
    first, dot, rest = column.partition(".")
    inner = values.get(first)
    return lookup(inner, rest) if dot and isinstance(inner, dict) else (False, None)


def detect_layout(rows: Sequence[Row], columns: ColumnSettings, *, may_lack_gold: bool = False) -> Layout:
    """Recognise the layout from the first row; what the user mapped wins.

    Args:
        rows: at least one.
        columns: what the user mapped.
        may_lack_gold: a prompt alone will do: tests judge.

    Raises:
        DataError: a mapped column is not there, or no known pair of prompt and gold is.
    """
    first = rows[0]
    mapped = {name: column for name, column in columns if column}
    for name, column in mapped.items():
        if not lookup(first.values, column)[0]:
            raise DataError(
                f"{first.where} has no column {column!r}, which tasks.columns.{name} names."
                f"{did_you_mean(column, first.values)} Found: {', '.join(first.values) or 'none'}."
            )
    extras: dict[str, Any] = {name: _first_found(first, known) for name, known in _EXTRAS.items()}
    extras.update({name: column or None for name, column in columns if name in _EXTRAS and column is not None})
    if may_lack_gold and columns.language is None:
        extras["language"] = None  # of programs it is the programming language, which the verifier reads
    return replace(_prompt_and_gold(first, columns, may_lack_gold), **extras)


def _first_found(row: Row, known: Sequence[str]) -> str | None:
    return next((column for column in known if lookup(row.values, column)[0]), None)


def _prompt_and_gold(row: Row, columns: ColumnSettings, may_lack_gold: bool) -> Layout:
    if columns.prompt is not None and columns.gold is not None:
        return Layout(name="mapped columns", prompt=columns.prompt, gold=columns.gold)
    for layout in LAYOUTS:
        candidate = replace(layout, prompt=columns.prompt or layout.prompt, gold=columns.gold or layout.gold)
        needed = [column for column in (candidate.prompt, candidate.gold) if column is not None]
        if all(lookup(row.values, column)[0] for column in needed):
            return candidate if candidate == layout else replace(candidate, name="mapped columns", gold_format="auto")
    prompt = columns.prompt or next((layout.prompt for layout in LAYOUTS if layout.prompt in row.values), None)
    if may_lack_gold and prompt is not None:
        return Layout(name="prompts without solutions", prompt=prompt, gold=columns.gold or "")
    known = "; ".join(f"{layout.prompt} + {layout.gold or 'a last assistant message'}" for layout in LAYOUTS)
    raise DataError(
        f"{row.where}: no known pair of prompt and answer columns. Found: {', '.join(row.values) or 'none'}. "
        f"Known pairs: {known}. Name yours with tasks.columns.prompt and tasks.columns.gold.{_given(row)}"
    )


def _given(row: Row) -> str:
    """Where a file of given completions belongs, which states no answer to judge others by."""
    if {"chosen", "rejected"} <= row.values.keys():
        return f' Pairs to learn from are named by dpo.pairs = "{row.path}", with method = "dpo".'
    if "completion" in row.values:
        return f' Examples to imitate are named by sft.examples = "{row.path}", with method = "sft".'
    return ""
