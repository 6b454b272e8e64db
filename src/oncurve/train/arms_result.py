"""The result of a comparison, computed from its run folders.

Greedy answers are 0 or 1 a task and seed. Arms are compared task by task on the means over their seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from oncurve.algo.objective_settings import CLIPPED
from oncurve.config import ComparisonPlan, PlannedRun, RunConfig
from oncurve.evaluate.estimators import avg_at_k, clustered_interval, paired_comparison
from oncurve.learner import latest_checkpoint, load_state
from oncurve.report import RunFolder, read_evaluations, read_metrics
from oncurve.report.arms import Accuracy, ArmResult, ArmsComparison, CurvePoint, Lead, Paired
from oncurve.report.costs import Costs, costs_of, mean_costs, phase_names, with_collection
from oncurve.report.summary import before_and_after
from oncurve.types import RunError

Scores = tuple[float, ...]
"""[P] one number from 0 to 1 a held-out task, in the order of the tasks."""


@dataclass(frozen=True)
class Examination:
    """One examination of a run, and what was spent until then."""

    step: int
    tokens: int
    """Sampled, the collection of an offline run included."""
    seconds: float
    """Of all phases, likewise."""
    greedy: Scores


@dataclass(frozen=True)
class SeedRecord:
    """What one run of an arm left behind."""

    examinations: tuple[Examination, ...]
    """By step; the first is of the starting model."""
    sampled: Scores
    """Share of right ones among the completions of each task, after the last step."""
    costs: Costs
    digest: str
    """Of the tasks that were asked."""
    num_samples: int

    @property
    def last(self) -> Examination:
        """After the whole budget."""
        return self.examinations[-1]

    def within(self, seconds: float) -> Examination:
        """The last examination that lies within so many seconds."""
        return [found for found in self.examinations if found.seconds <= seconds or found.step == 0][-1]


def compare_arms(plan: ComparisonPlan) -> ArmsComparison:
    """Fold the finished runs of a comparison into its result.

    Raises:
        RunError: a run is not finished, was examined on other tasks than another one, started from other weights, or
            was recorded without the answers of single tasks.
    """
    names = list(plan.config.arms)
    records = {name: [record_of(run, plan.collection_of(run)) for run in plan.of_arm(name)] for name in names}
    _require_common_ground(plan, records)
    shortest = [min(records[name][place].last.seconds for name in names) for place in range(len(plan.config.seeds))]
    at_tokens = {name: [found.last.greedy for found in records[name]] for name in names}
    at_time = {
        name: [found.within(limit).greedy for found, limit in zip(records[name], shortest, strict=True)]
        for name in names
    }
    sampled = {name: [found.sampled for found in records[name]] for name in names}
    first = records[names[0]][0]
    return ArmsComparison(
        name=plan.config.name,
        tokens=plan.config.tokens,
        seeds=plan.config.seeds,
        num_tasks=len(first.last.greedy),
        num_samples=first.num_samples,
        shortest_seconds=sum(shortest) / len(shortest),
        at_equal_tokens=lead_of(at_tokens),
        at_equal_time=lead_of(at_time),
        arms=tuple(
            ArmResult(
                name=name,
                costs=mean_costs([found.costs for found in records[name]]),
                start=avg_at_k([found.examinations[0].greedy for found in records[name]]),
                greedy=accuracy_of(name, at_tokens),
                pass_at_1=accuracy_of(name, sampled),
                in_time=accuracy_of(name, at_time),
                curve=curve_of(records[name]),
                **_description(plan.of_arm(name)[0]),
            )
            for name in names
        ),
    )


def record_of(run: PlannedRun, collection: PlannedRun | None) -> SeedRecord:
    """Read one run, and the one whose completions it learned from.

    Raises:
        RunError: it has no examination after its last step, or one without the answers of single tasks.
    """
    metrics, evaluations = list(read_metrics(run.folder)), read_evaluations(run.folder)
    if not evaluations or evaluations[-1]["step"] != len(metrics) or evaluations[-1].get("sampled_correct") is None:
        raise RunError(f"{run.folder} is not finished: give `oncurve compare` with its file again to go on with it")
    before, after = before_and_after(evaluations, metrics)
    own = costs_of(metrics, before, after, samples=collection is None)
    paid = None if collection is None else costs_of(list(read_metrics(collection.folder)))
    tokens = list(accumulate((row.get("tokens/completion") or 0.0 for row in metrics), initial=0.0))
    seconds = list(accumulate((_seconds(row) for row in metrics), initial=0.0))
    last = evaluations[-1]
    return SeedRecord(
        examinations=tuple(
            Examination(
                step=found["step"],
                tokens=round(tokens[found["step"]]) if paid is None else paid.rollout_tokens,
                seconds=seconds[found["step"]] + (0.0 if paid is None else paid.total),
                greedy=_greedy(found, run.folder),
            )
            for found in evaluations
        ),
        sampled=tuple(int(count) / last["num_samples"] for count in last["sampled_correct"].split()),
        costs=own if paid is None else with_collection(paid, own),
        digest=last["task_digest"],
        num_samples=last["num_samples"],
    )


def accuracy_of(name: str, scores: Mapping[str, Sequence[Scores]]) -> Accuracy:
    """Pool the seeds of an arm, and test it against the first one of ``scores``.

    Args:
        name: of the arm.
        scores: by arm and seed, on the same tasks.
    """
    own = scores[name]
    rows = list(zip(*own, strict=True))
    interval = clustered_interval(rows)
    first = next(iter(scores))
    return Accuracy(
        mean=avg_at_k(rows),
        interval=(interval.low, interval.high),
        seeds=tuple(sum(seed) / len(seed) for seed in own),
        against_first=None if name == first else paired_of(own, scores[first]),
    )


def lead_of(scores: Mapping[str, Sequence[Scores]]) -> Lead:
    """The arm with the highest mean and the one after it; of equal ones the earlier."""
    best, second, *_ = sorted(scores, key=lambda name: -avg_at_k(list(zip(*scores[name], strict=True))))
    return Lead(best=best, second=second, paired=paired_of(scores[best], scores[second]))


def paired_of(own: Sequence[Scores], other: Sequence[Scores]) -> Paired:
    """Compare the means over the seeds, task by task."""
    found = paired_comparison(_means(other), _means(own))
    return Paired(difference=found.difference, p=found.p_sign_flip)


def curve_of(records: Sequence[SeedRecord]) -> tuple[CurvePoint, ...]:
    """The examinations that all seeds have in common: of the same step, and the last ones.

    An offline arm has a point more at the start: it samples with the starting model, without getting better.
    """
    by_step = [{found.step: found for found in record.examinations[:-1]} for record in records]
    common = sorted(set.intersection(*(set(steps) for steps in by_step)))
    points = [_point([steps[step] for steps in by_step]) for step in common]
    points.append(_point([record.last for record in records]))
    if points[0].tokens > 0:
        start = points[0]
        points.insert(0, CurvePoint(tokens=0.0, seconds=0.0, mean=start.mean, low=start.low, high=start.high))
    return tuple(points)


def _point(found: Sequence[Examination]) -> CurvePoint:
    shares = [sum(one.greedy) / len(one.greedy) for one in found]
    return CurvePoint(
        tokens=sum(one.tokens for one in found) / len(found),
        seconds=sum(one.seconds for one in found) / len(found),
        mean=sum(shares) / len(shares),
        low=min(shares),
        high=max(shares),
    )


def _means(scores: Sequence[Scores]) -> list[float]:
    return [sum(row) / len(row) for row in zip(*scores, strict=True)]


def _greedy(evaluation: Mapping[str, Any], folder: Path) -> Scores:
    if "greedy_correct" not in evaluation:
        raise RunError(
            f"{folder} holds examinations without the answers of single tasks, as an earlier version wrote them. "
            "Remove the folder to make this run again."
        )
    return tuple(float(mark) for mark in evaluation["greedy_correct"])


def _seconds(row: Mapping[str, Any]) -> float:
    return sum(row[name] or 0.0 for name in phase_names([row]))


def _require_common_ground(plan: ComparisonPlan, records: Mapping[str, Sequence[SeedRecord]]) -> None:
    """Refuse runs that were asked other tasks, or that started from other weights. Raises RunError."""
    if len({found.digest for arm in records.values() for found in arm}) > 1:
        raise RunError(f"the runs in {plan.config.output} were examined on different tasks: they cannot be paired")
    starts = {run.name: RunFolder.open(run.folder).environment.get("starting_weights") for run in plan.runs}
    if len(set(starts.values())) > 1:
        listed = ", ".join(f"{name} {weights}" for name, weights in starts.items())
        raise RunError(
            f"the runs in {plan.config.output} started from different weights ({listed}): the model has changed "
            "between them. Remove the folders of the older ones to make them again."
        )


def _description(run: PlannedRun) -> dict[str, Any]:
    """What an arm is, from the settings and the records of its first run."""
    config, folder = run.config, RunFolder.open(run.folder)
    policy, critic = trained_parameters(run.folder)
    return {
        "data": "its own samples" if run.collection is None else "pairs of right and wrong samples of the start",
        "is_online": run.collection is None,
        "baseline": _baseline(config),
        "constraint": _constraint(config),
        "trained_parameters": policy,
        "critic_parameters": critic,
        "formula": folder.formula,
    }


def trained_parameters(folder: Path) -> tuple[int, int]:
    """Trained numbers of the policy and of the critic, counted in the last checkpoint of a run.

    Raises:
        RunError: there is no checkpoint.
    """
    checkpoint = latest_checkpoint(folder / "checkpoints")
    if checkpoint is None:
        raise RunError(f"{folder} holds no checkpoint: remove the folder to make this run again")
    learner = load_state(checkpoint)["learner"]
    return _count(learner), _count(learner["critic"]) if "critic" in learner else 0


def _count(state: Mapping[str, Any]) -> int:
    return sum(master.numel() for master in state["optimizer"]["masters"].values())


def _baseline(config: RunConfig) -> str:
    if config.method == "dpo":
        return "the rejected one of the pair"
    advantage = config.objective.advantage
    return f"critic, lam {advantage.lam:g}" if advantage.estimator == "gae" else advantage.estimator


def _constraint(config: RunConfig) -> str:
    if config.method == "dpo":
        return f"reference in the loss, beta {config.dpo.beta:g}" if config.dpo.needs_reference else "number of steps"
    objective = config.objective
    parts = []
    if objective.needs_reference:
        parts.append(f"KL {objective.kl_estimator} × {objective.kl_coef:g} in the {objective.kl_placement}")
    if objective.loss in CLIPPED:
        parts.append(f"clip {objective.clip_low:g}/{objective.clip_high:g}")
    return ", ".join(parts) or "learning rate and number of steps"
