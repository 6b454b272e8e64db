"""Rows through a ``Network``: a prompt's keys are held once for its group, prompts run packed, nothing is padded.

T tokens, R rows, V vocabulary.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from oncurve.rollout.jobs import MIN_PREFIX, Job, common_length
from oncurve.rollout.network import Network
from oncurve.rollout.shared_cache import PromptAttention, Prompts, SharedCache

_PREFILL_TOKENS = 2048
"""Prompt tokens of one pass: enough to fill the processor, few enough that activations stay in its caches."""


class GroupedBatch:
    """A ``Batch`` whose memory is one set of keys and values a prompt, and one a sampled token.

    Args:
        network: the model, as it is now.
        jobs: all that are to come.
        context_length: of the model.
        max_cache_tokens: most tokens whose keys and values are held, counted as prompts times the longest plus rows
            times the largest budget. A single job may take more.
    """

    def __init__(self, network: Network, jobs: Sequence[Job], *, context_length: int, max_cache_tokens: int) -> None:
        self._network = network
        self._jobs = jobs
        self._last_position = context_length - 1
        self._max_cache_tokens = max_cache_tokens
        self._max_budget = max(job.budget for job in jobs)
        self._num_waiting = Counter(job.prompt for job in jobs)
        self._held: list[tuple[int, ...]] = []
        """The prompts in the cache."""
        self._logits: dict[tuple[int, ...], Tensor] = {}
        """[V] of the first token behind prompts that more jobs wait for."""
        self._prompts = Prompts.empty(network.shape, [])
        self._cache: SharedCache | None = None
        self._prefix = self._shared_prefix()

    def _shared_prefix(self) -> Prompts:
        """What all prompts begin with, if that is worth a pass of its own."""
        num_tokens = common_length(self._num_waiting)
        if num_tokens < MIN_PREFIX:
            return Prompts.empty(self._network.shape, [0])
        prefix = Prompts.empty(self._network.shape, [num_tokens])
        self._run(prefix, [self._jobs[0].prompt[:num_tokens]], first=0, places=[0])
        return prefix

    @property
    def is_full(self) -> bool:
        """See ``Batch``: rows grow on demand."""
        return False

    def num_admitted(self, live: Sequence[int], waiting: Sequence[int]) -> int:
        """See ``Batch``."""
        prompts = {self._jobs[i].prompt for i in live}
        longest = max(map(len, prompts), default=0)
        budget = max((self._jobs[i].budget for i in live), default=0)
        for count, index in enumerate(waiting):
            job = self._jobs[index]
            prompts.add(job.prompt)
            longest, budget = max(longest, len(job.prompt)), max(budget, job.budget)
            num_tokens = len(prompts) * longest + (len(live) + count + 1) * budget
            if num_tokens > self._max_cache_tokens and (live or count):
                return count
        return len(waiting)

    def change(self, kept: Tensor, live: Sequence[int], entering: Sequence[int]) -> Tensor:
        """See ``Batch``."""
        prompts = [self._jobs[i].prompt for i in entering]
        new = [prompt for prompt in dict.fromkeys(prompts) if prompt not in self._held]
        self._num_waiting.subtract(prompts)
        needed = {self._jobs[i].prompt for i in (*live, *entering)} - set(new)
        staying = [place for place, prompt in enumerate(self._held) if prompt in needed]
        if new or len(staying) < len(self._held):
            self._prompts = Prompts.joined(self._prompts, staying, self._prefill(new))
            self._held = [self._held[place] for place in staying] + new
        place_of = {prompt: place for place, prompt in enumerate(self._held)}
        prompt_of = torch.tensor([place_of[self._jobs[i].prompt] for i in (*live, *entering)], dtype=torch.int64)
        if self._cache is None:
            self._cache = SharedCache(self._network.shape, self._prompts, prompt_of, max_columns=self._max_budget)
        else:
            self._cache.change(kept, self._prompts, prompt_of)
        logits = torch.stack([self._logits[prompt] for prompt in prompts]) if prompts else torch.empty(0)
        self._logits = {prompt: row for prompt, row in self._logits.items() if self._num_waiting[prompt]}
        return logits

    def step(self, ids: Tensor) -> Tensor:
        """See ``Batch``. Ended rows come along until they leave, at a position the model has."""
        cache = self._cache
        if cache is None:
            raise RuntimeError("no row has entered: call change first")
        cache.begin_step()
        positions = cache.positions.clamp(max=self._last_position)
        logits = self._network.logits(self._network.hidden(ids, positions, cache.attend))
        cache.end_step()
        return logits

    def _prefill(self, prompts: Sequence[tuple[int, ...]]) -> Prompts:
        """Keys and values of prompts, longest first, and the logits behind them."""
        made = Prompts.empty(self._network.shape, [len(prompt) for prompt in prompts])
        if not prompts:
            return made
        first = int(self._prefix.lengths[0])
        for held, prefix in ((made.keys, self._prefix.keys), (made.values, self._prefix.values)):
            for into, states in zip(held, prefix, strict=True):
                into[:, :, :first] = states
        batch: list[int] = []
        for place in range(len(prompts)):
            batch.append(place)
            is_last = place + 1 == len(prompts)
            num_tokens = sum(len(prompts[i]) - first for i in batch)
            if is_last or num_tokens + len(prompts[place + 1]) - first > _PREFILL_TOKENS:
                hidden = self._run(made, [prompts[i] for i in batch], first=first, places=batch)
                for i, row in zip(batch, self._network.logits(hidden), strict=True):
                    self._logits[prompts[i]] = row
                batch = []
        return made

    def _run(self, into: Prompts, prompts: Sequence[tuple[int, ...]], *, first: int, places: Sequence[int]) -> Tensor:
        """Run prompts from position ``first`` on, packed; the hidden state of the last token of each."""
        tails = [prompt[first:] for prompt in prompts]
        ids = torch.tensor([token for tail in tails for token in tail])
        positions = torch.cat([torch.arange(first, len(prompt)) for prompt in prompts])
        spans = [(place, first, len(tail)) for place, tail in zip(places, tails, strict=True)]
        attend = PromptAttention(self._network.shape, into, spans, self._network.dtype)
        lasts = torch.tensor([len(tail) for tail in tails]).cumsum(0) - 1
        return self._network.hidden(ids, positions, attend)[lasts]


def agrees(network: Network, ids: Tensor, logits: Tensor) -> bool:
    """True when the network gives these logits [T, V] for one sequence [T], up to rounding; NaN agrees with anything.

    At the median token the difference is less than a thousandth of the logits' spread, in bfloat16 less than half of
    it: at the first tokens of a text deep models round that coarsely, whichever code runs them.

    Structure says that a model is known; this says that its own code still computes what it did when it became known.
    """
    held = Prompts.empty(network.shape, [len(ids)])
    attend = PromptAttention(network.shape, held, [(0, 0, len(ids))], network.dtype)
    ours = network.logits(network.hidden(ids, torch.arange(len(ids)), attend))
    spread = logits.float() - logits.float().mean(dim=1, keepdim=True)
    gap = ours.float() - ours.float().mean(dim=1, keepdim=True) - spread
    share = gap.norm(dim=1) / spread.norm(dim=1)
    return not bool(share.median() > (0.5 if network.dtype is torch.bfloat16 else 1e-3))
