"""Reference solutions of code tasks: which tasks have none, and whose tests let changed ones pass."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from oncurve.types import Status, Task
from oncurve.verify.attacks.programs import Mutant, mutants
from oncurve.verify.code.counts import code_verifier
from oncurve.verify.items import Item
from oncurve.verify.scorer import Scorer

MUTATED_TASKS = 32
MUTANTS_PER_TASK = 6


@dataclass(frozen=True, slots=True)
class WeakTests:
    """A task whose tests some mutant of its reference passes."""

    task_id: str
    num_passed: int
    num_mutants: int
    changes: tuple[str, ...]
    """What was changed in those that passed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceReview:
    """What is known of the tests of code tasks beyond that their references pass."""

    num_code: int
    """Tasks that the code verifier judges."""
    without: tuple[str, ...]
    """Ids of those without a reference solution: nobody knows whether they can be solved."""
    num_mutants: int
    weak: tuple[WeakTests, ...]


def review_references(tasks: Sequence[Task], scorer: Scorer, *, num_tasks: int = MUTATED_TASKS) -> ReferenceReview:
    """Look for missing references, and run mutants of the first ``num_tasks`` that are Python.

    A mutant that passes may compute the same as the reference; most of them passing says that the tests are weak.
    """
    code = [task for task in tasks if code_verifier(scorer.primary, task.verifier) is not None]
    mutated = [task for task in code if task.gold.strip() and task.meta.get("language") in (None, "python")]
    found: list[WeakTests] = []
    tried = 0
    for task in mutated[:num_tasks]:
        made = mutants(task, limit=MUTANTS_PER_TASK)
        passed = _passing(task, made, scorer)
        tried += len(made)
        if passed:
            found.append(WeakTests(task.id, len(passed), len(made), tuple(passed)))
    return ReferenceReview(
        num_code=len(code),
        without=tuple(task.id for task in code if not task.gold.strip()),
        num_mutants=tried,
        weak=tuple(found),
    )


def _passing(task: Task, made: Sequence[Mutant], scorer: Scorer) -> list[str]:
    """A mutant is the whole program, its prefix included, and not wrapped in anything."""
    verifier = code_verifier(scorer.primary, task.verifier)
    if verifier is None or not made:
        return []
    bare = replace(task, meta={**task.meta, "prefix": "", "carrier": "text"})
    verdicts = verifier.judge([Item(task=bare, text=mutant.source) for mutant in made])
    return [mutant.change for mutant, verdict in zip(made, verdicts, strict=True) if verdict.status is Status.CORRECT]
