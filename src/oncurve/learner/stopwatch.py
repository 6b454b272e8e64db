"""Where the seconds of an update go."""

from collections.abc import Mapping

PHASES = ("reference", "critic")
"""Phases of a step beside the update of the policy: log-probs under the reference; values and steps of the critic."""
PARTS = {
    "grade": "rewards to advantages",
    "pack": "completions to micro-batches",
    "forward": "the body of the model, forward",
    "head": "output head, log-probs, loss and their backward pass, chunk by chunk",
    "backward": "the body of the model, backward",
    "optimizer": "sums of gradients in float32, clipping, AdamW",
    "recompute": "log-probs that are needed before the gradient: old ones, and those of losses on whole completions",
}
"""The parts of an update that are timed. They do not overlap; what is left of it is counting and metrics."""


def time_metrics(total: float, seconds: Mapping[str, float]) -> dict[str, float]:
    """Name what an update took: its phases add up to ``total``, and the parts of ``seconds/update`` to nearly that.

    Args:
        total: wall seconds, phases included.
        seconds: by name, see ``PHASES`` and ``PARTS``.

    Returns:
        ``seconds/<phase>`` for those that occurred, ``seconds/update`` for the rest, ``seconds/update/<part>`` within.
    """
    phases = {f"seconds/{name}": spent for name, spent in seconds.items() if name in PHASES}
    parts = {f"seconds/update/{name}": seconds[name] for name in PARTS if name in seconds}
    return {**phases, "seconds/update": total - sum(phases.values()), **parts}
