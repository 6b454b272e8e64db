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

    A gold that is a reference solution may be missing: then only the tests themselves are checked.

    Args:
        tasks: the tasks to check.
        scorer: whose primary component judges; by default the verifier that each task names.

    Returns:
        The tasks whose gold is not called correct, with the verifier's reason, in the order of the tasks. A reward
        function or a format verifier cannot state a gold: its tasks are not listed.

    Raises:
        DataError: a task names an unknown verifier.
    """
    primary = (scorer or Scorer(RewardSettings())).primary
    known = list(tasks)
    faults: dict[int, str] = {}
    stated: dict[str, tuple[StatesGold, Verifier, list[int]]] = {}
    for place, task in enumerate(known):
        verifier: Verifier = primary.verifier_of(task.verifier) if isinstance(primary, TaskVerifier) else primary
        if isinstance(verifier, ChecksGold) and not (isinstance(verifier, StatesGold) and task.gold.strip()):
            faults[place] = verifier.gold_fault(task)
        elif isinstance(verifier, StatesGold):
            stated.setdefault(verifier.name, (verifier, verifier, []))[2].append(place)
    for stater, judge, places in stated.values():  # together: programs are run several at a time
        items = [Item(task=known[place], text=stater.state_gold(known[place])) for place in places]
        for place, verdict in zip(places, judge.judge(items), strict=True):
            faults[place] = "" if verdict.status is Status.CORRECT else verdict.evidence
    return [GoldProblem(known[place].id, fault) for place, fault in sorted(faults.items()) if fault]
