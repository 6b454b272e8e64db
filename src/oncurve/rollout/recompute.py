"""Rows that run through the model from their first token at every step: for models whose state cannot be carried.

Slow, and right for anything that maps ids to logits. R rows, V vocabulary.
"""

from collections.abc import Sequence
from itertools import takewhile

import torch
from torch import Tensor

from oncurve.rollout.forward import Forward
from oncurve.rollout.jobs import Job


class RecomputedBatch:
    """A ``Batch`` without a cache. Its rows have one length, so that nothing is padded."""

    def __init__(self, forward: Forward, jobs: Sequence[Job], *, max_cache_tokens: int) -> None:
        self._forward = forward
        self._jobs = jobs
        self._max_tokens = max_cache_tokens
        self._ids = torch.empty((0, 0), dtype=torch.int64, device=forward.device)

    @property
    def is_full(self) -> bool:
        """See ``Batch``: rows grow on demand."""
        return False

    def num_admitted(self, live: Sequence[int], waiting: Sequence[int]) -> int:
        """See ``Batch``: into an empty batch, prompts of one length."""
        if live or not waiting:
            return 0
        length = len(self._jobs[waiting[0]].prompt)
        alike = list(takewhile(lambda i: len(self._jobs[i].prompt) == length, waiting))
        longest = length + max(self._jobs[i].budget for i in alike)
        return min(len(alike), max(1, self._max_tokens // longest))

    def change(self, kept: Tensor, live: Sequence[int], entering: Sequence[int]) -> Tensor:
        """See ``Batch``."""
        if live:
            self._ids = self._ids[kept]
            return torch.empty(0)
        self._ids = torch.tensor([self._jobs[i].prompt for i in entering], device=self._forward.device)
        return self._last_logits()

    def step(self, ids: Tensor) -> Tensor:
        """See ``Batch``."""
        self._ids = torch.cat([self._ids, ids[:, None]], dim=1)
        return self._last_logits()

    def _last_logits(self) -> Tensor:
        """[R, V]."""
        return self._forward.whole(self._ids)[:, -1]
