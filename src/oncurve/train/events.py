"""What the loops tell whoever watches: plain values, no printing."""

from collections.abc import Mapping
from dataclasses import dataclass

from oncurve.evaluate import Evaluation
from oncurve.report.progress import Saved


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluated:
    """The policy was examined on held-out tasks."""

    evaluation: Evaluation
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Stepped:
    """One rollout and its optimiser steps are done and recorded."""

    step: int
    """Steps done so far, this one included."""
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Noted:
    """A rollout shows something that a user should know; also in events.jsonl."""

    step: int
    kind: str
    message: str


Event = Evaluated | Stepped | Saved | Noted
