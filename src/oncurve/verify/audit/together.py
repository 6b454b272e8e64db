"""Whether a reward function gives a completion the same reward in company as alone.

A trainer hands over many completions in one call, of several tasks, in any order; an attack comes alone. A function
that returns one number for a whole call, mixes up the rows of its columns, or scales by what else is in the call looks
sound as long as it is asked one by one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oncurve.verify.attacks import Attack
from oncurve.verify.audit.targets import Answer, Batched, Target
from oncurve.verify.items import Item, one_line


@dataclass(frozen=True, kw_only=True, slots=True)
class Together:
    """What asking in company showed."""

    num_asked: int = 0
    """Completions in calls of several."""
    faults: tuple[str, ...] = ()
    """A sentence each: completions of *other* tasks change a reward, or a call of several gives none."""
    notes: tuple[str, ...] = ()
    """What may be meant: completions of the *same* task change a reward; a reward changes by itself."""


def ask_together(target: Target, asked: Sequence[tuple[Attack, Answer]], size: int) -> Together:
    """Ask some of the completions again, alone and in one call.

    Args:
        target: under audit.
        asked: attacks with their answers; only those with a reward are asked again.
        size: most completions in a call; below 2 nothing is asked.
    """
    mixed, same = _of_different_tasks(asked)[:size], _of_one_task(asked, size)
    found = [_look_at(batched, mixed, same) for batched in target.batched if size > 1]
    return Together(
        num_asked=sum(one.num_asked for one in found),
        faults=tuple(fault for one in found for fault in one.faults),
        notes=tuple(note for one in found for note in one.notes),
    )


def _look_at(batched: Batched, mixed: Sequence[Item], same: Sequence[Item]) -> Together:
    alone, again = ([batched.ask_together([item])[0] for item in mixed] for _ in range(2))
    if unsteady := _changed(alone, again):
        said = _said(mixed, alone, again, unsteady, "when asked again", ("at first", "then"))
        why = "It draws at random or remembers, so nothing is known of calls of several"
        return Together(notes=(f"{batched.name}: {said}. {why}",))
    count, fault = (0, None) if len(mixed) < 2 else (2 * len(mixed), _fault_of(batched, mixed, alone))
    if fault is not None or len(same) < 2:
        return Together(num_asked=count, faults=(fault,) if fault else ())
    note = _note_of(batched, same)
    return Together(num_asked=count + len(same), notes=(note,) if note else ())


def _fault_of(batched: Batched, mixed: Sequence[Item], alone: Sequence[Answer]) -> str | None:
    forwards = batched.ask_together(mixed)
    if all(answer.reward is None for answer in forwards) and any(answer.reward is not None for answer in alone):
        why = forwards[0].evidence
        return f"{batched.name}: {len(mixed)} completions in one call get no reward, each alone does: {why}"
    backwards = batched.ask_together(mixed[::-1])[::-1]
    for how, found in (("beside those of other tasks", forwards), ("in another order", backwards)):
        if changed := _changed(alone, found):
            return f"{batched.name}: {_said(mixed, alone, found, changed, how, ('alone', 'in the call'))}"
    return None


def _note_of(batched: Batched, same: Sequence[Item]) -> str | None:
    alone, found = [batched.ask_together([item])[0] for item in same], batched.ask_together(same)
    changed = _changed(alone, found)
    if not changed:
        return None
    said = _said(same, alone, found, changed, "beside others of its task", ("alone", "in the call"))
    return f"{batched.name}: {said}. Where that is meant, it needs whole groups: rollout.overlap must not be completion"


def _said(
    items: Sequence[Item],
    before: Sequence[Answer],
    after: Sequence[Answer],
    changed: Sequence[int],
    how: str,
    when: tuple[str, str],
) -> str:
    first = changed[0]
    values = f"{_shown(before[first])} {when[0]}, {_shown(after[first])} {when[1]}"
    text = one_line(repr(items[first].text), 60)
    return f"{len(changed)} of {len(items)} completions get another reward {how} ({values}, for {text})"


def _shown(answer: Answer) -> str:
    return f"none ({answer.cause})" if answer.reward is None else f"{answer.reward:g}"


def _changed(before: Sequence[Answer], after: Sequence[Answer]) -> list[int]:
    """Places at which the reward is another one; arithmetic on a whole array may round otherwise."""
    pairs = enumerate(zip(before, after, strict=True))
    return [place for place, (one, other) in pairs if not _is_same(one.reward, other.reward)]


def _is_same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-6)


def _of_different_tasks(asked: Sequence[tuple[Attack, Answer]]) -> list[Item]:
    """One completion of each task, a right one and a wrong one in turns where there are both."""
    chosen: list[Item] = []
    for number, attacks in enumerate(_by_task(asked)):
        wanted = [attack for attack in attacks if attack.is_right == (number % 2 == 0)]
        chosen.append((wanted or attacks)[0].item)
    return chosen


def _of_one_task(asked: Sequence[tuple[Attack, Answer]], size: int) -> list[Item]:
    """Right and wrong completions of the task that has most of both."""
    best: list[Item] = []
    for attacks in _by_task(asked):
        right = list({one.item.text: one.item for one in attacks if one.is_right}.values())
        wrong = list({one.item.text: one.item for one in attacks if not one.is_right}.values())
        found = right[: size // 2] + wrong[: size // 2]
        if right and wrong and len(found) > len(best):
            best = found
    return best


def _by_task(asked: Sequence[tuple[Attack, Answer]]) -> list[list[Attack]]:
    tasks: dict[tuple[str, str], list[Attack]] = {}
    for attack, answer in asked:
        if answer.reward is not None:
            task = attack.item.task
            tasks.setdefault((task.id, task.gold), []).append(attack)
    return list(tasks.values())
