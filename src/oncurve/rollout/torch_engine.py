"""The engine that runs in this process, on the weights of the live policy."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from oncurve.model import Policy
from oncurve.rollout.decode import Decoder, Record
from oncurve.rollout.engine import Announce, Request
from oncurve.rollout.forward import Forward
from oncurve.rollout.grouped import GroupedBatch, agrees
from oncurve.rollout.jobs import Batch, Job, Stop
from oncurve.rollout.network import Network
from oncurve.rollout.padded import PaddedBatch
from oncurve.rollout.products import UnknownLayerError
from oncurve.rollout.recompute import RecomputedBatch
from oncurve.types import Completion, DataError, FinishReason, Sampling
from oncurve.types.stopwatch import Stopwatch


class TorchEngine:
    """Decodes with the policy's own weights.

    Each distinct prompt is prefilled once for its group; ended rows leave the batch and waiting requests take their
    place; the log-prob of a token comes from the logits it was drawn from. A completion has its own random stream, so
    the other rows change nothing but the last bits of its logits. Families that ``Network`` knows run without the
    code of transformers; ``note`` says why another model does not.

    Args:
        policy: sampled as it is at the time of the call, without dropout.
        max_rows: most completions in the batch at once, the main lever on memory. It does not change what is sampled.
        max_cache_tokens: most tokens whose keys and values are held at once; requests beyond it wait. One request may
            take more.
    """

    def __init__(self, policy: Policy, *, max_rows: int, max_cache_tokens: int = 2**31) -> None:
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}: it is how many completions grow at once")
        self._policy = policy
        self._max_rows = max_rows
        self._max_cache_tokens = max_cache_tokens
        self._forward = Forward(policy.model)
        self._is_proved = False
        self.note = ""
        """Why the last call could not use the fastest path; empty when it did."""
        self._stops: dict[tuple[str, ...], Stop] = {}
        self._clock = Stopwatch()

    def seconds(self) -> dict[str, float]:
        """See ``Engine.seconds``."""
        return self._clock.seconds()

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        policy_version: int,
        on_completion: Announce | None = None,
    ) -> list[Completion]:
        """See ``Engine.generate``."""
        self._clock.reset()
        if not requests:
            return []
        jobs = [self._job(request, sampling) for request in requests]
        completions: dict[int, Completion] = {}

        def finish(place: int, record: Record) -> None:
            completions[place] = self._completion(requests[place], sampling, record, place, policy_version)
            if on_completion is not None:
                on_completion(place, completions[place])

        with self._forward.for_sampling(), torch.inference_mode():
            self._sample(jobs, sampling, finish)
        return [completions[place] for place in range(len(requests))]

    def _sample(self, jobs: Sequence[Job], sampling: Sampling, on_end: Callable[[int, Record], None]) -> None:
        Decoder(
            self._batch(jobs),
            jobs,
            sampling,
            is_terminator=self._is_terminator(),
            max_rows=self._max_rows,
            on_end=on_end,
            clock=self._clock,
        ).run()

    def _batch(self, jobs: Sequence[Job]) -> Batch:
        """What carries the rows: the network built from the weights of now, or the model's own code, with a cache if
        that works."""
        limits = {"context_length": self._policy.context_length, "max_cache_tokens": self._max_cache_tokens}
        try:
            with self._clock.running("weights"):
                network = self._network(jobs[0].prompt[:16])
            self.note = ""
            with self._clock.running("prefill"):
                return GroupedBatch(network, jobs, **limits)
        except UnknownLayerError as error:
            self.note = f"sampling runs the model's own code: {error}"
        if self._forward.fault:
            self.note = f"sampling runs every sequence from its first token at each step: {self._forward.fault}"
            return RecomputedBatch(self._forward, jobs, max_cache_tokens=self._max_cache_tokens)
        return PaddedBatch(self._forward, jobs, **limits)

    def _network(self, prompt: tuple[int, ...]) -> Network:
        network = self._forward.network()
        if not self._is_proved:
            ids = torch.tensor(prompt)
            if not agrees(network, ids, self._forward.whole(ids[None])[0]):
                raise UnknownLayerError("its code computes something else than its structure says")
            self._is_proved = True
        return network

    def _is_terminator(self) -> Tensor:
        ids = sorted(self._policy.terminators)
        found = torch.zeros(max(self._forward.vocab_size, ids[-1] + 1), dtype=torch.bool)
        found[ids] = True
        return found.to(self._forward.device)

    def _job(self, request: Request, sampling: Sampling) -> Job:
        name = f"completion {request.index} of task {request.task_id}"
        length, context = len(request.prompt_ids), self._policy.context_length
        if length == 0:
            raise DataError(
                f"task {request.task_id}: the prompt has no tokens, so there is nothing to continue. Give it a text, "
                "or use a tokenizer that adds a beginning-of-sequence token."
            )
        if length >= context:
            raise DataError(
                f"task {request.task_id}: its prompt has {length} tokens, but the model's context of {context} leaves "
                f"room for at most {context - 1} and one sampled token. Shorten or drop this task, or use a model with "
                "a longer context."
            )
        wanted = sampling.max_tokens if request.max_tokens is None else request.max_tokens
        return Job(
            name=name,
            prompt=request.prompt_ids,
            seed=request.seed,
            budget=min(wanted, context - length),
            stop=self._stop_of(tuple(dict.fromkeys(request.stop + sampling.stop))),
        )

    def _stop_of(self, texts: tuple[str, ...]) -> Stop | None:
        if texts and texts not in self._stops:
            vocabulary = self._policy.spell([[token] for token in range(len(self._policy.tokenizer))])
            lasts = {text[-1] for text in texts}
            may_end = torch.zeros(max(self._forward.vocab_size, len(vocabulary)), dtype=torch.bool)
            may_end[: len(vocabulary)] = torch.tensor([bool(lasts.intersection(said)) for said in vocabulary])

            def has_ended(tokens: list[int]) -> bool:
                (said,) = self._policy.spell([tokens])
                return any(text in said for text in texts)

            self._stops[texts] = Stop(may_end=may_end, has_ended=has_ended)
        return self._stops.get(texts)

    def _completion(
        self, request: Request, sampling: Sampling, record: Record, place: int, policy_version: int
    ) -> Completion:
        length = int(record.lengths[place])
        tokens = record.tokens[place, :length].tolist()
        return Completion(
            task_id=request.task_id,
            index=request.index,
            prompt_ids=request.prompt_ids,
            token_ids=tuple(tokens),
            old_logprobs=tuple(record.logprobs[place, :length].tolist()),
            policy_version=policy_version,
            finish_reason=FinishReason.STOP if bool(record.is_stopped[place]) else FinishReason.LENGTH,
            sampling=sampling,
            text=self._policy.decode(tokens),
            seconds=float(record.seconds[place]),
        )
