"""Our TOML with the reason at each line, and the report for people."""

from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from oncurve.config.migrate.ledger import Entry

WIDTH = 118


def write_toml(settings: Mapping[str, Any], remarks: Mapping[str, str], head: Sequence[str]) -> str:
    """Render dotted settings as tables, with the remark of each line behind it."""
    lines = [f"# {line}" for line in head]
    tables = sorted({_table(name) for name in settings}, key=lambda table: (table != "", table))
    for table in tables:
        lines += ["", f"[{table}]"] if table else [""]
        for name, value in settings.items():
            if _table(name) == table:
                remark = remarks.get(name)
                line = tomli_w.dumps({name.rpartition(".")[2]: value}).strip()
                lines.append(f"{line}  # {remark}" if remark else line)
    return "\n".join(lines) + "\n"


def write_report(entries: Sequence[Entry], formula: str) -> str:
    """The formula as read, then every key: mapped, the same, without a counterpart; then the defaults that acted."""
    given = [entry for entry in entries if entry.is_given]
    sections = [
        ("mapped", [_mapped(entry) for entry in given if entry.fate == "mapped"]),
        (
            "the same here, or without effect there as well",
            _grouped([entry for entry in given if entry.fate == "same"]),
        ),
        ("WITHOUT A COUNTERPART", _grouped([entry for entry in given if entry.fate == "absent"])),
        (
            "their defaults, written out because the file is silent",
            [_mapped(entry) for entry in acting_defaults(entries)],
        ),
    ]
    shown = [f"{title} ({len(lines)})\n" + "\n".join(lines) for title, lines in sections if lines]
    return "\n\n".join([formula, *shown])


def acting_defaults(entries: Sequence[Entry]) -> list[Entry]:
    """Defaults of theirs that decided a setting of ours, or that have no counterpart."""
    return [entry for entry in entries if not entry.is_given and entry.fate != "same"]


def _table(name: str) -> str:
    return name.rpartition(".")[0]


def _mapped(entry: Entry) -> str:
    settings = ", ".join(f"{name} = {_short(value)}" for name, value in entry.settings.items())
    return f"  {entry.key} = {_short(entry.value)} -> {settings or 'nothing'}{'. ' + entry.text if entry.text else ''}"


def _grouped(entries: Sequence[Entry]) -> list[str]:
    """Keys with the same sentence in one line."""
    by_text: dict[str, list[str]] = {}
    for entry in entries:
        written = ", ".join(f"{name} = {_short(value)}" for name, value in entry.settings.items())
        text = entry.text + (f" Written: {written}." if written else "")
        by_text.setdefault(text, []).append(f"{entry.key} = {_short(entry.value)}")
    return [f"  {'; '.join(keys)}: {text}" for text, keys in by_text.items()]


def _short(value: Any) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
