"""What is audited: a reward as configured here, or somebody's function in a process that can be killed."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from oncurve.sandbox import FunctionWorker, Limits, Outcome
from oncurve.sandbox.child import encode_frame
from oncurve.types import ConfigError, Status, Task, Verdict
from oncurve.verify.attacks import WRAPPERS, Wrapper, stated_wrappers
from oncurve.verify.audit import adapter
from oncurve.verify.items import Item, StatesGold, one_line
from oncurve.verify.registry import NO_BUILDERS, Builders
from oncurve.verify.reward_function import MAX_REWARD, RewardFunction, arguments
from oncurve.verify.rewards import RewardSettings
from oncurve.verify.scorer import Scorer, TaskVerifier

LOAD_TIMEOUT_S = 120.0
"""Wall seconds for importing a target and what it imports."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reward function said of one completion."""

    reward: float | None
    """None: it gave no verdict."""
    cause: str = ""
    """Why not: ``timeout``, ``crash``, ``error``, ``bad_value``, ``unscored``, ``not_asked``, or a verifier's cause."""
    evidence: str = ""


class Batched(Protocol):
    """A function that takes several completions in one call, as trainers hand them over."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    def ask_together(self, items: Sequence[Item]) -> list[Answer]:
        """One answer an item, in order, of one call."""
        ...


class Target(Protocol):
    """A reward function under audit."""

    name: str

    @property
    def batched(self) -> Sequence[Batched]:
        """The functions of a user in it, which may treat a completion in company otherwise than alone."""
        ...

    @property
    def wrappers(self) -> Sequence[Wrapper]:
        """How it may want its answers."""
        ...

    def ask(self, items: Sequence[Item]) -> list[Answer]:
        """One answer an item, in order."""
        ...

    def close(self) -> None:
        """End what belongs to it."""
        ...


class ScorerTarget:
    """A scorer that is in use; closing it is the owner's matter. Its functions are not asked in company.

    Args:
        scorer: the reward as it scores completions.
        name: for people.
        task: one of the tasks, whose verifier may say how it wants answers.
    """

    batched: Sequence[Batched] = ()

    def __init__(self, scorer: Scorer, *, name: str, task: Task | None) -> None:
        self.name = name
        self._scorer = scorer
        verifier = scorer.primary
        if isinstance(verifier, TaskVerifier) and task is not None:
            verifier = verifier.verifier_of(task.verifier)
        self.wrappers = (*(stated_wrappers(verifier) if isinstance(verifier, StatesGold) else ()), *WRAPPERS)

    def ask(self, items: Sequence[Item]) -> list[Answer]:
        return [_answer(verdict) for verdict in self._scorer.score(items)]

    def close(self) -> None:
        """Nothing: the scorer is not its own."""


class RewardTarget(ScorerTarget):
    """The reward of a config: every component, weight and gate of it.

    Args:
        settings: the reward.
        name: for people.
        task: one of the tasks, whose verifier may say how it wants answers.
        base_dir: where relative paths of reward functions start.
        builders: of verifiers that need a network, see ``Scorer``.

    Raises:
        ConfigError: a reward function cannot be loaded.
    """

    def __init__(
        self,
        settings: RewardSettings,
        *,
        name: str,
        task: Task | None,
        base_dir: Path = Path(),
        builders: Builders = NO_BUILDERS,
    ) -> None:
        with ExitStack() as stack:
            scorer = stack.enter_context(Scorer(settings, base_dir=base_dir, builders=builders))
            super().__init__(scorer, name=name, task=task)
            verifiers = scorer.verifiers.values()
            self.batched = [_Component(one) for one in verifiers if isinstance(one, RewardFunction)]
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class _Component:
    """A reward function of a config by itself."""

    function: RewardFunction

    @property
    def name(self) -> str:
        return self.function.name

    def ask_together(self, items: Sequence[Item]) -> list[Answer]:
        return [_answer(verdict) for verdict in self.function.judge(items)]


class FunctionTarget:
    """A function with TRL's or verl's signature, or a rubric of the ``verifiers`` package, attacked one by one.

    It runs in a process that is killed when a call takes too long; the next call gets a fresh one. After
    ``max_failures`` calls in a row that hung or died, the rest is not asked: the answer would be the same, late.

    Args:
        name: ``path/to/file.py:function`` or ``module:name``.
        timeout_s: wall seconds for one call.
        memory_bytes: address space of the process; None for no limit.

    Raises:
        ConfigError: it cannot be loaded, or is nothing that can be called.
    """

    wrappers = WRAPPERS
    max_failures = 10

    def __init__(self, name: str, *, timeout_s: float = 10.0, memory_bytes: int | None = None) -> None:
        self.name = name
        path, colon, function = name.rpartition(":")
        if not colon or not path or not function.isidentifier():
            raise ConfigError(f"{name}: expected path/to/file.py:function or module:Rubric")
        if path.endswith(".py"):
            if not Path(path).is_file():
                raise ConfigError(f"{name}: there is no file {Path(path).resolve()}")
            path = str(Path(path).resolve())
        elif "/" in path or Path(path).is_file() or (Path(path).is_dir() and not Path(path, "__init__.py").exists()):
            raise ConfigError(f"{name}: {path} is no Python file. Write path/to/file.py:function or module:Rubric")
        self._target = f"{path}:{function}"
        limits = Limits(timeout_s=timeout_s, memory_bytes=memory_bytes)
        self._worker = FunctionWorker(Path(adapter.__file__), "score", limits)
        self._timeout_s = timeout_s
        self._failures = 0
        self.shape = self._shape()

    @property
    def batched(self) -> Sequence[Batched]:
        return (self,)

    def ask(self, items: Sequence[Item]) -> list[Answer]:
        return [self._ask(item) for item in items]

    def ask_together(self, items: Sequence[Item]) -> list[Answer]:
        """One call for all, with the time of as many; a signature of single completions is called for each."""
        return self._call(items)

    def close(self) -> None:
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _shape(self) -> str:
        found = self._load()
        if found.cause:
            self._worker.close()
            raise ConfigError(f"{self.name} cannot be loaded: {found.detail}")
        return str(found.value)

    def _load(self) -> Outcome:
        """Have a fresh process import the target, which may take longer than a call does."""
        return self._worker.send(encode_frame({"target": self._target, "rows": None}), LOAD_TIMEOUT_S)

    def _ask(self, item: Item) -> Answer:
        if self._failures >= self.max_failures:
            return Answer(None, "not_asked", f"{self.max_failures} calls in a row hung or died before")
        (answer,) = self._call([item])
        self._failures = self._failures + 1 if answer.cause in ("timeout", "crash") else 0
        return answer

    def _call(self, items: Sequence[Item]) -> list[Answer]:
        outcome = Outcome() if self._worker.is_started else self._load()
        if not outcome.cause:
            frame = encode_frame({"target": self._target, "rows": [_row(item) for item in items]})
            outcome = self._worker.send(frame, self._timeout_s * len(items))
        if outcome.cause:
            return [Answer(None, outcome.cause, one_line(outcome.detail))] * len(items)
        return [_read(value) for value in outcome.value]


def _row(item: Item) -> dict[str, Any]:
    columns = arguments([item])
    return {
        "prompt": columns["prompts"][0],
        "completion": columns["completions"][0],
        "completion_ids": columns["completion_ids"][0],
        "text": item.text,
        "gold": item.task.gold,
        "task_id": item.task.id,
        "kind": item.task.kind,
        "meta": dict(item.task.meta),
    }


def _read(value: Any) -> Answer:
    if value is None:
        return Answer(None, "unscored", "it returned None")
    if not isinstance(value, int | float) or not abs(value) <= MAX_REWARD:
        return Answer(None, "bad_value", f"it returned {one_line(repr(value), 60)}")
    return Answer(float(value))


def _answer(verdict: Verdict) -> Answer:
    if verdict.status is Status.NO_VERDICT or verdict.reward is None:
        return Answer(None, str(verdict.cause), verdict.evidence)
    return Answer(verdict.reward, "", verdict.evidence)
