"""The engine that runs in this process, on the weights of the live policy."""

from collections.abc import Sequence

import torch

from oncurve.model import Policy
from oncurve.rollout.decode import Decoder, Job, Record, Stop
from oncurve.rollout.engine import Announce, Request
from oncurve.rollout.forward import Forward
from oncurve.types import Completion, DataError, FinishReason, Sampling


class TorchEngine:
    """Decodes with the policy's own model.

    Each distinct prompt is prefilled once and its cache rows repeated for the group; ended rows leave the batch and
    waiting requests take their place; the log-prob of a token comes from the logits it was drawn from. A completion
    has its own random stream, so the other rows change nothing but the last bits of its logits.

    Args:
        policy: sampled as it is at the time of the call, without dropout.
        max_rows: most completions in the batch at once, the main lever on memory. It does not change what is sampled.
    """

    def __init__(self, policy: Policy, *, max_rows: int) -> None:
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}: it is how many completions grow at once")
        self._policy = policy
        self._max_rows = max_rows
        self._forward = Forward(policy.model)
        self._stops: dict[tuple[str, ...], Stop] = {}

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        policy_version: int,
        on_completion: Announce | None = None,
    ) -> list[Completion]:
        """See ``Engine.generate``."""
        if not requests:
            return []
        jobs = [self._job(request, sampling.max_tokens) for request in requests]
        completions: dict[int, Completion] = {}

        def finish(place: int, record: Record) -> None:
            completions[place] = self._completion(requests[place], sampling, record, place, policy_version)
            if on_completion is not None:
                on_completion(place, completions[place])

        with self._forward.for_sampling(), torch.inference_mode():
            Decoder(
                self._forward,
                jobs,
                sampling,
                terminators=self._policy.terminators,
                context_length=self._policy.context_length,
                max_rows=self._max_rows,
                on_end=finish,
            ).run()
        return [completions[place] for place in range(len(requests))]

    def _job(self, request: Request, max_tokens: int) -> Job:
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
        wanted = max_tokens if request.max_tokens is None else request.max_tokens
        return Job(
            name=name,
            prompt=request.prompt_ids,
            seed=request.seed,
            budget=min(wanted, context - length),
            stop=self._stop_of(request.stop),
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
