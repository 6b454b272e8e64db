"""What a verifier is given, what it must offer, and the three verdicts it may return."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from oncurve.types import Completion, Episode, Status, Task, Verdict

MAX_EVIDENCE_CHARS = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One completion to judge, with the task it answers."""

    task: Task
    text: str
    """The completion as text, without special tokens and without the prompt."""
    token_ids: tuple[int, ...] = ()
    """Sampled ids, for verifiers that count tokens and for reward functions that ask for ``completion_ids``."""
    is_truncated: bool = False
    """True when sampling stopped at a limit and not at a terminator."""
    episode: Episode | None = None
    """What the environment of a tool task was in afterwards; None for other tasks."""

    @classmethod
    def of(cls, task: Task, completion: Completion) -> "Item":
        """A sampled completion as an item."""
        return cls(
            task=task,
            text=completion.text,
            token_ids=completion.token_ids,
            is_truncated=completion.is_truncated,
            episode=completion.episode,
        )


@runtime_checkable
class Verifier(Protocol):
    """Judges completions. The same items always get the same verdicts, whatever else is in the batch."""

    name: str

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        """Return one verdict an item, in the same order. Hostile text gives a verdict, never an exception."""
        ...


@runtime_checkable
class StatesGold(Protocol):
    """A verifier that can write the completion which states a task's gold, so that golds can be checked."""

    def state_gold(self, task: Task) -> str:
        """Return the completion that this verifier must call correct."""
        ...


@runtime_checkable
class ChecksGold(Protocol):
    """A verifier that can say whether a task can be solved at all, without a completion."""

    def gold_fault(self, task: Task) -> str:
        """Return what is wrong with the task or its gold; empty when nothing is."""
        ...


def correct(evidence: str, reward: float = 1.0) -> Verdict:
    """The completion is right."""
    return Verdict(status=Status.CORRECT, reward=reward, evidence=one_line(evidence))


def wrong(evidence: str, reward: float = 0.0) -> Verdict:
    """The completion is not right, or offers nothing that could be."""
    return Verdict(status=Status.WRONG, reward=reward, evidence=one_line(evidence))


def no_verdict(cause: str, evidence: str) -> Verdict:
    """The failure is not the model's: nobody knows whether the completion is right."""
    return Verdict(status=Status.NO_VERDICT, reward=None, cause=cause, evidence=one_line(evidence))


def one_line(text: str, max_chars: int = MAX_EVIDENCE_CHARS) -> str:
    """Cut text to ``max_chars`` and escape what does not print (line ends, control characters, lone surrogates)."""
    cut = text if len(text) <= max_chars else text[: max_chars - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)
