"""The decode loop: rows enter, gain one token per step, and leave.

N jobs, R rows alive, L the largest completion budget, V vocabulary. Python loops over rows only where rows enter.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from oncurve.rollout.jobs import Batch, Job
from oncurve.rollout.sampler import draw, uniform_stream
from oncurve.types import NumericsError, Sampling
from oncurve.types.stopwatch import Stopwatch

_REBUILD_SHARE = 0.25
"""Ended rows stay in the batch until they are this share of it: copying the cache costs about two steps."""


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

    Ended rows leave the batch, and waiting jobs enter it, when enough rows have ended or the batch is full. Waiting
    jobs are ordered by prompt, longest first, so that the jobs of a prompt enter together. ``on_end`` is told each
    job whose row of the record is complete.
    """

    def __init__(
        self,
        batch: Batch,
        jobs: Sequence[Job],
        sampling: Sampling,
        *,
        is_terminator: Tensor,
        max_rows: int,
        on_end: Callable[[int, Record], None] | None = None,
        clock: Stopwatch | None = None,
    ) -> None:
        self._batch = batch
        self._jobs = jobs
        self._sampling = sampling
        self._max_rows = max_rows
        self._on_end = on_end
        self._clock = clock or Stopwatch()
        self._is_terminator = is_terminator
        self._device = is_terminator.device
        self._has_stops = any(job.stop is not None for job in jobs)
        self._waiting = deque(sorted(range(len(jobs)), key=lambda i: (-len(jobs[i].prompt), jobs[i].prompt)))
        self._max_budget = max(job.budget for job in jobs)
        self._record = _empty_record(len(jobs), self._max_budget, self._device)
        self._began = time.perf_counter()
        self._rows: _Rows | None = None
        self._num_ended = 0
        self._logits = torch.empty(0)

    def run(self) -> Record:
        """Sample everything.

        Raises:
            NumericsError: the logits of a live row hold NaN or inf.
        """
        while (rows := self._refill()) is not None:
            with self._clock.running("sample"):
                ids, ended = self._sample(rows)
            if ended is not None:
                self._tell(ended)
            if self._num_ended < len(rows):
                with self._clock.running("decode"):
                    self._logits = self._batch.step(ids)
        return self._record

    def _sample(self, rows: _Rows) -> tuple[Tensor, Tensor | None]:
        """Draw the next token of every row, record it, and end the rows that are complete: [R] the tokens, and the
        jobs that have ended, if any."""
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
        num_ended, ended = int(has_ended.sum()), None
        if num_ended > self._num_ended:
            ended = self._note_ends(rows, has_ended & ~had_ended, is_terminator)
            self._num_ended = num_ended
        rows.count.masked_fill_(has_ended, self._max_budget)
        return drawn.ids, ended

    def _is_stop(self, rows: _Rows, ids: list[int], had_ended: list[bool]) -> Tensor:
        """[R] True for live rows that a rule of their own ends with the token just recorded."""
        found = [False] * len(ids)
        counts, jobs = rows.count.tolist(), rows.job.tolist()
        for row, (token, is_over, job) in enumerate(zip(ids, had_ended, jobs, strict=True)):
            stop = self._jobs[job].stop
            if stop is not None and not is_over and bool(stop.may_end[token]):
                found[row] = stop.has_ended(self._record.tokens[job, : counts[row] + 1].tolist())
        return torch.tensor(found, device=self._device)

    def _note_ends(self, rows: _Rows, is_new: Tensor, is_terminator: Tensor) -> Tensor:
        jobs = rows.job[is_new]
        self._record.lengths[jobs] = rows.count[is_new]
        self._record.is_stopped[jobs] = is_terminator[is_new]
        self._record.seconds[jobs] = time.perf_counter() - self._began
        return jobs

    def _tell(self, jobs: Tensor) -> None:
        if self._on_end is not None:
            with self._clock.running("finish"):
                for job in jobs.tolist():
                    self._on_end(job, self._record)

    def _refill(self) -> _Rows | None:
        """The rows of the next step, after ended ones left and waiting ones entered; None when all jobs are done."""
        if self._rows is None:
            kept = torch.empty(0, dtype=torch.int64, device=self._device)
        elif self._num_ended >= _REBUILD_SHARE * len(self._rows) or self._batch.is_full:
            kept = (self._rows.count < self._max_budget).nonzero().squeeze(1)
        else:
            return self._rows
        live = [] if self._rows is None else self._rows.job[kept].tolist()
        next_jobs = list(islice(self._waiting, self._max_rows - len(live)))
        entering = [self._waiting.popleft() for _ in range(self._batch.num_admitted(live, next_jobs))]
        self._rows = self._rebuild(kept, live, entering) if live or entering else None
        self._num_ended = 0
        return self._rows

    def _rebuild(self, kept: Tensor, live: list[int], entering: list[int]) -> _Rows:
        """The kept rows followed by the entering ones."""
        with self._clock.running("prefill"):
            first_logits = self._batch.change(kept, live, entering)
        parts = [self._logits[kept]] if live else []
        self._logits = torch.cat([*parts, first_logits] if entering else parts)
        jobs = [self._jobs[i] for i in entering]
        new = _Rows(
            job=torch.tensor(entering, dtype=torch.int64, device=self._device),
            count=torch.zeros(len(jobs), dtype=torch.int64, device=self._device),
            budget=torch.tensor([job.budget for job in jobs], dtype=torch.int64, device=self._device),
            uniforms=_uniforms([job.seed for job in jobs], self._max_budget).to(self._device),
        )
        old = self._rows
        if old is None or not live:
            return new
        names = ("job", "count", "budget", "uniforms")
        return _Rows(**{name: torch.cat([getattr(old, name)[kept], getattr(new, name)]) for name in names})

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
