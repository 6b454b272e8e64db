"""What the decode loop is asked for, and what carries its rows through a model.

R rows, V vocabulary.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

MIN_PREFIX = 16
"""Fewest tokens in common to all prompts that are worth a pass of their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One completion to sample."""

    name: str
    """For error messages."""
    prompt: tuple[int, ...]
    seed: int
    budget: int
    """Most tokens, at least 1."""
    stop: "Stop | None" = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """A rule that ends a completion beside the terminators."""

    may_end: Tensor
    """[V] bool: tokens that can complete what it looks for; the others are not asked about."""
    has_ended: Callable[[list[int]], bool]
    """Asked with all tokens of a completion so far."""


class Batch(Protocol):
    """Rows inside a model: their keys and values, and how they get a token more."""

    @property
    def is_full(self) -> bool:
        """True when the rows cannot get another token before ``change``."""
        ...

    def num_admitted(self, live: Sequence[int], waiting: Sequence[int]) -> int:
        """How many of the waiting jobs may enter beside the live ones: at least 1 where no job is live."""
        ...

    def change(self, kept: Tensor, live: Sequence[int], entering: Sequence[int]) -> Tensor:
        """Let rows leave and jobs enter, behind the rows that stay.

        Args:
            kept: int64 rows of now that stay, in their order.
            live: their jobs.
            entering: jobs.

        Returns:
            [len(entering), V] logits of the first token of each.
        """
        ...

    def step(self, ids: Tensor) -> Tensor:
        """Feed one more token [R] of every row; [R, V] logits of the next."""
        ...


def common_length(prompts: Collection[tuple[int, ...]]) -> int:
    """Leading tokens that all of two or more different prompts share and that leave each a token; else 0."""
    first, last = min(prompts), max(prompts)  # in this order every other prompt lies between them
    limit = min(len(first), len(last)) - 1 if first != last else 0
    return next((i for i in range(limit) if first[i] != last[i]), limit)
