"""Measure a frozen policy on held-out tasks: greedy, pass@1, pass@k, intervals, and what a right answer costs."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from oncurve.evaluate.adversarial import examine_reward
from oncurve.evaluate.estimators import avg_at_k, clustered_interval, pass_at_k, token_cost, wilson_interval
from oncurve.rollout import Engine, Judging, Request
from oncurve.types import Completion, Prompt, Sampling, Settings, Status, Task, Verdict, derive_seed
from oncurve.verify import Scorer
from oncurve.verify.environments import environment_of


class EvaluationSettings(Settings):
    """How often and how hard a run is examined on held-out tasks."""

    every: int = Field(50, ge=0)
    """Optimiser steps between evaluations during the run; 0 examines only before and after."""

    num_tasks: int = Field(256, ge=2)
    """Held-out tasks asked, the first of the held-out split."""

    num_samples: int = Field(8, ge=1)
    """Completions sampled per task for pass@1 and pass@k, at the training temperature."""

    k: int = Field(8, ge=1)
    """The k of pass@k; at most num_samples."""

    during_samples: int = Field(0, ge=0)
    """Completions sampled per task while the run goes on; 0 asks only the greedy answer then."""

    adversarial: str = ""
    """Hostile completions that the reward is tried on at each evaluation and that nothing learns from: ``builtin``,
    made of held-out tasks; or a file or folder of cases as ``oncurve review`` writes them. Empty: none."""

    @model_validator(mode="after")
    def _enough_samples(self) -> "EvaluationSettings":
        if self.k > self.num_samples:
            raise ValueError(
                f"k is {self.k} but num_samples is {self.num_samples}. "
                "pass@k is unbiased only from at least k samples: raise evaluation.num_samples or lower evaluation.k."
            )
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """The result. Rates are fractions; intervals are 95 %; sampled figures are None when nothing was sampled."""

    step: int
    num_tasks: int
    num_samples: int
    greedy: float
    interval: tuple[float, float]
    """Wilson interval of the greedy accuracy, one answer a task."""
    mean_tokens: float
    """Tokens of a greedy answer, the terminator included."""
    tokens_per_correct: float | None
    """Greedy tokens spent per right answer; None when nothing was right."""
    truncated_frac: float
    no_verdict_frac: float
    pass_at_1: float | None = None
    pass_at_1_interval: tuple[float, float] | None = None
    """Clustered by task: samples of one task are correlated."""
    pass_at_k: float | None = None
    k: int | None = None
    by_kind: dict[str, float] = field(default_factory=dict)
    """Greedy accuracy by kind and difficulty of task."""
    task_digest: str
    """Of the ids of the tasks in their order: equal where two policies were asked the same."""
    greedy_correct: str
    """One character a task, in their order: 1 where the greedy answer is right, 0 elsewhere."""
    sampled_correct: str | None = None
    """Right ones among the ``num_samples`` completions of each task, as numbers with spaces between."""
    components: dict[str, float] = field(default_factory=dict)
    """Mean of each reward component over the greedy answers that have a value of it."""
    adversarial: dict[str, Any] | None = None
    """What the reward pays of hostile completions, see ``examine_reward``; None when they were not tried."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def figures(self) -> dict[str, Any]:
        """The same without what stands there for each single task."""
        single = ("task_digest", "greedy_correct", "sampled_correct")
        return {name: value for name, value in self.as_dict().items() if name not in single}


def evaluate_policy(
    engine: Engine,
    scorer: Scorer,
    tasks: Sequence[Task],
    encode_prompt: Callable[[Prompt], tuple[int, ...]],
    *,
    sampling: Sampling,
    num_samples: int,
    k: int,
    seed: int,
    step: int,
    adversarial: str = "",
    judging: Judging | None = None,
) -> Evaluation:
    """Ask every task once greedily and ``num_samples`` times at the training temperature.

    An answer without a verdict counts as not correct here, and its share is reported: leaving it out would make a
    failing verifier look like a better policy.

    Args:
        tasks: P held-out tasks, P >= 2.
        sampling: the training sampling; its temperature is used for the sampled figures.
        num_samples: S completions a task; 0 leaves the sampled figures out.
        k: of pass@k, at most S.
        seed: names the random streams together with the task, so that two policies meet the same draws.
        step: optimiser steps behind the weights.
        adversarial: source of hostile completions for the reward, see ``EvaluationSettings``.
        judging: of the same scorer, to verify while sampling goes on; None verifies afterwards.
    """
    judging = judging or Judging(scorer, "rollout")
    prompts = [encode_prompt(task.prompt) for task in tasks]
    greedy, greedy_verdicts = _ask(
        engine,
        judging,
        tasks,
        prompts,
        sampling=sampling.model_copy(update={"temperature": 0.0}),
        times=1,
        seed=seed,
        step=step,
    )
    right = np.array([verdict.status is Status.CORRECT for verdict in greedy_verdicts])
    cost = token_cost([len(completion.token_ids) for completion in greedy], right.tolist())
    interval = wilson_interval(int(right.sum()), len(tasks))
    sampled: dict[str, Any] = {}
    if num_samples:
        _, verdicts = _ask(engine, judging, tasks, prompts, sampling=sampling, times=num_samples, seed=seed, step=step)
        sampled = _sampled_figures(verdicts, num_samples, k)
    return Evaluation(
        step=step,
        num_tasks=len(tasks),
        num_samples=num_samples,
        greedy=float(right.mean()),
        interval=(interval.low, interval.high),
        mean_tokens=float(np.mean([len(completion.token_ids) for completion in greedy])),
        tokens_per_correct=cost.tokens_per_correct,
        truncated_frac=float(np.mean([completion.is_truncated for completion in greedy])),
        no_verdict_frac=float(np.mean([verdict.status is Status.NO_VERDICT for verdict in greedy_verdicts])),
        by_kind=_by_kind(tasks, right),
        task_digest=_digest(tasks),
        greedy_correct="".join("1" if is_right else "0" for is_right in right),
        components=_component_means(greedy_verdicts),
        adversarial=examine_reward(scorer, tasks, adversarial),
        **sampled,
    )


def _ask(
    engine: Engine,
    judging: Judging,
    tasks: Sequence[Task],
    prompts: Sequence[tuple[int, ...]],
    *,
    sampling: Sampling,
    times: int,
    seed: int,
    step: int,
) -> tuple[list[Completion], list[Verdict]]:
    requests = [
        Request(
            task_id=task.id,
            index=index,
            prompt_ids=ids,
            seed=derive_seed("evaluation", seed, task.id, index),
            environment=environment,
        )
        for task, ids, environment in zip(tasks, prompts, map(environment_of, tasks), strict=True)
        for index in range(times)
    ]
    owners = [task for task in tasks for _ in range(times)]
    judged = judging.sample(engine, requests, owners, sampling, policy_version=step)
    return judged.completions, judged.verdicts


def _sampled_figures(verdicts: Sequence[Verdict], num_samples: int, k: int) -> dict[str, Any]:
    right: NDArray[np.bool_] = np.array([verdict.status is Status.CORRECT for verdict in verdicts])
    table = right.reshape(-1, num_samples).astype(float).tolist()
    interval = clustered_interval(table)
    return {
        "pass_at_1": avg_at_k(table),
        "pass_at_1_interval": (interval.low, interval.high),
        "pass_at_k": float(np.mean([pass_at_k(num_samples, int(sum(row)), k) for row in table])),
        "k": k,
        "sampled_correct": " ".join(str(int(sum(row))) for row in table),
    }


def _component_means(verdicts: Sequence[Verdict]) -> dict[str, float]:
    columns: dict[str, list[float]] = {}
    for verdict in verdicts:
        for name, value in verdict.components.items():
            if value is not None:
                columns.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in columns.items()}


def _digest(tasks: Sequence[Task]) -> str:
    return blake2b("\n".join(task.id for task in tasks).encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()


def _by_kind(tasks: Sequence[Task], right: NDArray[np.bool_]) -> dict[str, float]:
    buckets: dict[str, list[bool]] = {}
    for task, is_right in zip(tasks, right.tolist(), strict=True):
        label = task.kind if task.difficulty is None else f"{task.kind}, difficulty {task.difficulty:g}"
        buckets.setdefault(label, []).append(is_right)
    return {label: sum(answers) / len(answers) for label, answers in sorted(buckets.items())}
