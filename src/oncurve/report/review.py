"""The review queue: well paid completions that look wrong, each with the reasons to look at it.

Relative rewards cannot repair a verifier that pays for the wrong thing, and a curve that rises does not show it. What
does is reading completions; this chooses which.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, pstdev

from pydantic import Field

from oncurve.report.rollouts import Rollout
from oncurve.types import FinishReason, Prompt, Settings

MIN_HISTORY = 8
"""Rewards of a prompt that make a history."""
MIN_LENGTHS = 20
"""Well paid completions of a kind from which a usual length is taken."""
MIN_TEMPLATE_TASKS = 5
MIN_SAME_TEXT_GOLDS = 3

Disagrees = Callable[[Sequence["Seen"]], Sequence[str]]
"""Says for each completion why a second verifier would not pay it; an empty text where it would, or cannot say."""


class ReviewSettings(Settings):
    """Which completions are well paid, and what looks wrong."""

    high_share: float = Field(0.8, gt=0, le=1)
    """Well paid is a reward of this share of the way from the lowest to the highest recorded."""

    template_share: float = Field(0.2, gt=0, le=1)
    """A template behind this share of the well paid completions is looked at, one of its completions."""

    history_stds: float = Field(3.0, gt=0)
    """A reward so many standard deviations above what the prompt earned otherwise is looked at."""

    length_stds: float = Field(4.0, gt=0)
    """A length so many robust standard deviations from the usual one is looked at."""

    per_prompt: int = Field(2, ge=1)
    """Most completions of one prompt in the queue: variants of one exploit tell nothing new."""

    limit: int = Field(50, ge=1)
    """Most completions in the queue."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A recorded completion without its token arrays."""

    step: int
    group: int
    index: int
    task_id: str
    kind: str
    prompt: Prompt
    gold: str
    text: str
    num_tokens: int
    is_truncated: bool
    reward: float
    components: Mapping[str, float | None]
    evidence: str

    @property
    def id(self) -> str:
        """Its place in the run."""
        return f"s{self.step}-g{self.group}-i{self.index}"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a completion is worth a look."""

    name: str
    """``second_opinion``, ``same_text``, ``history``, ``length``, ``template``."""
    text: str


_WEIGHTS = {"second_opinion": 8, "same_text": 4, "history": 2, "length": 2, "template": 1}


@dataclass(frozen=True, slots=True)
class Suspect:
    """One entry of the queue."""

    seen: Seen
    reasons: tuple[Reason, ...]

    @property
    def weight(self) -> int:
        """The queue is sorted by it."""
        return sum(_WEIGHTS[name] for name in {reason.name for reason in self.reasons})


def seen_rollouts(rollouts: Iterable[Rollout]) -> Iterator[Seen]:
    """Keep what a review needs of the completions that have a reward."""
    for one in rollouts:
        if one.reward is not None:
            yield Seen(
                step=one.step,
                group=one.group,
                index=one.index,
                task_id=one.task_id,
                kind=one.kind,
                prompt=one.prompt,
                gold=one.gold,
                text=one.text,
                num_tokens=len(one.token_ids),
                is_truncated=one.finish_reason is FinishReason.LENGTH,
                reward=one.reward,
                components=one.components,
                evidence=one.evidence,
            )


def find_suspects(
    seen: Sequence[Seen],
    settings: ReviewSettings | None = None,
    *,
    disagrees: Disagrees | None = None,
    witnesses: Sequence[str] = (),
    is_decided: Callable[[Seen], bool] = lambda _: False,
) -> list[Suspect]:
    """Queue the well paid completions that look wrong, the most suspicious first.

    Reasons: a second verifier or a recorded component of weight 0 would not pay it; one and the same text was paid for
    different golds; the reward is far above what the prompt earned before and beside it; its length is unlike that of
    the other well paid ones of its kind; many well paid completions share its template (one of them is queued). A text
    that a prompt got several times stands in the queue once.

    Args:
        seen: in the order of recording.
        settings: thresholds.
        disagrees: the second opinion, asked only about well paid completions.
        witnesses: components that are no part of the reward and say whether a completion is right.
        is_decided: True for completions that somebody has looked at already.
    """
    settings = settings or ReviewSettings()
    if not seen:
        return []
    low, high = min(one.reward for one in seen), max(one.reward for one in seen)
    if low == high:
        return []
    border = low + settings.high_share * (high - low)
    paid = [one for one in seen if one.reward >= border]
    reasons: dict[str, list[Reason]] = defaultdict(list)
    parts = (
        _second_opinions(paid, disagrees, witnesses),
        _same_texts(paid),
        _above_history(seen, border, high - low, settings.history_stds),
        _lengths(paid, settings.length_stds),
        _templates(paid, settings.template_share),
    )
    for part in parts:
        for one, reason in part:
            reasons[one.id].append(reason)
    queue = [Suspect(one, tuple(reasons[one.id])) for one in _distinct(paid) if reasons[one.id] and not is_decided(one)]
    ranked = sorted(queue, key=lambda one: (-one.weight, -one.seen.step, one.seen.id))
    return _few_of_each(ranked, settings.per_prompt)[: settings.limit]


def _few_of_each(ranked: Sequence[Suspect], most: int) -> list[Suspect]:
    """The first ``most`` entries of every prompt."""
    counts: Counter[str] = Counter()
    kept = []
    for one in ranked:
        counts[one.seen.task_id] += 1
        if counts[one.seen.task_id] <= most:
            kept.append(one)
    return kept


Found = Iterator[tuple[Seen, Reason]]


def _distinct(paid: Sequence[Seen]) -> list[Seen]:
    """The last of the completions that are the same text for the same task."""
    return list({(one.task_id, one.gold, one.text): one for one in paid}.values())


def _second_opinions(paid: Sequence[Seen], disagrees: Disagrees | None, witnesses: Sequence[str]) -> Found:
    for one in paid:
        for name in witnesses:
            value = one.components.get(name)
            if value is not None and value <= 0:
                yield one, Reason("second_opinion", f"component {name} gives {value:g}")
    distinct = _distinct(paid)
    for one, why in zip(distinct, disagrees(distinct) if disagrees else (), strict=False):
        if why:
            yield one, Reason("second_opinion", f"the second verifier: {why}")


def _same_texts(paid: Sequence[Seen]) -> Found:
    """A text that is right whatever was asked."""
    by_text: dict[str, list[Seen]] = defaultdict(list)
    for one in paid:
        by_text[" ".join(one.text.split())].append(one)
    for ones in by_text.values():
        golds = {one.gold for one in ones}
        if len(golds) >= MIN_SAME_TEXT_GOLDS:
            yield ones[-1], Reason("same_text", f"the same text was paid for {len(golds)} different golds")


def _above_history(seen: Sequence[Seen], border: float, span: float, stds: float) -> Found:
    """A reward that the prompt's other completions, earlier ones and those of its group, do not explain."""
    history: dict[str, list[float]] = defaultdict(list)
    for group in _groups(seen):
        before = history[group[0].task_id]
        for one in group:
            others = before + [other.reward for other in group if other is not one]
            if one.reward < border or len(others) < MIN_HISTORY:
                continue
            mean, std = fmean(others), pstdev(others)
            if one.reward - mean >= max(stds * std, span / 2):
                yield (
                    one,
                    Reason("history", f"{len(others)} other completions of this prompt earned {mean:.2f} on average"),
                )
        history[group[0].task_id] = before + [one.reward for one in group]


def _groups(seen: Sequence[Seen]) -> Iterator[list[Seen]]:
    places: dict[tuple[int, int], list[Seen]] = defaultdict(list)
    for one in seen:
        places[one.step, one.group].append(one)
    yield from places.values()


def _lengths(paid: Sequence[Seen], stds: float) -> Found:
    by_kind: dict[str, list[Seen]] = defaultdict(list)
    for one in paid:
        by_kind[one.kind].append(one)
    for ones in by_kind.values():
        if len(ones) < MIN_LENGTHS:
            continue
        usual = median(one.num_tokens for one in ones)
        spread = median(abs(one.num_tokens - usual) for one in ones)
        std = max(1.4826 * spread, 0.1 * usual, 1.0)  # of a normal distribution with that median deviation
        for one in ones:
            if abs(one.num_tokens - usual) > stds * std:
                yield one, Reason("length", f"{one.num_tokens} tokens; well paid ones of {one.kind} have {usual:g}")


def template_of(text: str) -> str:
    """The text with every number as 0 and every blank alike: completions of one template differ in numbers only."""
    return " ".join(re.sub(r"\d+", "0", text).split())


def _templates(paid: Sequence[Seen], share: float) -> Found:
    clusters: dict[str, list[Seen]] = defaultdict(list)
    for one in paid:
        clusters[template_of(one.text)].append(one)
    for ones in clusters.values():
        tasks = {one.task_id for one in ones}
        if len(tasks) >= MIN_TEMPLATE_TASKS and len(ones) >= math.ceil(share * len(paid)):
            yield (
                ones[-1],
                Reason("template", f"one of {len(ones)} well paid completions of one template, {len(tasks)} prompts"),
            )
