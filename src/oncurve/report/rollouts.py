"""The rollout store: what each completion was, how it was judged, and what advantage it got.

Steps are kept in parts of ``STEPS_PER_PART``, named by the first and the last step they may hold, so the layout
depends on the steps alone and not on when a run was interrupted. A part is JSONL while it is written and parquet
once it is sealed; where a crash left both, the parquet is the whole one.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncurve.report.parquet import count_records, read_records, write_records
from oncurve.report.storage import LineFile, finite, plain, replacing, storage_errors, sync_path, well_formed
from oncurve.types import (
    Completion,
    FinishReason,
    Group,
    Inserted,
    Message,
    Prompt,
    RunError,
    Status,
    Task,
    Verdict,
    transcript,
)

STEPS_PER_PART = 20

_PART_NAME = re.compile(r"steps_(\d+)-(\d+)\.(?:jsonl|parquet)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """One recorded completion. L is the number of its tokens."""

    step: int
    group: int
    """Position of its group within the step."""
    task_id: str
    kind: str
    prompt: Prompt
    gold: str
    index: int
    """Position within its group."""
    text: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    """[L]"""
    old_logprobs: tuple[float, ...]
    """[L] exactly the floats that were sampled with."""
    policy_version: int
    finish_reason: FinishReason
    status: Status
    reward: float | None
    components: Mapping[str, float | None]
    evidence: str
    cause: str | None
    advantage: float
    inserted: tuple[Inserted, ...] = ()
    """What an environment wrote between the tokens."""

    @property
    def transcript(self) -> str:
        """The completion for people: its text with the answers of the environment where they stood."""
        return transcript(self.text, self.inserted)


class RolloutStore:
    """The folder ``rollouts/`` of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._last_step: int | None = None

    def append(self, step: int, groups: Sequence[Group], advantages: Sequence[Sequence[float]]) -> None:
        """Record all groups of one step, which is later than every step recorded so far.

        Args:
            step: the step that these groups trained.
            groups: in the order of training.
            advantages: one row a group, one number a completion, 0 where unscored.

        Raises:
            ValueError: the shapes of ``advantages`` and ``groups`` differ.
            NumericsError: an advantage, log-prob or reward component is NaN or infinite.
            RunError: the step is recorded already.
            StorageError: the disk refused.
        """
        last = self.last_step()
        part = self._part(step)
        if (last is not None and step <= last) or self._sealed(part).exists():
            raise RunError(
                f"{self.folder}: rollouts of step {step} are recorded already. Rewind the run to {step} first."
            )
        LineFile(part).append(_records(step, groups, advantages))
        self._last_step = step

    def last_step(self) -> int | None:
        """Return the latest recorded step, or None."""
        if self._last_step is None:
            ends = (_last_step_of(part) for part in reversed(self._parts()))
            self._last_step = next((step for step in ends if step is not None), None)
        return self._last_step

    def seal(self, *, is_final: bool = False) -> None:
        """Turn JSONL parts that can grow no more into parquet; with ``is_final`` the unfinished one as well.

        Raises:
            StorageError: the disk refused; what was not sealed is still there as JSONL.
        """
        for part in self._parts():
            is_finished = (self.last_step() or 0) >= _span(part)[1]
            if part.suffix == ".jsonl" and (is_finished or is_final):
                write_records(self._sealed(part), LineFile(part).read())
                with storage_errors(part, "remove"):
                    part.unlink()

    def rewind(self, step: int) -> None:
        """Drop the records of ``step`` and later; the part that ``step`` falls into is JSONL again."""
        for part in reversed(self._parts()):
            first, last = _span(part)
            if first >= step:
                with storage_errors(part, "remove"):
                    part.with_suffix(".jsonl").unlink(missing_ok=True)
                    self._sealed(part).unlink(missing_ok=True)
            elif last >= step:
                self._reopen(part, step)
        self._last_step = None

    def read(self, step: int | None = None) -> Iterator[Rollout]:
        """Yield what was recorded, in order, from both kinds of parts; of one step when ``step`` is given."""
        for part in self._parts():
            first, last = _span(part)
            if step is None or first <= step <= last:
                yield from map(_from_record, _read_part(part, step))

    def count(self) -> dict[int, int]:
        """Return the number of recorded completions of each step, in the order of steps."""
        return {step: rows for part in self._parts() for step, rows in _count(part).items()}

    def sync(self) -> None:
        """Wait until the disk holds every record. Raises StorageError."""
        with storage_errors(self.folder, "sync"):
            for part in self._parts():
                sync_path(part)
            sync_path(self.folder)

    def _part(self, step: int) -> Path:
        first = step - step % STEPS_PER_PART
        return self.folder / f"steps_{first:06d}-{first + STEPS_PER_PART - 1:06d}.jsonl"

    def _sealed(self, part: Path) -> Path:
        return part.with_suffix(".parquet")

    def _parts(self) -> list[Path]:
        """Return the file that holds each part, in the order of steps."""
        with storage_errors(self.folder, "list"):
            found = [path for path in self.folder.iterdir() if _PART_NAME.fullmatch(path.name)]
        by_span = {_span(path): path for path in sorted(found)}  # "parquet" sorts after "jsonl" and wins
        return [by_span[span] for span in sorted(by_span)]

    def _reopen(self, part: Path, step: int) -> None:
        open_part = LineFile(part.with_suffix(".jsonl"))
        if part.suffix == ".jsonl":
            open_part.keep(lambda record: record["step"] < step)
            return
        with replacing(open_part.path) as temporary:
            LineFile(temporary).append(record for record in read_records(part) if record["step"] < step)
        with storage_errors(part, "remove"):
            part.unlink()


def _span(part: Path) -> tuple[int, int]:
    match = _PART_NAME.fullmatch(part.name)
    if match is None:
        raise ValueError(f"{part} is not a part of a rollout store")
    return int(match[1]), int(match[2])


def _last_step_of(part: Path) -> int | None:
    if part.suffix == ".parquet":
        return max(count_records(part), default=None)
    record = LineFile(part).last()
    return None if record is None else int(record["step"])


def _count(part: Path) -> dict[int, int]:
    if part.suffix == ".parquet":
        return count_records(part)
    return dict(Counter(record["step"] for record in LineFile(part).read()))


def _read_part(part: Path, step: int | None) -> Iterator[dict[str, Any]]:
    if part.suffix == ".parquet":
        return read_records(part, step)
    return (record for record in LineFile(part).read() if step is None or record["step"] == step)


def _records(step: int, groups: Sequence[Group], advantages: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    shape, expected = [len(row) for row in advantages], [len(group.completions) for group in groups]
    if shape != expected:
        raise ValueError(f"step {step}: advantages of sizes {shape} for groups of sizes {expected}")
    return [
        _record(step, position, group.task, *member)
        for position, (group, row) in enumerate(zip(groups, advantages, strict=True))
        for member in zip(group.completions, group.verdicts, row, strict=True)
    ]


def _record(
    step: int, group: int, task: Task, completion: Completion, verdict: Verdict, advantage: float
) -> dict[str, Any]:
    where = f"step {step}, task {task.id}, completion {completion.index}"
    text, messages = _prompt_columns(task.prompt)
    return {
        "step": step,
        "group": group,
        "task_id": well_formed(task.id),
        "kind": well_formed(task.kind),
        "prompt": text,
        "messages": messages,
        "gold": well_formed(task.gold),
        "index": completion.index,
        "text": well_formed(completion.text),
        "prompt_ids": list(completion.prompt_ids),
        "token_ids": list(completion.token_ids),
        "old_logprobs": [finite(value, f"{where}: log-prob") for value in completion.old_logprobs],
        "policy_version": completion.policy_version,
        "finish_reason": completion.finish_reason.value,
        "status": verdict.status.value,
        "reward": None if verdict.reward is None else float(verdict.reward),
        "components": plain(
            {name: None if value is None else float(value) for name, value in verdict.components.items()},
            f"{where}: reward component",
        ),
        "evidence": well_formed(verdict.evidence),
        "cause": None if verdict.cause is None else well_formed(verdict.cause),
        "advantage": finite(advantage, f"{where}: advantage"),
        "inserted": [
            {
                "after": part.after,
                "token_ids": list(part.token_ids),
                "text": well_formed(part.text),
                "after_chars": part.after_chars,
            }
            for part in completion.inserted
        ],
    }


def _prompt_columns(prompt: Prompt) -> tuple[str | None, list[dict[str, str]] | None]:
    if isinstance(prompt, str):
        return well_formed(prompt), None
    return None, [{"role": well_formed(turn.role), "content": well_formed(turn.content)} for turn in prompt]


def _from_record(record: dict[str, Any]) -> Rollout:
    prompt, messages = record.pop("prompt"), record.pop("messages")
    for name in ("prompt_ids", "token_ids", "old_logprobs"):
        record[name] = tuple(record[name])
    return Rollout(
        **record
        | {
            "prompt": prompt if messages is None else tuple(Message(**turn) for turn in messages),
            "inserted": tuple(
                Inserted(**part | {"token_ids": tuple(part["token_ids"])}) for part in record.get("inserted", ())
            ),
            "finish_reason": FinishReason(record["finish_reason"]),
            "status": Status(record["status"]),
        }
    )
