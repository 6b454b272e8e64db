"""Choose the rollouts that the page shows: few enough to load at once, varied enough to judge."""

import html
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

from oncurve.report.readers import Run, count_rollouts, read_rollouts
from oncurve.report.rollouts import Rollout
from oncurve.types import Prompt, Status

MAX_STEPS = 5
MAX_GROUPS = 6
MAX_TEXT = 3000
"""Characters of one text; what is left out is counted."""
MAX_BYTES = 500_000
"""Of HTML for all rollouts together."""
_MEMBER_BYTES = 1400
"""Of markup around the text of one completion."""
_LETTERS = set("\n\t")


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSample:
    """Members of one group, the first of them."""

    members: tuple[Rollout, ...]
    size: int
    """How many members the group has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepSample:
    """Some groups of one step, the compositions in turn: mixed, all wrong, all right, no verdict."""

    step: int
    groups: tuple[GroupSample, ...]
    num_groups: int
    """How many groups the step has."""


def sample_rollouts(run: Run) -> list[StepSample]:
    """Return groups of the first, the last and some middle steps, within ``MAX_BYTES`` of HTML.

    Raises:
        RunError, StorageError: the records cannot be read.
    """
    steps = _spread([step for step, rows in count_rollouts(run).items() if rows])
    return [_sample_step(run, step, MAX_BYTES // len(steps)) for step in steps]


def shown(text: str, limit: int = MAX_TEXT) -> str:
    """Return a text for people: at most ``limit`` characters, and nothing invisible.

    Control characters and those that turn the direction of writing are spelled as ``⟨U+202E⟩``.
    """
    kept = "".join(_spelled(character) for character in text[:limit])
    return kept if len(text) <= limit else f"{kept}\n… {len(text) - limit} more characters"


def prompt_text(prompt: Prompt) -> str:
    """Return a prompt as one text; a chat as its turns, each under its role."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"[{turn.role}]\n{turn.content}" for turn in prompt)


def composition(members: Sequence[Rollout]) -> str:
    """Return ``all right``, ``all wrong``, ``mixed`` or ``no verdict`` for the members of a group."""
    statuses = {member.status for member in members} - {Status.NO_VERDICT}
    if not statuses:
        return "no verdict"
    if len(statuses) > 1:
        return "mixed"
    return "all right" if Status.CORRECT in statuses else "all wrong"


def _spread(steps: list[int]) -> list[int]:
    if len(steps) <= MAX_STEPS:
        return steps
    return [steps[round(index * (len(steps) - 1) / (MAX_STEPS - 1))] for index in range(MAX_STEPS)]


def _sample_step(run: Run, step: int, budget: int) -> StepSample:
    groups = [tuple(rows) for _, rows in groupby(read_rollouts(run, step), key=lambda row: row.group)]
    chosen: list[GroupSample] = []
    for group in _varied(groups)[:MAX_GROUPS]:
        sample, budget = _sample_group(group, budget)
        chosen += [sample] if sample.members else []
    return StepSample(step=step, groups=tuple(chosen), num_groups=len(groups))


def _varied(groups: Sequence[tuple[Rollout, ...]]) -> list[tuple[Rollout, ...]]:
    """Order groups so that every composition comes up early: one of each in turn."""
    by_composition: dict[str, list[tuple[Rollout, ...]]] = {
        "mixed": [],
        "all wrong": [],
        "all right": [],
        "no verdict": [],
    }
    for group in groups:
        by_composition[composition(group)].append(group)
    return [group for turn in zip_longest(*by_composition.values()) for group in turn if group is not None]


def _sample_group(group: tuple[Rollout, ...], budget: int) -> tuple[GroupSample, int]:
    head = group[0]
    budget -= sum(map(_size, (prompt_text(head.prompt), head.gold, head.kind, head.task_id)))
    members = []
    for member in group:
        cost = _MEMBER_BYTES + sum(
            map(_size, (member.transcript, member.evidence, member.cause or "", *member.components))
        )
        if cost > budget:
            break
        budget -= cost
        members.append(member)
    return GroupSample(members=tuple(members), size=len(group)), budget


def _size(text: str) -> int:
    return len(html.escape(shown(text)).encode())


def _spelled(character: str) -> str:
    is_visible = character in _LETTERS or unicodedata.category(character) not in {"Cc", "Cf", "Zl", "Zp"}
    return character if is_visible else f"⟨U+{ord(character):04X}⟩"
