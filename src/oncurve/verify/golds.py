"""Check that every gold accepts itself, before a model is trained on it."""

from collections.abc import Iterable
from dataclasses import dataclass

from oncurve.types import Status, Task
from oncurve.verify.items import ChecksGold, Item, StatesGold, Verifier
from oncurve.verify.rewards import RewardSettings
from oncurve.verify.scorer import Scorer, TaskVerifier


@dataclass(frozen=True, slots=True)
class GoldProblem:
    """A task whose own gold is not accepted."""

    task_id: str
    reason: str


def check_golds(tasks: Iterable[Task], scorer: Scorer | None = None) -> list[GoldProblem]:
    """State each gold the way a completion would, and have the primary verifier judge it.

    Args:
        tasks: the tasks to check.
        scorer: whose primary component judges; by default the verifier that each task names.

    Returns:
        The tasks whose gold is not called correct, with the verifier's reason. A reward function or a format
        verifier cannot state a gold: its tasks are not listed.

    Raises:
        DataError: a task names an unknown verifier.
    """
    primary = (scorer or Scorer(RewardSettings())).primary
    return [problem for task in tasks if (problem := _problem(task, primary)) is not None]


def _problem(task: Task, primary: Verifier) -> GoldProblem | None:
    verifier = primary.verifier_of(task.verifier) if isinstance(primary, TaskVerifier) else primary
    if isinstance(verifier, ChecksGold):
        return GoldProblem(task.id, fault) if (fault := verifier.gold_fault(task)) else None
    if not isinstance(verifier, StatesGold):
        return None
    (verdict,) = verifier.judge([Item(task=task, text=verifier.state_gold(task))])
    return None if verdict.status is Status.CORRECT else GoldProblem(task.id, verdict.evidence)
