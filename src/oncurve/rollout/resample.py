"""Keep sampling until enough groups carry a signal."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from oncurve.rollout.collect import Rollout
from oncurve.rollout.engine import added
from oncurve.types import Group, Task


def is_informative(group: Group, *, primary: str, tolerance: float) -> bool:
    """True when the scored completions of the group do not all have the same task metric.

    max_i r_i - min_i r_i > tolerance, over the members with a value, of which there must be at least two. The metric
    is the component ``primary`` and not the reward: a reward with a length term is never constant.
    """
    values = [value for verdict in group.verdicts if (value := verdict.components.get(primary)) is not None]
    return len(values) >= 2 and max(values) - min(values) > tolerance


def collect_informative(
    collect: Callable[[Sequence[Task], int], Rollout],
    take: Callable[[int], Sequence[Task]],
    *,
    num_prompts: int,
    extra_rounds: int,
    primary: str,
    tolerance: float = 1e-6,
) -> Rollout:
    """Collect until ``num_prompts`` groups are informative or the rounds are used up.

    The first round takes ``num_prompts`` tasks, each further one as many as are still missing. Selection moves the
    tasks trained on towards middle difficulty: log ``Rollout.accepted_frac``.

    Args:
        collect: scores groups of tasks, given the round's number from 0.
        take: hands out the next tasks.
        num_prompts: P.
        extra_rounds: most rounds after the first.
        primary: component that is the task metric.
        tolerance: largest difference that still counts as equal, in units of that component.

    Returns:
        At most P informative groups, in the order they were collected, and the others set aside. It may hold fewer
        than P, even none, when the budget ends.

    Raises:
        ValueError: num_prompts is below 1.

    Source:
        Dynamic sampling of DAPO, arXiv:2503.14476, section 3.2.
    """
    if num_prompts < 1:
        raise ValueError(f"num_prompts must be at least 1, got {num_prompts}")
    rounds: list[Rollout] = []
    kept: list[Group] = []
    aside: list[Group] = []
    while len(kept) < num_prompts and len(rounds) <= extra_rounds:
        rollout = collect(take(num_prompts - len(kept)), len(rounds))
        rounds.append(rollout)
        for group in rollout.groups:
            (kept if is_informative(group, primary=primary, tolerance=tolerance) else aside).append(group)
    return replace(
        rounds[0],
        groups=tuple(kept),
        set_aside=tuple(aside),
        num_rounds=len(rounds),
        seconds_rollout=sum(rollout.seconds_rollout for rollout in rounds),
        parts=added([rollout.parts for rollout in rounds]),
        seconds_verify=sum(rollout.seconds_verify for rollout in rounds),
        seconds_verify_busy=sum(rollout.seconds_verify_busy for rollout in rounds),
    )
