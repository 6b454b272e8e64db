"""What an engine is: requests of token ids in, completions of token ids out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from oncurve.types import Completion, Sampling
from oncurve.verify.environments import EnvironmentSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One completion to sample."""

    task_id: str
    index: int
    """Position in its group, 0..G-1."""
    prompt_ids: tuple[int, ...]
    seed: int
    """In [0, 2**64). It alone decides the randomness of this completion."""
    max_tokens: int | None = None
    """Most tokens of this one; None takes those of the sampling."""
    stop: tuple[str, ...] = ()
    """Texts that end it too: the token that completes one is its last."""
    environment: EnvironmentSpec | None = None
    """For ``ToolEngine``: what its calls are carried out on. Other engines sample text."""


Announce = Callable[[int, Completion], None]
"""Told the place of a request and its finished completion."""


PARTS = {
    "weights": "the model's weights, made ready for sampling",
    "prefill": "prompts, and the cache when rows leave and enter",
    "decode": "the model, one token a row",
    "sample": "a token from every distribution",
    "finish": "completions: their text, and handing them on",
}
"""The parts of a call that are timed. They do not overlap."""


def added(times: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Seconds of several calls together, by part."""
    names = dict.fromkeys(name for one in times for name in one)
    return {name: sum(one.get(name, 0.0) for one in times) for name in names}


class Engine(Protocol):
    """Anything that samples completions. Every engine passes the same conformance tests."""

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        policy_version: int,
        on_completion: Announce | None = None,
    ) -> list[Completion]:
        """Sample one completion per request, in the order of the requests.

        A completion depends on the weights, its prompt, its seed and ``sampling``; not on the other requests. Ids go
        through unchanged: ``token_ids`` is what was sampled, up to and including the first terminator, or the token by
        which the text holds one of the request's ``stop``.

        Args:
            requests: what to sample.
            sampling: how.
            policy_version: written on every completion.
            on_completion: called once a request, with its place among the requests and its completion, as soon as that
                has ended and while others still grow. What it raises ends the call.

        Raises:
            DataError: a prompt is empty or leaves no room in the context; names the task, the lengths, the remedy.
            NumericsError: the policy's logits hold NaN or inf.
        """
        ...

    def seconds(self) -> dict[str, float]:
        """Wall seconds of the latest call, by part, see ``PARTS``; empty where nothing is timed."""
        ...
