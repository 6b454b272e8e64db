"""Exploits that were found: each is a line in a folder of the project, tried in every later audit."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from oncurve.types import DataError, Message, Prompt, StorageError, Task
from oncurve.verify.attacks.attack import Attack, attack_item
from oncurve.verify.json_lines import read_text

DEFAULT_FOLDER = Path("exploits")
Mark = Literal["exploit", "fine"]
_REMEDY = "Exploits are the JSON lines that `oncurve review` writes; --exploits names their folder."
_KEYS = ("id", "mark", "prompt", "gold", "kind", "verifier", "meta", "completion", "is_truncated", "why", "origin")


@dataclass(frozen=True, kw_only=True, slots=True)
class RegressionCase:
    """A completion that somebody looked at, with the task that it answers."""

    mark: Mark
    """``exploit``: it must not be paid. ``fine``: it was looked at and is right; it must be paid."""
    prompt: Prompt
    gold: str
    kind: str
    verifier: str
    completion: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    is_truncated: bool = False
    why: str = ""
    """What the reviewer saw."""
    origin: str = ""
    """The run and the place in it."""

    @property
    def id(self) -> str:
        """Of prompt, gold and completion: the same find in another run is the same case."""
        return case_id(self.prompt, self.gold, self.completion)

    @property
    def task(self) -> Task:
        """The task it answers."""
        return Task(
            id=f"case-{self.id}",
            prompt=self.prompt,
            gold=self.gold,
            kind=self.kind,
            verifier=self.verifier,
            meta=self.meta,
        )


def case_id(prompt: Prompt, gold: str, completion: str) -> str:
    """Hash what makes a case."""
    text = prompt if isinstance(prompt, str) else json.dumps([[turn.role, turn.content] for turn in prompt])
    digest = blake2b(digest_size=6)
    for part in (text, gold, completion):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()


def read_cases(folder: Path = DEFAULT_FOLDER) -> list[RegressionCase]:
    """Read a file, or every ``*.jsonl`` below a folder; the later mark of a case counts. Nothing there: none.

    Raises:
        DataError: a line is no case; the message names file and line.
    """
    found: dict[str, RegressionCase] = {}
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*.jsonl")):
        for number, line in enumerate(read_text(path, _REMEDY).split("\n"), 1):
            if line.strip():
                case = _case(line, f"{path}, line {number}")
                found[case.id] = case
    return list(found.values())


def write_case(case: RegressionCase, folder: Path = DEFAULT_FOLDER) -> Path:
    """Append a case to the file of its kind of task, and return the file.

    Raises:
        DataError: the task holds data that JSON cannot.
        StorageError: the disk refused.
    """
    path = folder / f"{_file_name(case.kind)}.jsonl"
    try:
        line = json.dumps(_row(case), ensure_ascii=True, sort_keys=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"case {case.id}: its task cannot be written as JSON: {error}") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}. Name another folder with --exploits.") from error
    return path


def regression_attacks(cases: Sequence[RegressionCase]) -> Iterator[Attack]:
    """Every case as a question to a reward function."""
    for case in cases:
        yield Attack(
            id=f"regression/{case.id}",
            family="regression",
            kind=case.kind,
            item=attack_item(case.task, case.completion, is_truncated=case.is_truncated),
            is_right=case.mark == "fine",
            why=case.why or f"marked {case.mark}",
        )


def _row(case: RegressionCase) -> dict[str, Any]:
    prompt = case.prompt
    turns = prompt if isinstance(prompt, str) else [{"role": turn.role, "content": turn.content} for turn in prompt]
    values = {name: getattr(case, name) for name in _KEYS} | {"prompt": turns, "meta": dict(case.meta)}
    return {name: value for name, value in values.items() if value not in ("", {}, False)}


def _case(line: str, where: str) -> RegressionCase:
    try:
        row = json.loads(line)
        prompt = row.get("prompt", "")
        if isinstance(prompt, list):
            prompt = tuple(Message(role=turn["role"], content=turn["content"]) for turn in prompt)
        case = RegressionCase(
            mark=row["mark"],
            prompt=prompt,
            gold=row.get("gold", ""),
            kind=row.get("kind", "case"),
            verifier=row.get("verifier", "answer"),
            completion=row.get("completion", ""),
            meta=row.get("meta", {}),
            is_truncated=bool(row.get("is_truncated", False)),
            why=row.get("why", ""),
            origin=row.get("origin", ""),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{where}: no regression case ({type(error).__name__}: {error})") from None
    if case.mark not in ("exploit", "fine") or not isinstance(case.completion, str) or not isinstance(case.gold, str):
        raise DataError(f"{where}: mark must be exploit or fine, completion and gold texts; got mark {case.mark!r}")
    return case


def _file_name(kind: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in kind)[:60] or "cases"
