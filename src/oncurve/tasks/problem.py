"""What a generator makes (a problem) and what the registry knows of it (a source)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from oncurve.types import Settings, Task


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One generated problem, before it is phrased as a prompt."""

    kind: str
    """The task type it is reported under."""
    canonical: str
    """Its content without wording or order: equal for equal problems. Decides identity and split."""
    question: str
    """In natural language, without saying where the answer goes."""
    gold: str
    compact: str | None = None
    """The same question in a few symbols, for a model that reads single characters."""
    difficulty: float | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A family of generated problems."""

    name: str
    verifier: str
    """Name of the verifier that judges its tasks."""
    options: type[Settings]
    generate: Callable[[Random, Any], Problem]
    """Draws one problem; the second argument is an instance of ``options``. All randomness comes from the first."""
    explain: Callable[[Task], str] | None = None
    """The reasoning of a worked example, without the answer; None where the source offers none."""
    guess: Callable[[Random, Task], str] | None = None
    """An answer in the right form that nothing was worked out for; None where the source offers none."""
    has_compact: bool = False
    """Problems carry a compact question, and it is what the source asks by default."""
    has_tools: bool = False
    """Its tasks are done in an environment; ``gold`` lists the calls, and no answer is asked for."""
