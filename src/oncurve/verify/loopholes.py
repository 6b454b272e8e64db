"""Look for loopholes in a combination of components: what cheap completions earn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from oncurve.types import Task, Verdict
from oncurve.verify.attacks import WRAPPERS, Wrapper, attack_item, cheap_completions, stated_wrappers
from oncurve.verify.items import Item, StatesGold
from oncurve.verify.registry import NO_BUILDERS, Builders
from oncurve.verify.rewards import RewardSettings
from oncurve.verify.scorer import Scorer, TaskVerifier


@dataclass(frozen=True, kw_only=True, slots=True)
class Loophole:
    """A recipe for cheap completions that pays."""

    recipe: str
    completion: str
    """The completion of the first task."""
    reward: float
    """Mean over the tasks."""
    maximum: float
    share: float
    """reward / maximum."""
    components: Mapping[str, float] = field(default_factory=dict)
    """Mean of every component that gave values, before its weight."""


def loopholes(
    settings: RewardSettings,
    tasks: Sequence[Task],
    share: float = 0.2,
    *,
    base_dir: Path = Path(),
    builders: Builders = NO_BUILDERS,
) -> list[Loophole]:
    """Find the cheap completions that earn more than a share of the maximum, the best paid first.

    Every recipe of ``cheap_completions`` is tried on every task, answers in every wrapper, also in the one that the
    verifier itself declares. A recipe's reward is its mean over the tasks, so that luck on one of them does not count
    as a loophole and a constant answer that is often right does.

    Args:
        settings: components, weights, gates.
        tasks: at least one; several of different golds.
        share: of the maximum. The maximum is the sum of the positive weights, or what the best completion tried
            earned where that is more.
        base_dir: where relative paths of reward functions start.
        builders: of verifiers that need a network, see ``Scorer``.

    Raises:
        ValueError: no tasks, or share is not in (0, 1].
        ConfigError: a reward function cannot be loaded.
    """
    if not tasks or not 0 < share <= 1:
        raise ValueError(f"loopholes needs at least one task and a share in (0, 1], got {len(tasks)} and {share}")
    with Scorer(settings, base_dir=base_dir, builders=builders) as scorer:
        wrappers = (*declared_wrappers(scorer, tasks[0]), *WRAPPERS)
        tried = _try_all(scorer.score, tasks, wrappers)
    positive = sum(weight for weight in settings.weights.values() if weight > 0)
    found = [_loophole(recipe, texts, verdicts) for recipe, (texts, verdicts) in tried.items()]
    paid = [one for one in found if one is not None]
    maximum = max([positive, *(one.reward for one in paid)])
    ranked = sorted(paid, key=lambda one: -one.reward)
    return [_with_maximum(one, maximum) for one in ranked if maximum > 0 and one.reward > share * maximum]


def declared_wrappers(scorer: Scorer, task: Task) -> tuple[Wrapper, ...]:
    """How the primary verifier itself states answers to such a task; none for a function or a format."""
    verifier = scorer.primary
    if isinstance(verifier, TaskVerifier):
        verifier = verifier.verifier_of(task.verifier)
    return stated_wrappers(verifier) if isinstance(verifier, StatesGold) else ()


def _try_all(
    score: Callable[[Sequence[Item]], list[Verdict]], tasks: Sequence[Task], wrappers: Sequence[Wrapper]
) -> dict[str, tuple[list[str], list[Verdict]]]:
    """Completions and verdicts by recipe. One recipe at a time is scored, so its length is compared with its own."""
    texts: dict[str, list[str]] = {}
    for task in tasks:
        for cheap in cheap_completions(task, wrappers):
            texts.setdefault(cheap.recipe, []).append(cheap.text)
    return {
        recipe: (column, score([attack_item(task, text) for task, text in zip(tasks, column, strict=True)]))
        for recipe, column in texts.items()
    }


def _loophole(recipe: str, texts: Sequence[str], verdicts: Sequence[Verdict]) -> Loophole | None:
    rewards = [verdict.reward for verdict in verdicts if verdict.reward is not None]
    if not rewards:
        return None
    values: dict[str, list[float]] = {}
    for verdict in verdicts:
        for name, value in verdict.components.items():
            if value is not None:
                values.setdefault(name, []).append(value)
    return Loophole(
        recipe=recipe,
        completion=texts[0],
        reward=fmean(rewards),
        maximum=0.0,
        share=0.0,
        components={name: fmean(column) for name, column in values.items()},
    )


def _with_maximum(one: Loophole, maximum: float) -> Loophole:
    return Loophole(
        recipe=one.recipe,
        completion=one.completion,
        reward=one.reward,
        maximum=maximum,
        share=one.reward / maximum,
        components=one.components,
    )
