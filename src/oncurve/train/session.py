"""One run with everything it holds, whatever its method: made new from a config, or resumed from its folder."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from oncurve.config import RunConfig, dump_config, load_config, with_absolute_paths
from oncurve.evaluate import evaluate_policy
from oncurve.evaluate.adversarial import reward_metrics
from oncurve.learner import latest_checkpoint, load_state, save_checkpoint
from oncurve.model import Policy, load_policy, settled, weights_fingerprint
from oncurve.model.threads import use_threads
from oncurve.report import RunFolder, read_seconds_after
from oncurve.report.folder import next_folder
from oncurve.report.progress import Saved
from oncurve.rollout import Judging, local_engine, unit_of
from oncurve.rollout.reward_model import NETWORK_VERIFIERS
from oncurve.tasks import Note, TaskSet, load_tasks
from oncurve.train.checks import recorded, require_history, require_same_data, require_same_start
from oncurve.train.environment import describe_environment
from oncurve.train.events import Evaluated
from oncurve.train.formula import formula_of
from oncurve.train.plan import require_memory
from oncurve.verify import Scorer
from oncurve.verify.judges import JUDGE_PROBE, probe_components


class Resumable(Protocol):
    """A learner, as far as checkpoints are concerned."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on."""

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Continue where ``state_dict`` was taken."""


class Cursor(Protocol):
    """Data that hand out their next items, as far as checkpoints are concerned."""

    cursor: int


@dataclass(frozen=True, kw_only=True)
class Material:
    """What a run starts from, the same at every start of it."""

    config: RunConfig
    policy: Policy
    tasks: TaskSet
    source: Any
    """What the steps take their data from; it has a ``cursor``."""
    longest: int = 0
    """Most tokens of a prompt and a given completion together."""
    fingerprint: str | None = None
    """Of data that a file may change; None where the config decides them."""
    notes: tuple[Note, ...] = ()
    """What happened to the data."""


class Session(ABC):
    """A run in this process. Make one with ``Session.create`` or ``Session.resume``; close it to end its processes.

    A kind of run is a subclass that names its methods; it brings the learner, the data and what a step does.
    """

    _KINDS: ClassVar[dict[str, type["Session"]]] = {}

    learner: Resumable

    def __init_subclass__(cls, *, methods: Sequence[str]) -> None:
        Session._KINDS.update(dict.fromkeys(methods, cls))

    def __init__(self, folder: RunFolder, material: Material) -> None:
        config = material.config
        self.config = config
        self.folder = folder
        self.policy = material.policy
        self.step = 0
        self.saved_step: int | None = None
        self._examined: dict[str, float] = {}
        self._between: dict[str, float] = {}
        self._held_out = material.tasks.held_out[: config.evaluation.num_tasks]
        self._source: Cursor = material.source
        self._scorer = Scorer(config.reward, builders=NETWORK_VERIFIERS)
        self._judging = Judging(self._scorer, unit_of(config.rollout.overlap, config.reward))
        self._engine = local_engine(material.policy, config.rollout)

    @classmethod
    @abstractmethod
    def load(cls, config: RunConfig, policy: Policy, tasks: TaskSet) -> Material:
        """Load the data of a run and settle what they decide.

        Raises:
            DataError, RunError, ValueError: they cannot be used.
        """

    @classmethod
    @abstractmethod
    def refuse_unusable(cls, material: Material) -> None:
        """Find before the first step what would otherwise fail in the middle of a run. Raises DataError, RunError."""

    @staticmethod
    def create(config: RunConfig) -> "Session":
        """Start a new run in a new folder.

        Raises:
            ConfigError, DataError, ModelError: something the run needs cannot be used; no folder is left behind.
            RunError, StorageError: the run folder cannot be made.
        """
        num_threads = use_threads(config.threads)
        kind = Session._KINDS[config.method]
        config = config.model_copy(update={"model": settled(config.model)})
        tasks = load_tasks(config.tasks, seed=config.seed)
        require_memory(config, row_tokens=config.rollout.sampling.max_tokens + 1)
        material = kind.load(config, load_policy(config.model, seed=config.seed), tasks)
        kind.refuse_unusable(material)
        folder = RunFolder.create(
            Path(config.run_dir) if config.run_dir else next_folder(Path(config.output), config.name),
            config_toml=dump_config(with_absolute_paths(material.config)),
            environment=describe_environment(
                num_threads=num_threads, weights=weights_fingerprint(material.policy), data=material.fingerprint
            ),
            formula=formula_of(material.config),
        )
        folder.lock()
        session = kind(folder, material)
        session._note(material)
        return session

    @staticmethod
    def resume(run_dir: Path) -> "Session":
        """Continue a run from its last checkpoint, with the threads and settings it was started with.

        Everything recorded after that checkpoint is dropped and done again.

        Raises:
            RunError: the folder is no run, or its files disagree.
            ModelError: the starting weights are gone or changed: the reference policy would be another one.
            DataError: the data of the run are gone or changed.
        """
        folder = RunFolder.open(run_dir)
        folder.lock()
        config = load_config(run_dir / "config.toml")
        use_threads(int(recorded(folder, "threads")))
        kind = Session._KINDS[config.method]
        tasks = load_tasks(config.tasks, seed=config.seed)
        policy = load_policy(config.model, seed=config.seed)
        require_same_start(folder, policy)
        material = kind.load(config, policy, tasks)
        require_same_data(folder, material.fingerprint)
        session = kind(folder, material)
        session._continue(material)
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._scorer.close()
        self._engine.close()
        self.folder.unlock()

    @property
    def is_finished(self) -> bool:
        """True when there is no further step."""
        return self.step >= self.config.steps

    def is_evaluation_due(self, step: int) -> bool:
        """True before the first step, after the last, and every ``evaluation.every`` between."""
        every = self.config.evaluation.every
        return step == 0 or self.is_finished or (every > 0 and step % every == 0)

    @property
    def is_checkpoint_due(self) -> bool:
        """True after the last step, and every ``checkpoint_every`` before it."""
        return self.is_finished or self.step % self.config.checkpoint_every == 0

    def evaluate(self, step: int) -> Evaluated:
        """Examine the policy on held-out tasks and record it."""
        started = time.perf_counter()
        settings = self.config.evaluation
        is_full = step == 0 or self.is_finished
        evaluation = evaluate_policy(
            self._engine,
            self._scorer,
            self._held_out,
            self.policy.encode_prompt,
            sampling=self.config.rollout.sampling,
            num_samples=settings.num_samples if is_full else settings.during_samples,
            k=settings.k,
            seed=self.config.seed,
            step=step,
            adversarial=settings.adversarial,
            judging=self._judging,
        )
        self.folder.append_evaluation(step, evaluation.as_dict())
        self._examined = reward_metrics(evaluation.adversarial)
        seconds = time.perf_counter() - started
        self._spend("evaluation", seconds)
        return Evaluated(evaluation=evaluation, seconds=seconds)

    def take_examined(self) -> dict[str, float]:
        """What the examination right before this step says of the reward, for the metrics of the step."""
        found, self._examined = self._examined, {}
        return found

    def checkpoint(self, step: int) -> Saved:
        """Make records and weights safe; a kill during this call leaves the checkpoint before it."""
        started = time.perf_counter()
        self.folder.seal(is_final=self.is_finished)
        self.folder.sync()
        state = {
            "step": step,
            "cursor": self._source.cursor,
            "learner": self.learner.state_dict(),
            **self.more_state(),
        }
        path = save_checkpoint(
            self.folder.checkpoints, step, self.policy, state, keep_last=self.config.keep_checkpoints
        )
        self.saved_step = step
        self._spend("checkpoint", time.perf_counter() - started)
        return Saved(step=step, path=path)

    def seconds_between(self) -> dict[str, float]:
        """``seconds/evaluation`` and ``seconds/checkpoint`` since the last call, for the record of the next step."""
        spent, self._between = self._between, {}
        return spent

    def _spend(self, name: str, seconds: float) -> None:
        """Count seconds; on disk they stand by themselves until a step records them, as none does after the last."""
        self._between[f"seconds/{name}"] = self._between.get(f"seconds/{name}", 0.0) + seconds
        self.folder.keep_seconds(self.step, self._between)

    def more_state(self) -> dict[str, Any]:
        """What a checkpoint of this kind of run holds beside step, cursor and learner."""
        return {}

    def load_more_state(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most kinds have nothing more
        """Continue where ``more_state`` was taken."""

    def _continue(self, material: Material) -> None:
        checkpoint = latest_checkpoint(self.folder.checkpoints)
        if checkpoint is not None:
            state = load_state(checkpoint)
            self.step = self.saved_step = int(state["step"])
            self._source.cursor = int(state["cursor"])
            self.learner.load_state_dict(state["learner"])
            self.load_more_state(state)
        self.folder.rewind(self.step)
        kept = read_seconds_after(self.folder, self.step)  # an examination of this step is dropped and done again
        self._between = {name: spent for name, spent in kept.items() if name == "seconds/checkpoint"}
        require_history(self.folder, self.step)
        if self.is_finished:
            self.folder.seal(is_final=True)
        if self.step == 0:
            self._note(material)

    def _note(self, material: Material) -> None:
        for origin, notes in (("tasks", material.tasks.notes), ("data", material.notes)):
            for note in notes:
                self.folder.append_event(0, f"{origin}_{note.kind}", note.text, count=note.count)
        for name, probed in probe_components(self._scorer.verifiers, material.tasks.held_out):
            self.folder.append_event(0, JUDGE_PROBE, probed.message(), component=name, **probed.as_dict())
