"""The decode loop: rows enter, gain one token per step, and leave.

N jobs, R rows alive, L the largest completion budget, V vocabulary. Python loops over rows only where rows enter.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

import numpy as np
import torch
from torch import Tensor
from transformers import Cache

from oncurve.rollout.forward import Forward, Prefill, Prefix
from oncurve.rollout.kv_cache import Block
from oncurve.rollout.sampler import draw, uniform_stream
from oncurve.types import NumericsError, Sampling

_PREFILL_TOKENS = 16_384
"""Most prompt tokens, padding included, of one prefill pass: bounds its activations."""

_MIN_PREFIX = 16
"""Fewest tokens in common to all prompts that are worth a pass of their own."""

_REBUILD_SHARE = 0.25
"""Ended rows stay in the batch until they are this share of it: copying the cache costs about two steps."""

_MIN_GROWTH = 64
"""Columns a rebuilt cache has to spare, unless its rows need fewer."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What was sampled, one row per job in their order. Column L is scratch space of rows that have ended."""

    tokens: Tensor
    """[N, L + 1] int64."""
    logprobs: Tensor
    """[N, L + 1] float32."""
    lengths: Tensor
    """[N] int64 number of tokens."""
    is_stopped: Tensor
    """[N] bool: ended by a terminator or a ``Stop``."""
    seconds: Tensor
    """[N] float64 since the loop began."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rows:
    """The rows in the batch, in the order of the cache. ``count`` and ``logits`` change from step to step."""

    job: Tensor
    """[R] int64 row of the record."""
    start: Tensor
    """[R] int64 first column of the row in the cache."""
    count: Tensor
    """[R] int64 tokens sampled so far; L for good once the row has ended."""
    budget: Tensor
    """[R] int64."""
    uniforms: Tensor
    """[R, L + 1] float64, one number per token."""

    def __len__(self) -> int:
        return len(self.job)


class Decoder:
    """Samples each job once.

    Rows share a write position: a step adds one column to the cache for all of them. Ended rows leave, and waiting
    jobs enter, when enough rows have ended or the columns are used up; the cache is then copied without the columns
    that nobody needs any more. Waiting jobs are ordered by prompt, longest first, so that each distinct prompt is
    prefilled once, whenever its rows enter. ``on_end`` is told each job whose row of the record is complete.
    """

    def __init__(
        self,
        forward: Forward,
        jobs: Sequence[Job],
        sampling: Sampling,
        *,
        terminators: frozenset[int],
        context_length: int,
        max_rows: int,
        on_end: Callable[[int, Record], None] | None = None,
    ) -> None:
        self._forward = forward
        self._jobs = jobs
        self._sampling = sampling
        self._last_position = context_length - 1
        self._max_rows = max_rows
        self._on_end = on_end
        self._device = forward.device
        self._is_terminator = torch.zeros(max(forward.vocab_size, max(terminators) + 1), dtype=torch.bool)
        self._is_terminator[sorted(terminators)] = True
        self._is_terminator = self._is_terminator.to(self._device)
        self._has_stops = any(job.stop is not None for job in jobs)

        order = sorted(range(len(jobs)), key=lambda i: (-len(jobs[i].prompt), jobs[i].prompt))
        self._waiting = deque(order)
        self._num_waiting = Counter(job.prompt for job in jobs)
        self._prefilled: dict[tuple[int, ...], tuple[Prefill, int]] = {}
        self._prefix: Prefix | None = None

        self._max_budget = max(job.budget for job in jobs)
        self._record = _empty_record(len(jobs), self._max_budget, self._device)
        self._began = time.perf_counter()

        self._rows: _Rows | None = None
        self._num_ended = 0
        self._logits = torch.empty(0)
        self._cache = Cache(layers=[])
        self._mask: Tensor | None = None
        self._width = 0
        self._capacity = 0

    def run(self) -> Record:
        """Sample everything.

        Raises:
            NumericsError: the logits of a live row hold NaN or inf.
        """
        self._prefix = self._shared_prefix()
        while (rows := self._refill()) is not None:
            ids = self._sample(rows)
            if self._num_ended < len(rows):
                self._advance(rows, ids)
        return self._record

    def _shared_prefix(self) -> Prefix | None:
        """Run what all prompts begin with, once; None when there is little of it, or one prompt only."""
        num_tokens = _common_length(self._num_waiting)
        if not self._forward.has_standard_cache or num_tokens < _MIN_PREFIX:
            return None
        prompt = self._jobs[0].prompt
        return Prefix(num_tokens=num_tokens, cache=self._forward.prefill([prompt[:num_tokens]]).cache)

    def _sample(self, rows: _Rows) -> Tensor:
        """Draw the next token of every row, record it, and end the rows that are complete."""
        uniforms = rows.uniforms.gather(1, rows.count[:, None]).squeeze(1)
        drawn = draw(self._logits, uniforms, self._sampling)
        if not bool(drawn.logprobs.isfinite().all()):
            raise NumericsError(self._describe_bad_row(drawn.logprobs, rows))
        self._record.tokens[rows.job, rows.count] = drawn.ids
        self._record.logprobs[rows.job, rows.count] = drawn.logprobs
        is_terminator = self._is_terminator[drawn.ids]
        had_ended = rows.count == self._max_budget
        if self._has_stops:
            is_terminator = is_terminator | self._is_stop(rows, drawn.ids.tolist(), had_ended.tolist())
        rows.count.add_(1)
        has_ended = is_terminator | (rows.count >= rows.budget)  # of ended rows too: L + 1 is above every budget
        num_ended = int(has_ended.sum())
        if num_ended > self._num_ended:
            self._note_ends(rows, has_ended & ~had_ended, is_terminator)
            self._num_ended = num_ended
        rows.count.masked_fill_(has_ended, self._max_budget)
        return drawn.ids

    def _is_stop(self, rows: _Rows, ids: list[int], had_ended: list[bool]) -> Tensor:
        """[R] True for live rows that a rule of their own ends with the token just recorded."""
        found = [False] * len(ids)
        counts, jobs = rows.count.tolist(), rows.job.tolist()
        for row, (token, is_over, job) in enumerate(zip(ids, had_ended, jobs, strict=True)):
            stop = self._jobs[job].stop
            if stop is not None and not is_over and bool(stop.may_end[token]):
                found[row] = stop.has_ended(self._record.tokens[job, : counts[row] + 1].tolist())
        return torch.tensor(found, device=self._device)

    def _note_ends(self, rows: _Rows, is_new: Tensor, is_terminator: Tensor) -> None:
        jobs = rows.job[is_new]
        self._record.lengths[jobs] = rows.count[is_new]
        self._record.is_stopped[jobs] = is_terminator[is_new]
        self._record.seconds[jobs] = time.perf_counter() - self._began
        if self._on_end is not None:
            for job in jobs.tolist():
                self._on_end(job, self._record)

    def _advance(self, rows: _Rows, ids: Tensor) -> None:
        """Feed the drawn tokens. Ended rows come along until the next rebuild, at a position the model has."""
        positions = (self._width - rows.start).clamp_(max=self._last_position)
        self._width += 1
        mask = None if self._mask is None else self._mask[:, : self._width]
        self._logits = self._forward.step(ids, positions, mask, self._cache)

    def _refill(self) -> _Rows | None:
        """The rows of the next step, after ended ones left and waiting ones entered; None when all jobs are done."""
        if self._rows is None:
            kept = torch.empty(0, dtype=torch.int64, device=self._device)
        elif self._num_ended >= _REBUILD_SHARE * len(self._rows) or self._width == self._capacity:
            kept = (self._rows.count < self._max_budget).nonzero().squeeze(1)
        else:
            return self._rows
        entering = self._next_jobs(len(kept))
        self._rows = self._rebuild(kept, entering) if len(kept) or entering else None
        self._num_ended = 0
        return self._rows

    def _next_jobs(self, num_kept: int) -> list[int]:
        """Take jobs for the free rows; without a standard cache, only into an empty batch and out of one prefill."""
        free = min(self._max_rows - num_kept, len(self._waiting))
        if not self._forward.has_standard_cache:
            free = 0 if num_kept else self._num_in_one_prefill(free)
        return [self._waiting.popleft() for _ in range(free)]

    def _num_in_one_prefill(self, limit: int) -> int:
        """How many of the next jobs have prompts of one length that go through the model together."""
        prompts = [self._jobs[i].prompt for i in islice(self._waiting, limit)]
        alike = [prompt for prompt in prompts if len(prompt) == len(prompts[0])]
        batch = set(next(iter(_prefill_batches(list(dict.fromkeys(alike)), 0)), []))
        return sum(prompt in batch for prompt in alike)

    def _rebuild(self, kept: Tensor, entering: list[int]) -> _Rows:
        """A new batch of kept and entering rows, whose cache ends where its longest row does."""
        blocks, logits = self._entering_blocks(entering)
        if self._rows is not None and len(kept):
            blocks.insert(0, Block(cache=self._cache, rows=kept, is_consumed=True))
            logits.insert(0, self._logits[kept])
        rows, lengths = self._merge_rows(kept, entering)
        self._width = int(lengths.max())
        rows.start.copy_(self._width - lengths)
        most_left = int((rows.budget - rows.count).max())
        room = max(_MIN_GROWTH, self._width // 2) if self._forward.has_standard_cache else most_left
        self._capacity = self._width + min(most_left, room)
        self._logits = torch.cat(logits)
        self._cache = self._forward.gather(blocks, width=self._width, capacity=self._capacity)
        self._mask = self._forward.decode_mask(rows.start, self._capacity)
        return rows

    def _entering_blocks(self, entering: list[int]) -> tuple[list[Block], list[Tensor]]:
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
            rows = torch.tensor(indices, device=self._device)
            blocks.append(Block(cache=prefills[0].cache, rows=rows))
            logits.append(prefills[0].logits[rows])
        self._num_waiting.subtract(prompts)
        for prompt in set(prompts):
            if self._num_waiting[prompt] == 0:
                del self._prefilled[prompt]
        return blocks, logits

    def _merge_rows(self, kept: Tensor, entering: list[int]) -> tuple[_Rows, Tensor]:
        """The kept rows followed by the entering ones, and the columns each of them needs; ``start`` is still unset."""
        jobs = [self._jobs[i] for i in entering]
        lengths = torch.tensor([len(job.prompt) for job in jobs], dtype=torch.int64, device=self._device)
        new = _Rows(
            job=torch.tensor(entering, dtype=torch.int64, device=self._device),
            start=torch.zeros_like(lengths),
            count=torch.zeros_like(lengths),
            budget=torch.tensor([job.budget for job in jobs], dtype=torch.int64, device=self._device),
            uniforms=_uniforms([job.seed for job in jobs], self._max_budget).to(self._device),
        )
        old = self._rows
        if old is None or not len(kept):
            return new, lengths
        merged = {
            name: torch.cat([getattr(old, name)[kept], getattr(new, name)])
            for name in ("job", "start", "count", "budget", "uniforms")
        }
        return _Rows(**merged), torch.cat([self._width - old.start[kept], lengths])

    def _describe_bad_row(self, logprobs: Tensor, rows: _Rows) -> str:
        is_bad = ~logprobs.isfinite()
        job = self._jobs[int(rows.job[is_bad.nonzero()[0, 0]])]
        return (
            f"the policy's logits are NaN or inf in {int(is_bad.sum())} of {len(rows)} rows, first in {job.name}: its "
            "weights have diverged, or overflow in this dtype. Go back to an earlier checkpoint with a lower "
            "learner.lr, or set model.dtype to float32."
        )


def _empty_record(num_jobs: int, max_budget: int, device: torch.device) -> Record:
    return Record(
        tokens=torch.zeros((num_jobs, max_budget + 1), dtype=torch.int64, device=device),
        logprobs=torch.zeros((num_jobs, max_budget + 1), dtype=torch.float32, device=device),
        lengths=torch.zeros(num_jobs, dtype=torch.int64, device=device),
        is_stopped=torch.zeros(num_jobs, dtype=torch.bool, device=device),
        seconds=torch.zeros(num_jobs, dtype=torch.float64, device=device),
    )


def _uniforms(seeds: Sequence[int], max_budget: int) -> Tensor:
    """[R, L + 1] random numbers of each seed; the last column is for ended rows."""
    numbers = np.zeros((len(seeds), max_budget + 1))
    for row, seed in enumerate(seeds):
        numbers[row, :max_budget] = uniform_stream(seed, max_budget)
    return torch.from_numpy(numbers)


def _common_length(prompts: Collection[tuple[int, ...]]) -> int:
    """Leading tokens that all of two or more different prompts share and that leave each a token; else 0."""
    first, last = min(prompts), max(prompts)  # in this order every other prompt lies between them
    limit = min(len(first), len(last)) - 1 if first != last else 0
    return next((i for i in range(limit) if first[i] != last[i]), limit)


def _prefill_batches(prompts: Sequence[tuple[int, ...]], num_skipped: int) -> list[list[tuple[int, ...]]]:
    """Cut prompts, ordered by length, into batches within the token budget; at least one prompt a batch."""
    if not prompts:
        return []
    size = max(1, _PREFILL_TOKENS // (len(prompts[0]) - num_skipped))
    return [list(prompts[i : i + size]) for i in range(0, len(prompts), size)]
