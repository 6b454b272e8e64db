"""Completions that somebody already wrote: pairs of a better and a worse one, and worked examples.

Layouts: ``prompt``, ``chosen``, ``rejected`` or ``prompt``, ``completion``, each text or a list of messages; or without
``prompt``, whole conversations (also under ``messages``) whose last turn is the completion. Two conversations or texts
without ``prompt`` share it as their beginning.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from oncurve.tasks.reading import Row, read_rows
from oncurve.types import DataError, Message, Prompt, did_you_mean

PROMPT_COLUMNS = ("prompt", "question", "instruction")
_ROLES = ("system", "user", "assistant", "tool", "developer")
_LISTS = "Known layouts: prompt + chosen + rejected; chosen + rejected as conversations that begin alike."
_EXAMPLES = "Known layouts: prompt + completion; messages, of which the assistant's last one is learned."


@dataclass(frozen=True, kw_only=True, slots=True)
class PairRow:
    """Two completions of one prompt; the first is the better one."""

    prompt: Prompt
    chosen: str
    rejected: str
    where: str
    """File and line, for messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExampleRow:
    """A prompt and the completion to be learned."""

    prompt: Prompt
    completion: str
    where: str
    """File and line, for messages."""


def read_pairs(path: Path) -> list[PairRow]:
    """Read preference pairs.

    Args:
        path: a .jsonl or .parquet file.

    Raises:
        DataError: the file cannot be read, has no known layout, or a row is not a pair; names file and row.
    """
    return [_pair(row) for row in read_rows(path, setting="dpo.pairs")]


def read_examples(path: Path) -> list[ExampleRow]:
    """Read worked examples.

    Args:
        path: a .jsonl or .parquet file.

    Raises:
        DataError: the file cannot be read, has no known layout, or a row is not an example; names file and row.
    """
    return [_example(row) for row in read_rows(path, setting="sft.examples")]


def _pair(row: Row) -> PairRow:
    chosen, rejected = (_column(row, name, _LISTS) for name in ("chosen", "rejected"))
    if isinstance(chosen, str) != isinstance(rejected, str):
        _refuse(row, "rejected", rejected, "Write chosen and rejected alike: both text, or both lists of messages.")
    prompt_column = _prompt_column(row)
    if isinstance(chosen, str) and isinstance(rejected, str) and prompt_column is None:
        prompt, chosen, rejected = _split_texts(row, chosen, rejected)
        return PairRow(prompt=prompt, chosen=chosen, rejected=rejected, where=row.where)
    better, worse = _completed(row, prompt_column, "chosen"), _completed(row, prompt_column, "rejected")
    if better[0] != worse[0]:
        _refuse(
            row, "rejected", rejected, "Chosen and rejected must answer the same prompt: all before their last turn."
        )
    return PairRow(prompt=better[0], chosen=better[1], rejected=worse[1], where=row.where)


def _example(row: Row) -> ExampleRow:
    name = "completion" if "completion" in row.values or "messages" not in row.values else "messages"
    _column(row, name, _EXAMPLES)
    prompt_column = _prompt_column(row) if name == "completion" else None
    prompt, completion = _completed(row, prompt_column, name)
    return ExampleRow(prompt=prompt, completion=completion, where=row.where)


def _completed(row: Row, prompt_column: str | None, name: str) -> tuple[Prompt, str]:
    """The prompt and the completion that a column states, alone or after the prompt column."""
    value = row.values[name]
    if isinstance(value, str):
        if prompt_column is None:
            _refuse(row, name, value, "Without a prompt column it must be a conversation, a list of messages.")
        return _prompt(row, prompt_column), _text(row, name, value)
    messages = _messages(row, name, value)
    if messages[-1].role != "assistant":
        _refuse(row, name, value, "Its last message is the assistant's: that is the completion.")
    before, completion = messages[:-1], _text(row, name, messages[-1].content)
    if prompt_column is None:
        if not before:
            _refuse(row, name, value, "A conversation begins with a prompt; or give the prompt in a column of its own.")
        return before, completion
    prompt = _prompt(row, prompt_column)
    if before and not _is_told_by(before, prompt):
        _refuse(row, name, value, f"Before its last turn it must say what column {prompt_column!r} says, or nothing.")
    return before or (prompt if not isinstance(prompt, str) else (Message(role="user", content=prompt),)), completion


def _is_told_by(before: Sequence[Message], prompt: Prompt) -> bool:
    """True when a conversation repeats the prompt column, which may hold its last user turn alone."""
    return before[-1].content.strip() == prompt.strip() if isinstance(prompt, str) else tuple(before) == prompt


def _split_texts(row: Row, chosen: str, rejected: str) -> tuple[str, str, str]:
    """Cut what two texts begin with off as their prompt, between words: the white space goes to the completions."""
    shared = "".join(
        left for left, _ in takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False))
    )
    words = re.match(r"(?s).*\s", shared)
    prompt = words[0].rstrip(" ") if words else ""
    if not prompt.strip():
        _refuse(row, "chosen", chosen, "It does not begin like 'rejected': give the prompt in a column of its own.")
    return prompt, _text(row, "chosen", chosen[len(prompt) :]), _text(row, "rejected", rejected[len(prompt) :])


def _prompt_column(row: Row) -> str | None:
    return next((name for name in PROMPT_COLUMNS if row.values.get(name) is not None), None)


def _prompt(row: Row, column: str) -> Prompt:
    value = row.values[column]
    if isinstance(value, str):
        return _text(row, column, value)
    messages = _messages(row, column, value)
    if messages[-1].role == "assistant":
        _refuse(row, column, value, "A prompt ends before the assistant speaks: remove the last message.")
    return messages


def _messages(row: Row, column: str, value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        _refuse(row, column, value, "It is text, or a list of messages with role and content.")
    return tuple(_message(row, column, item) for item in value)


def _message(row: Row, column: str, value: Any) -> Message:
    role, content = (value.get("role"), value.get("content")) if isinstance(value, dict) else (None, None)
    if not isinstance(role, str) or not isinstance(content, str):
        _refuse(row, column, value, 'A message is {"role": "user", "content": "text"}.')
    if role not in _ROLES:
        _refuse(row, column, value, f"Known roles: {', '.join(_ROLES)}.{did_you_mean(role, _ROLES)}")
    return Message(role=role, content=content)


def _text(row: Row, column: str, text: str) -> str:
    if not text.strip():
        _refuse(row, column, text, "It is blank: there is nothing to learn from. Fill it in or remove the row.")
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(row, column, text, "It holds half of a surrogate pair, which no encoding can write: repair the text.")
    return text


def _column(row: Row, name: str, known: str) -> Any:
    if row.values.get(name) is None:
        found = ", ".join(row.values) or "none"
        raise DataError(f"{row.where} has no column {name!r}.{did_you_mean(name, row.values)} Found: {found}. {known}")
    return row.values[name]


def _refuse(row: Row, column: str, value: Any, remedy: str) -> NoReturn:
    shown = repr(value)
    raise DataError(f"{row.where}: column {column!r} holds {shown[:100]}{'…' if len(shown) > 100 else ''}. {remedy}")
