"""Tasks in, scored groups out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oncurve.model import Policy
from oncurve.rollout.engine import Engine, Request
from oncurve.rollout.judging import Judge, Judging
from oncurve.rollout.settings import RolloutSettings
from oncurve.types import Group, Task, derive_seed
from oncurve.verify import Item, num_duplicates
from oncurve.verify.environments import environment_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """Scored groups, and what they cost."""

    groups: tuple[Group, ...]
    """The groups to train on."""
    set_aside: tuple[Group, ...] = ()
    """Groups without signal that resampling replaced; empty unless zero-variance groups are resampled."""
    num_rounds: int = 1
    """Times that tasks were drawn."""
    seconds_rollout: float
    """Wall seconds spent sampling."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Of them, by ``engine.PARTS``."""
    seconds_verify: float
    """Wall seconds that scoring took beyond sampling."""
    seconds_verify_busy: float = 0.0
    """Wall seconds in which something was being scored, most of them while sampling went on."""

    @property
    def all_groups(self) -> tuple[Group, ...]:
        """Everything sampled, the groups to train on first: what describes the policy without selection."""
        return self.groups + self.set_aside

    @property
    def accepted_frac(self) -> float:
        """Share of the sampled groups that is trained on; 1 when nothing was sampled."""
        return len(self.groups) / len(self.all_groups) if self.all_groups else 1.0

    def metrics(self) -> dict[str, float]:
        """Figures of this rollout by metric name, over everything sampled; empty when that is nothing."""
        completions = [completion for group in self.all_groups for completion in group.completions]
        if not completions:
            return {}
        items = [Item.of(group.task, completion) for group in self.all_groups for completion in group.completions]
        num_tokens = sum(len(completion.token_ids) for completion in completions)
        return {
            "tokens/completion": float(num_tokens),
            "tokens/prompt": float(sum(len(group.completions[0].prompt_ids) for group in self.all_groups)),
            "completions/distinct_frac": 1.0 - num_duplicates(items) / len(items),
            "groups/accepted_frac": self.accepted_frac,
            "groups/rounds": float(self.num_rounds),
            "seconds/rollout": self.seconds_rollout,
            **{f"seconds/rollout/{part}": spent for part, spent in self.parts.items()},
            "seconds/verify": self.seconds_verify,
            "seconds/verify_busy": self.seconds_verify_busy,
            "tokens_per_second/rollout": num_tokens / max(self.seconds_rollout, 1e-9),
        }


class Collector:
    """Samples a group per task and has it scored.

    Args:
        policy: encodes the prompts.
        engine: samples.
        judge: scores, or a ``Judging`` that scores while sampling goes on and may be shared with an examination.
        settings: group size and sampling.
        seed: the run's. A completion's random stream is named by (seed, step, round, task, index), so it is the same
            whatever else is collected, and resuming at a step repeats it.
    """

    def __init__(
        self, policy: Policy, engine: Engine, judge: Judge | Judging, settings: RolloutSettings, *, seed: int
    ) -> None:
        self._policy = policy
        self._engine = engine
        self._judging = judge if isinstance(judge, Judging) else Judging(judge, "rollout")
        self._settings = settings
        self._seed = seed

    def collect(
        self, tasks: Sequence[Task], *, policy_version: int, step: int | None = None, round_index: int = 0
    ) -> Rollout:
        """Sample and score ``group_size`` completions of every task.

        Args:
            tasks: P different tasks, in the order of the groups.
            policy_version: optimiser steps behind the weights, written on every completion.
            step: names the random streams; ``policy_version`` if not given.
            round_index: names them too, when one step collects more than once.

        Raises:
            ValueError: a task comes twice, or the judge does not return one verdict per completion.
            DataError: a prompt does not fit the context.
        """
        self._refuse_repeated(tasks)
        size = self._settings.group_size
        requests = [
            request
            for task in tasks
            for request in self._requests(task, policy_version if step is None else step, round_index)
        ]
        judged = self._judging.sample(
            self._engine,
            requests,
            [task for task in tasks for _ in range(size)],
            self._settings.sampling,
            policy_version=policy_version,
        )
        groups = tuple(
            Group(
                task=task,
                completions=tuple(judged.completions[place * size : (place + 1) * size]),
                verdicts=tuple(judged.verdicts[place * size : (place + 1) * size]),
            )
            for place, task in enumerate(tasks)
        )
        return Rollout(
            groups=groups,
            seconds_rollout=judged.seconds_rollout,
            parts=judged.parts,
            seconds_verify=judged.seconds_verify,
            seconds_verify_busy=judged.seconds_busy,
        )

    def _requests(self, task: Task, step: int, round_index: int) -> list[Request]:
        prompt_ids, environment = self._policy.encode_prompt(task.prompt), environment_of(task)
        return [
            Request(
                task_id=task.id,
                index=index,
                prompt_ids=prompt_ids,
                seed=derive_seed("rollout", self._seed, step, round_index, task.id, index),
                environment=environment,
            )
            for index in range(self._settings.group_size)
        ]

    def _refuse_repeated(self, tasks: Sequence[Task]) -> None:
        seen: set[str] = set()
        for task in tasks:
            if task.id in seen:
                raise ValueError(
                    f"task {task.id} comes twice in one rollout. Both groups would draw the same random numbers and "
                    "hold the same completions: give each task an id of its own, or collect it in another round."
                )
            seen.add(task.id)
