"""Task, Completion, Verdict, Group: what flows through the loop.

Shapes in the comments: L is the number of sampled tokens of a completion, G the number of completions of a group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from oncurve.types.settings import Settings

_EMPTY: Mapping[str, Any] = MappingProxyType({})


class Sampling(Settings):
    """How tokens are drawn from the policy."""

    temperature: float = Field(1.0, ge=0, le=10)
    """Logits are divided by it before softmax, in the sampler and in the learner. 0 means greedy: evaluation only."""

    top_p: float = Field(1.0, gt=0, le=1)
    """Keep the smallest set of likeliest tokens whose probability reaches this. Below 1 the rollout is off-policy."""

    top_k: int = Field(0, ge=0)
    """Keep only the k likeliest tokens; 0 keeps all. Above 0 the rollout is off-policy."""

    min_p: float = Field(0.0, ge=0, lt=1)
    """Drop tokens less likely than this share of the likeliest one. Above 0 the rollout is off-policy."""

    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Texts that end a completion too: the token by which its text holds one of them is its last, and is trained."""

    max_tokens: int = Field(64, ge=1, le=1_000_000)
    """Most tokens sampled per completion, the terminator included."""

    @property
    def is_filtered(self) -> bool:
        """True when the sampled distribution is not the policy's own (top-p, top-k, min-p or greedy)."""
        return self.top_p < 1.0 or self.top_k > 0 or self.min_p > 0.0 or self.temperature == 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One turn of a chat prompt."""

    role: str
    content: str


Prompt = str | tuple[Message, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One problem with its known answer."""

    id: str
    prompt: Prompt
    gold: str
    """The known answer as its source states it; a verifier parses it."""
    kind: str
    """The task type, for breakdowns: ``countdown``, ``gsm8k``, ..."""
    verifier: str
    """Name of the verifier that judges it."""
    difficulty: float | None = None
    language: str = "en"
    split: str = "train"
    meta: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Plain data that the verifier or the reports need (the numbers of a countdown, other columns of a row)."""


class FinishReason(StrEnum):
    """Why sampling ended."""

    STOP = "stop"
    """The policy emitted a terminator; it is the last of ``token_ids``."""
    LENGTH = "length"
    """``max_tokens`` or the context ran out first: the completion is truncated."""


class Status(StrEnum):
    """What a verifier found."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_VERDICT = "no_verdict"
    """A failure of ours (time-out, crash, unusable gold). Never a reward of 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inserted:
    """Tokens that an environment put into a completion. The policy reads them and did not sample them."""

    after: int
    """How many sampled tokens stand before them; at least one stands before and one behind."""
    token_ids: tuple[int, ...]
    text: str
    """For people; the ids are what the policy reads."""
    after_chars: int
    """How many characters of the completion's text stand before them, for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """What an environment was in after the calls that it carried out. Nothing here is read from a completion."""

    status: Status
    evidence: str
    cause: str | None = None
    """Why there is no verdict; stands exactly on ``no_verdict``."""
    num_calls: int = 0
    """Calls that the environment was given, refused ones included."""
    num_errors: int = 0
    """Those that it answered with an error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One sampled sequence, with the book-keeping of every token.

    Tokens of an environment stand apart in ``inserted``, so that whatever looks at ``token_ids``, losses, lengths and
    entropies first of all, sees the policy's own tokens and nothing else.
    """

    task_id: str
    index: int
    """Position in its group, 0..G-1."""
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    """[L] sampled ids, the terminator included. Never the result of encoding ``text``."""
    old_logprobs: tuple[float, ...]
    """[L] log-prob of each sampled token when it was sampled: natural log, at the sampling temperature, unfiltered."""
    policy_version: int
    """Optimiser steps behind the weights that sampled it."""
    finish_reason: FinishReason
    sampling: Sampling
    text: str
    """``token_ids`` decoded without special tokens, for verifiers and people; the learner never reads it."""
    seconds: float = 0.0
    """Wall seconds from the start of its batch until it finished."""
    inserted: tuple[Inserted, ...] = ()
    """What an environment answered, in order; empty without one."""
    episode: Episode | None = None
    """How the environment was left; None without one."""

    @property
    def is_truncated(self) -> bool:
        return self.finish_reason is FinishReason.LENGTH


@dataclass(frozen=True, slots=True)
class Woven:
    """A completion as the policy read it: sampled and inserted tokens in their order. M is the number of all tokens."""

    token_ids: tuple[int, ...]
    """[M]"""
    is_sampled: tuple[bool, ...]
    """[M] False where an environment wrote: read, never trained."""


def weave(token_ids: Sequence[int], inserted: Sequence[Inserted]) -> Woven:
    """Put inserted tokens where they stood when the policy sampled on.

    Args:
        token_ids: [L] sampled tokens.
        inserted: in order, each between two sampled tokens.

    Raises:
        ValueError: an insertion is empty, out of order, or not between two sampled tokens.
    """
    ids, is_sampled, start = list[int](), list[bool](), 0
    for part in inserted:
        if not start < part.after < len(token_ids) or not part.token_ids:
            raise ValueError(
                f"an insertion of {len(part.token_ids)} tokens after sampled token {part.after} of {len(token_ids)}, "
                f"the one before after {start}: insertions are not empty, in order, and between two sampled tokens"
            )
        ids += [*token_ids[start : part.after], *part.token_ids]
        is_sampled += [True] * (part.after - start) + [False] * len(part.token_ids)
        start = part.after
    ids += token_ids[start:]
    return Woven(tuple(ids), (*is_sampled, *[True] * (len(token_ids) - start)))


def transcript(text: str, inserted: Sequence[Inserted]) -> str:
    """A completion for people: its text with what was inserted into it."""
    parts, start = list[str](), 0
    for part in inserted:
        parts += [text[start : part.after_chars], part.text]
        start = part.after_chars
    return "".join([*parts, text[start:]])


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a verifier says of one completion."""

    status: Status
    reward: float | None
    """Finite. None exactly when the status is ``no_verdict``."""
    components: Mapping[str, float | None] = field(default_factory=lambda: _EMPTY)
    """Unweighted value of each part of the reward; None where that part gave no value."""
    evidence: str = ""
    """One line for people: what was extracted and why it was accepted or not."""
    cause: str | None = None
    """Why there is no verdict: ``timeout``, ``crash``, ``bad_gold``, ..."""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        unscored = self.status is Status.NO_VERDICT
        if unscored != (self.reward is None):
            raise ValueError(
                f"a verdict has no reward exactly when its status is no_verdict, got {self.status} with {self.reward}"
            )
        if unscored != (self.cause is not None):
            raise ValueError(f"a cause stands exactly on no_verdict, got {self.status} with cause {self.cause!r}")
        if self.reward is not None and not (-float("inf") < self.reward < float("inf")):
            raise ValueError(f"a reward is finite, got {self.reward}. Unscored is Status.NO_VERDICT with reward None.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The G completions of one task, with their verdicts in the same order."""

    task: Task
    completions: tuple[Completion, ...]
    verdicts: tuple[Verdict, ...]

    def __post_init__(self) -> None:
        if len(self.completions) != len(self.verdicts):
            raise ValueError(
                f"task {self.task.id}: {len(self.completions)} completions but {len(self.verdicts)} verdicts"
            )

    @property
    def rewards(self) -> tuple[float | None, ...]:
        return tuple(verdict.reward for verdict in self.verdicts)
