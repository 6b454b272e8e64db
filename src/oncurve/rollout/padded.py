"""Rows through a transformers model as it is: padded on the left, one cache, one write position for all rows.

R rows, V vocabulary.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor
from transformers import Cache

from oncurve.rollout.forward import Forward, Prefill, Prefix
from oncurve.rollout.jobs import MIN_PREFIX, Job, common_length
from oncurve.rollout.kv_cache import Block

_PREFILL_TOKENS = 16_384
"""Most prompt tokens, padding included, of one prefill pass: bounds its activations."""

_MIN_GROWTH = 64
"""Columns a rebuilt cache has to spare, unless its rows need fewer."""


class PaddedBatch:
    """A ``Batch`` of any model that keeps a cache.

    Rows share a write position: a step adds one column to the cache for all of them. When rows leave and enter, or
    the columns are used up, the cache is copied without the columns that nobody needs any more. A prompt is prefilled
    once and its cache rows repeated.
    """

    def __init__(self, forward: Forward, jobs: Sequence[Job], *, context_length: int, max_cache_tokens: int) -> None:
        self._forward = forward
        self._jobs = jobs
        self._last_position = context_length - 1
        self._max_cache_tokens = max_cache_tokens
        self._num_waiting = Counter(job.prompt for job in jobs)
        self._prefilled: dict[tuple[int, ...], tuple[Prefill, int]] = {}
        self._prefix = self._shared_prefix()
        self._cache = Cache(layers=[])
        self._mask: Tensor | None = None
        self._starts = torch.empty(0, dtype=torch.int64, device=forward.device)
        self._width = 0
        self._capacity = 0

    def _shared_prefix(self) -> Prefix | None:
        """Run what all prompts begin with, once; None when there is little of it, or one prompt only."""
        num_tokens = common_length(self._num_waiting)
        if not self._forward.has_standard_cache or num_tokens < MIN_PREFIX:
            return None
        prompt = self._jobs[0].prompt
        return Prefix(num_tokens=num_tokens, cache=self._forward.prefill([prompt[:num_tokens]]).cache)

    @property
    def is_full(self) -> bool:
        """See ``Batch``."""
        return self._width == self._capacity

    def num_admitted(self, live: Sequence[int], waiting: Sequence[int]) -> int:
        """See ``Batch``. Without a standard cache, only into an empty batch and out of one prefill."""
        if not self._forward.has_standard_cache:
            return 0 if live else self._num_in_one_prefill(waiting[: self._num_within_memory([], waiting)])
        return self._num_within_memory(live, waiting)

    def _num_within_memory(self, live: Sequence[int], waiting: Sequence[int]) -> int:
        longest = max([len(self._jobs[i].prompt) + self._jobs[i].budget for i in live], default=0)
        for count, job in enumerate(waiting):
            longest = max(longest, len(self._jobs[job].prompt) + self._jobs[job].budget)
            if (len(live) + count + 1) * longest > self._max_cache_tokens and (live or count):
                return count
        return len(waiting)

    def _num_in_one_prefill(self, waiting: Sequence[int]) -> int:
        """How many of the next jobs have prompts of one length that go through the model together."""
        prompts = [self._jobs[i].prompt for i in waiting]
        alike = [prompt for prompt in prompts if len(prompt) == len(prompts[0])]
        batch = set(next(iter(_prefill_batches(list(dict.fromkeys(alike)), 0)), []))
        return sum(prompt in batch for prompt in alike)

    def change(self, kept: Tensor, live: Sequence[int], entering: Sequence[int]) -> Tensor:
        """See ``Batch``. The new cache ends where its longest row does."""
        lengths = torch.tensor([len(self._jobs[i].prompt) for i in entering], dtype=torch.int64, device=kept.device)
        blocks, logits = self._entering_blocks(entering)
        if len(kept):
            blocks.insert(0, Block(cache=self._cache, rows=kept, is_consumed=True))
            lengths = torch.cat([self._width - self._starts[kept], lengths])
        self._width = int(lengths.max())
        self._starts = self._width - lengths
        ends = [len(self._jobs[i].prompt) + self._jobs[i].budget for i in (*live, *entering)]
        most_left = max(end - length for end, length in zip(ends, lengths.tolist(), strict=True))
        room = max(_MIN_GROWTH, self._width // 2) if self._forward.has_standard_cache else most_left
        self._capacity = self._width + min(most_left, room)
        self._cache = self._forward.gather(blocks, width=self._width, capacity=self._capacity)
        self._mask = self._forward.decode_mask(self._starts, self._capacity)
        return torch.cat(logits) if logits else torch.empty(0)

    def step(self, ids: Tensor) -> Tensor:
        """See ``Batch``. Ended rows come along until they leave, at a position the model has."""
        positions = (self._width - self._starts).clamp_(max=self._last_position)
        self._width += 1
        mask = None if self._mask is None else self._mask[:, : self._width]
        return self._forward.step(ids, positions, mask, self._cache)

    def _entering_blocks(self, entering: Sequence[int]) -> tuple[list[Block], list[Tensor]]:
        """Cache rows and first logits of entering jobs; a prompt is prefilled once and forgotten after its last job."""
        prompts = [self._jobs[i].prompt for i in entering]
        if not self._forward.has_standard_cache:
            self._prefilled.clear()  # caches that cannot be joined: what was prefilled with others runs again
        num_skipped = 0 if self._prefix is None else self._prefix.num_tokens
        for batch in _prefill_batches([p for p in dict.fromkeys(prompts) if p not in self._prefilled], num_skipped):
            prefill = self._forward.prefill(batch, self._prefix)
            self._prefilled.update({prompt: (prefill, row) for row, prompt in enumerate(batch)})
        blocks, logits = [], []
        for _, places in groupby([self._prefilled[p] for p in prompts], key=lambda place: id(place[0])):
            prefills, indices = zip(*places, strict=True)
            rows = torch.tensor(indices, device=self._forward.device)
            blocks.append(Block(cache=prefills[0].cache, rows=rows))
            logits.append(prefills[0].logits[rows])
        self._num_waiting.subtract(prompts)
        for prompt in set(prompts):
            if self._num_waiting[prompt] == 0:
                del self._prefilled[prompt]
        return blocks, logits


def _prefill_batches(prompts: Sequence[tuple[int, ...]], num_skipped: int) -> list[list[tuple[int, ...]]]:
    """Cut prompts, ordered by length, into batches within the token budget; at least one prompt a batch."""
    if not prompts:
        return []
    size = max(1, _PREFILL_TOKENS // (len(prompts[0]) - num_skipped))
    return [list(prompts[i : i + size]) for i in range(0, len(prompts), size)]
