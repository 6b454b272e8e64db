"""What a generator makes (a problem) and what the registry knows of it (a source)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

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
    opening: str | None = None
    """How the program begins that is asked for; where prompts are plain text, it is the prompt, to be continued."""
    difficulty: float | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A family of problems: drawn without end by ``generate``, or all of them listed by ``problems``."""

    name: str
    verifier: str
    """Name of the verifier that judges its tasks."""
    options: type[Settings]
    generate: Callable[[Random, Any], Problem] | None = None
    """Draws one problem; the second argument is an instance of ``options``. All randomness comes from the first."""
    problems: Callable[[Any], Sequence[Problem]] | None = None
    """Lists all problems there are; its argument is an instance of ``options``."""
    explain: Callable[[Task], str] | None = None
    """The reasoning of a worked example, without the answer; None where the source offers none."""
    guess: Callable[[Random, Task], str] | None = None
    """An answer in the right form that nothing was worked out for; None where the source offers none."""
    has_compact: bool = False
    """Problems carry a compact question, and it is what the source asks by default."""
    asks_for: Literal["answer", "tools", "program"] = "answer"
    """``answer``: stated where the answer format says. ``tools``: its tasks are done in an environment, and ``gold``
    lists the calls. ``program``: ``gold`` is a reference solution, continuing the problem's opening."""

    @property
    def has_tools(self) -> bool:
        """Its tasks are done in an environment."""
        return self.asks_for == "tools"
