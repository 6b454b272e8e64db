"""Tasks from a file: read, recognised, freed of duplicates, split so that no prompt is in both halves."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from oncurve.tasks.layout import Layout, detect_layout
from oncurve.tasks.prompts import ask
from oncurve.tasks.reading import read_rows
from oncurve.tasks.rows import Record, parse_row
from oncurve.tasks.settings import PROGRAMS, TaskSettings
from oncurve.tasks.taskset import HELD_OUT, MIN_TASKS, TRAIN, Note, TaskSet, split_position, task_id
from oncurve.types import DataError, Message, Prompt, Task


def load_file(settings: TaskSettings, path: Path) -> TaskSet:
    """Read a file of problems, and the held-out file when there is one.

    Prompts are the same when they differ in white space only. Exact duplicates (same prompt, same gold) are dropped
    and counted. Without a split column or second file, the problems whose hash falls below ``held_out_fraction``
    are held out; ``num_held_out`` takes that many of lowest hash instead.

    Raises:
        DataError: the file or a row cannot be used; the message names file, row, column, value and remedy.
    """
    records, notes = _read(path, settings)
    if settings.held_out_path is not None:
        held_out, more_notes = _read(settings.held_out_path, settings)
        records = _label(records, TRAIN) + _label(held_out, HELD_OUT)
        notes += more_notes
    else:
        records = _drop_useless_labels(records, notes)
    distinct = _drop_duplicates(records, settings, notes)
    train, held_out = _split(distinct, settings, notes)
    if min(len(train), len(held_out)) < MIN_TASKS:
        raise DataError(
            f"{path}: {len(records)} rows hold {len(distinct)} different prompts, {len(train)} to train on and "
            f"{len(held_out)} held out. At least {MIN_TASKS} of each are needed: a run on one prompt learns its "
            "answer by heart and cannot be measured. Add problems."
        )
    return TaskSet(
        train=tuple(_to_task(record, settings, TRAIN) for record in train),
        held_out=tuple(_to_task(record, settings, HELD_OUT) for record in held_out),
        notes=tuple(notes),
    )


def _read(path: Path, settings: TaskSettings) -> tuple[list[Record], list[Note]]:
    rows = read_rows(path)
    is_program = settings.verifier == PROGRAMS
    layout = detect_layout(rows, settings.columns, may_lack_gold=is_program)
    gold_format = layout.gold_format if settings.gold_format == "auto" else settings.gold_format
    records = [parse_row(row, layout, gold_format, is_program=is_program) for row in rows]
    return records, _reading_notes(path, layout, records)


def _reading_notes(path: Path, layout: Layout, records: Sequence[Record]) -> list[Note]:
    gold = "the last assistant message" if layout.gold is None else layout.gold or "nowhere: tests judge"
    text = f"{path.name}: {len(records)} rows read as {layout.name}, prompt from {layout.prompt!r}, gold from {gold!r}."
    notes = [Note(kind="layout", count=len(records), text=text)]
    how = {"hash": "after ####", "box": r"in the last \boxed{}", "verbatim": "all of it"}
    for place, count in sorted(Counter(record.gold_place for record in records).items()):
        text = f"{path.name}: in {count} rows the gold is {how[place]} of its column."
        notes.append(Note(kind="gold", count=count, text=text))
    unused = sorted({name for record in records for name in record.row.values} - layout.used)
    nested = {column.partition(".")[0]: column for column in layout.used if "." in column}
    for name in unused:
        text = f"{path.name}: column {name!r} is not used; it stays in each task's meta."
        if name in nested:
            text = (
                f"{path.name}: of column {name!r} only {nested[name]!r} is used; all of it stays in each task's meta."
            )
        notes.append(Note(kind="unused_column", count=1, text=text))
    return notes


def _label(records: Iterable[Record], split: str) -> list[Record]:
    return [replace(record, split=split) for record in records]


def _drop_useless_labels(records: list[Record], notes: list[Note]) -> list[Record]:
    labels = {record.split for record in records}
    if labels == {None} or labels == {TRAIN, HELD_OUT}:
        return records
    text = f"Every row is labelled {labels.pop()!r}: the split column is ignored, a hash of each prompt decides."
    notes.append(Note(kind="split", count=len(records), text=text))
    return [replace(record, split=None) for record in records]


def _drop_duplicates(records: Sequence[Record], settings: TaskSettings, notes: list[Note]) -> list[Record]:
    by_prompt: dict[str, list[Record]] = {}
    for record in records:
        by_prompt.setdefault(record.canonical, []).append(record)
    kept, duplicates, leaks, conflicts = [], [], [], []
    for same in by_prompt.values():
        if len({" ".join(record.gold.split()) for record in same}) > 1 and settings.verifier != PROGRAMS:
            conflicts.append(same)
            continue
        held_out = [record for record in same if record.split == HELD_OUT]
        leaked = [record for record in same if record.split == TRAIN] if held_out else []
        first, *others = held_out or same
        kept.append(first)
        duplicates += others
        leaks += leaked
    _report_conflicts(conflicts, settings, notes)
    if duplicates:
        text = (
            f"{len(duplicates)} rows repeat an earlier row's prompt and gold and were dropped: {_places(duplicates)}."
        )
        notes.append(Note(kind="duplicate", count=len(duplicates), text=text))
    if leaks:
        text = f"{len(leaks)} training rows ask a held-out problem and were dropped from training: {_places(leaks)}."
        notes.append(Note(kind="leak", count=len(leaks), text=text))
    return kept


def _report_conflicts(conflicts: Sequence[Sequence[Record]], settings: TaskSettings, notes: list[Note]) -> None:
    if not conflicts:
        return
    first = conflicts[0]
    rows = ", ".join(f"{record.row.path.name} {record.row.place} says {record.gold[:40]!r}" for record in first[:5])
    more = f" ({len(conflicts) - 1} more prompts like it)" if len(conflicts) > 1 else ""
    if settings.conflicting_golds == "error":
        raise DataError(
            f"{settings.path}: rows with the same prompt state different golds: {rows}{more}. Whichever is "
            "right, the other would train the opposite. Repair them, or set tasks.conflicting_golds = 'drop'."
        )
    count = sum(len(same) for same in conflicts)
    text = f"{count} rows state different golds for {len(conflicts)} prompts and were dropped: {rows}{more}."
    notes.append(Note(kind="conflict", count=count, text=text))


def _places(records: Sequence[Record], limit: int = 5) -> str:
    shown = ", ".join(f"{record.row.path.name} {record.row.place}" for record in records[:limit])
    return shown + (f" and {len(records) - limit} more" if len(records) > limit else "")


def _position(record: Record) -> float:
    return split_position("file", record.canonical)


def _split(records: Sequence[Record], settings: TaskSettings, notes: list[Note]) -> tuple[list[Record], list[Record]]:
    by_hash = sorted(records, key=_position)
    if any(record.split is not None for record in records):
        candidates = [record for record in by_hash if record.split == HELD_OUT]
        count = len(candidates) if settings.num_held_out is None else settings.num_held_out
        train = [record for record in records if record.split == TRAIN]
    else:
        candidates = by_hash
        count = settings.num_held_out or max(MIN_TASKS, sum(_position(r) < settings.held_out_fraction for r in records))
        held_out_prompts = {record.canonical for record in by_hash[:count]}
        train = [record for record in records if record.canonical not in held_out_prompts]
    if settings.num_held_out is not None and count > len(candidates):
        raise DataError(
            f"{settings.path}: tasks.num_held_out asks for {count} held-out problems, but there are only "
            f"{len(candidates)}. Lower it."
        )
    held_out = candidates[:count]
    limited = train if settings.num_train is None else train[: settings.num_train]
    unused = len(records) - len(held_out) - len(limited)
    if unused:
        text = f"{unused} rows are left out by tasks.num_train and tasks.num_held_out."
        notes.append(Note(kind="unused_row", count=unused, text=text))
    return limited, held_out


def _to_task(record: Record, settings: TaskSettings, split: str) -> Task:
    kind = record.kind or record.row.path.stem
    return Task(
        id=task_id(kind, record.canonical),
        prompt=_phrase(record, settings),
        gold=record.gold,
        kind=kind,
        verifier=settings.verifier or "answer",
        difficulty=record.difficulty,
        language=record.language,
        split=split,
        meta={**record.meta, "where": record.row.where},
    )


def _phrase(record: Record, settings: TaskSettings) -> Prompt:
    """Text goes through ``ask``; of messages, the last user turn does, and the others stay."""
    if isinstance(record.prompt, str):
        return ask(record.prompt, settings, answer_format=settings.answer_format, style=settings.style)
    messages = [message for message in record.prompt if settings.system_prompt is None or message.role != "system"]
    if settings.style == "text":
        if len(messages) != 1:
            raise DataError(
                f"{record.row.where}: prompt_style = 'text' needs one user message, this prompt has {len(messages)} "
                "messages. Leave prompt_style unset to keep them."
            )
        return ask(messages[0].content, settings, answer_format=settings.answer_format, style="text")
    phrased = ask(messages[-1].content, settings, answer_format=settings.answer_format, style="chat")
    if messages[-1].role != "user" or isinstance(phrased, str):
        return tuple(messages)
    system: tuple[Message, ...] = phrased[:-1]
    return (*system, *messages[:-1], phrased[-1])
