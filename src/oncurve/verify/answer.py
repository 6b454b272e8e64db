"""The ``answer`` verifier: is the final answer of a completion the gold?"""

from collections.abc import Sequence
from functools import lru_cache

from pydantic import Field

from oncurve.types import Settings, Task, Verdict
from oncurve.verify.answers import Carrier, ComparisonSettings, Value, extract, is_equal, parse, render
from oncurve.verify.items import Item, correct, no_verdict, one_line, wrong


class AnswerSettings(Settings):
    """Where the answer stands and how it is compared."""

    carrier: Carrier = "tag"
    """``tag``: ``<answer>…</answer>``; ``box``: ``\\boxed{…}``; ``hash``: after ``####``; ``last_line``."""

    tag: str = Field("answer", pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    """Name of the tag, for the tag carrier."""

    thinking_tag: str = Field("think", pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    """Nothing inside this tag is an answer; when it is never closed there is no answer."""

    comparison: ComparisonSettings = ComparisonSettings()
    """Choices that data sets disagree about."""


class AnswerVerifier:
    """Extract strictly from the declared carrier, then compare exactly.

    Correct: everything the completion offers equals the gold. Wrong: another value, several different values, an
    empty or unterminated place, no place. No verdict (``bad_gold``): the gold states nothing.
    """

    name = "answer"

    def __init__(self, settings: AnswerSettings) -> None:
        self.settings = settings

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        return [self._judge(item) for item in items]

    def state_gold(self, task: Task) -> str:
        tag = self.settings.tag
        answer = _bare_gold(task.gold)
        forms = {"tag": f"<{tag}>{answer}</{tag}>", "box": f"\\boxed{{{answer}}}", "hash": f"#### {answer}"}
        return forms.get(self.settings.carrier, answer)

    def _judge(self, item: Item) -> Verdict:
        gold = _parse_gold(item.task.gold)
        if gold is None:
            return no_verdict("bad_gold", f"task {item.task.id}: the gold {item.task.gold!r} states no answer")
        settings = self.settings
        found = extract(item.text, settings.carrier, tag=settings.tag, thinking_tag=settings.thinking_tag)
        if found.problem:
            return wrong(found.problem)
        offers = list(dict.fromkeys(found.offers))
        answer = parse(offers[-1])
        if answer is None:
            return wrong("the answer place is empty")
        for offer in offers[:-1]:
            other = parse(offer)
            if other is None or not is_equal(other, answer, settings.comparison):
                return wrong(f"different answers offered: {_show(other)} and {_show(answer)}")
        if is_equal(answer, gold, settings.comparison):
            return correct(f"{one_line(offers[-1], 80)} equals the gold {_show(gold)}")
        return wrong(f"{one_line(offers[-1], 80)} is not the gold {_show(gold)}")


@lru_cache(maxsize=4096)
def _parse_gold(gold: str) -> Value | None:
    """The gold as a value; None when it states nothing (blank, an empty box, the NaN of a missing table cell)."""
    value = parse(_bare_gold(gold))
    return None if value is None or render(value).casefold() == "nan" else value


def _bare_gold(gold: str) -> str:
    """The answer of a gold that is stored as a worked solution with ``####``."""
    return gold.rpartition("####")[2].strip()


def _show(value: Value | None) -> str:
    return "nothing" if value is None else one_line(render(value), 80)
