"""The ``answer`` verifier: is the final answer of a completion the gold?"""

import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial

from pydantic import Field

from oncurve.types import DataError, Settings, Status, Task, Verdict
from oncurve.verify.answers import (
    Allowance,
    Answer,
    Carrier,
    Cas,
    Comparer,
    ComparisonSettings,
    Extraction,
    Mode,
    Node,
    NoDecisionError,
    Once,
    candidates,
    extract,
    is_several,
    parse,
    read_gold,
    shared_cas,
    show,
)
from oncurve.verify.answers.wording import gold_choice, named_choice
from oncurve.verify.items import Item, correct, no_verdict, one_line, wrong

MAX_REMEMBERED = 8192
"""Verdicts that took the CAS and are remembered by a verifier."""


class AnswerSettings(Settings):
    """Where the answer stands and how it is compared."""

    carrier: Carrier = "tag"
    """``tag``: ``<answer>…</answer>``; ``box``: ``\\boxed{…}``; ``hash``: after ``####``; ``last_line``; ``text``: the
    last sentence that states an answer, also ``答案是``; ``json``: a field of the outermost JSON objects."""

    tag: str = Field("answer", pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    """Name of the tag, for the tag carrier."""

    field: str = Field("answer", min_length=1)
    """Name of the field, for the json carrier."""

    thinking_tag: str = Field("think", pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    """Nothing inside this tag is an answer; when it is never closed there is no answer."""

    comparison: ComparisonSettings = ComparisonSettings()
    """Choices that data sets disagree about; a task overrides them in ``meta["comparison"]``."""

    num_workers: int = Field(0, ge=0, le=1024)
    """Processes of the CAS at the same time; 0 for one on each core that this process may use. None is started before
    an answer needs it."""


class AnswerVerifier:
    """Extract strictly from the declared carrier, then compare exactly, and by the CAS what is left open.

    Correct: everything the completion offers equals the gold. Wrong: another value, several different values, an
    empty or unterminated place, no place. No verdict: the gold states nothing (``bad_gold``), the CAS failed
    (``timeout``, ``memory``, ``crash``), or there is a fault in this verifier (``error``).

    What exact arithmetic decides is decided at once, in the calling thread. What needs the CAS is decided afterwards,
    ``num_workers`` verdicts at the same time, equal answers to equal golds once, also across calls. Safe to use from
    several threads.
    """

    name = "answer"

    def __init__(self, settings: AnswerSettings) -> None:
        self.settings = settings
        self._comparer = Comparer(settings.comparison, _Later())
        self._decided: Once[Verdict] = Once(MAX_REMEMBERED, lambda verdict: verdict.status is not Status.NO_VERDICT)

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict an item.

        Raises:
            DataError: a task's ``meta["comparison"]`` holds an unknown or impossible setting.
        """
        first = [self._verdict(item) for item in items]
        opened = {verdict.key: verdict for verdict in first if isinstance(verdict, _Open)}
        decided = self._decide(opened)
        return [decided[verdict.key] if isinstance(verdict, _Open) else verdict for verdict in first]

    def state_gold(self, task: Task) -> str:
        """The gold, in the declared carrier."""
        tag, field = self.settings.tag, self.settings.field
        answer = task.gold.rpartition("####")[2].strip()
        forms = {
            "tag": f"<{tag}>{answer}</{tag}>",
            "box": f"\\boxed{{{answer}}}",
            "hash": f"#### {answer}",
            "text": f"The answer is {answer}",
            "json": json.dumps({field: answer}),
        }
        return forms.get(self.settings.carrier, answer)

    def _decide(self, opened: Mapping[Hashable, "_Open"]) -> dict[Hashable, Verdict]:
        """Have the CAS decide, several at the same time; one more than it has processes, so that none waits for us."""
        if not opened:
            return {}
        cas = shared_cas(self.settings.num_workers)
        jobs = [partial(self._decided.get, key, partial(one.decide, cas)) for key, one in opened.items()]
        num_threads = min(len(jobs), cas.num_workers + 1)
        if num_threads == 1:
            return {key: job() for key, job in zip(opened, jobs, strict=True)}
        executor = ThreadPoolExecutor(num_threads, thread_name_prefix="oncurve-answer")
        try:
            return dict(zip(opened, executor.map(_run, jobs), strict=True))
        finally:
            executor.shutdown(cancel_futures=True)

    def _verdict(self, item: Item) -> "Verdict | _Open":
        try:
            return self._judge(item)
        except DataError:
            raise
        except Exception as error:  # noqa: BLE001  the border: a fault of ours is recorded, and never the model's
            return _fault(item.task, error)

    def _judge(self, item: Item) -> "Verdict | _Open":
        comparer = self._comparer_of(item.task)
        gold = _read_gold(item.task.gold, comparer.settings.exotic_digits)
        if gold is None:
            return no_verdict("bad_gold", f"task {item.task.id}: the gold {item.task.gold!r} states no answer")
        settings = self.settings
        found = extract(
            _without_echo(item),
            settings.carrier,
            tag=settings.tag,
            thinking_tag=settings.thinking_tag,
            field=settings.field,
        )
        if found.problem:
            return wrong(found.problem)
        try:
            return _compare(found, gold, comparer)
        except _NeedsCasError:
            return _Open(found, gold, item.task, comparer.settings)

    def _comparer_of(self, task: Task) -> Comparer:
        overrides = task.meta.get("comparison")
        if not overrides:
            return self._comparer
        try:
            merged = self.settings.comparison.model_dump() | dict(overrides)
            return Comparer(ComparisonSettings.model_validate(merged), _Later())
        except (TypeError, ValueError) as error:
            raise DataError(f"task {task.id}: meta.comparison: {error}") from error


class _NeedsCasError(Exception):
    """Exact arithmetic does not decide."""


class _Later:
    """In the place of the CAS while answers are read: what needs it is put off."""

    def decide(self, _mode: Mode, _trees: Sequence[Node]) -> bool | None:
        raise _NeedsCasError


@dataclass(frozen=True, slots=True)
class _Open:
    """An answer that the CAS has to compare with its gold."""

    found: Extraction
    gold: Answer
    task: Task
    comparison: ComparisonSettings

    @property
    def key(self) -> Hashable:
        """All that the verdict depends on."""
        return self.found, self.task.gold, self.comparison

    def decide(self, cas: Cas) -> Verdict:
        try:
            return _compare(self.found, self.gold, Comparer(self.comparison, Allowance(cas)))
        except NoDecisionError as failure:
            return no_verdict(failure.cause, f"comparing {one_line(self.found.offers[-1], 80)}: {failure}")
        except Exception as error:  # noqa: BLE001  the border, as above
            return _fault(self.task, error)


def _run(job: Callable[[], Verdict]) -> Verdict:
    return job()


def _fault(task: Task, error: Exception) -> Verdict:
    return no_verdict("error", f"task {task.id}: {type(error).__name__}: {error}")


def _compare(found: Extraction, gold: Answer, comparer: Comparer) -> Verdict:
    if len(found.offers) == 1:
        last = parse(found.offers[0], exotic_digits=comparer.settings.exotic_digits)
        return wrong("the answer place is empty") if last is None else _verdict(found, last, gold, comparer)
    offers = list(dict.fromkeys(found.offers))
    answers = [parse(offer, exotic_digits=comparer.settings.exotic_digits) for offer in offers]
    last = answers[-1]
    if last is None:
        return wrong("the answer place is empty")
    others = [other for other in answers[:-1] if other is None or not _same_offer(other, last, comparer)]
    if others:
        listed = [answer.node for answer in answers if answer is not None]
        together = Answer("", "\0", ("list", *listed))
        if found.is_joined and is_several(gold) and comparer.is_equal(together, gold):
            return correct(f"{len(listed)} places together equal the gold {show(gold)}")
        return wrong(f"different answers offered: {show(others[0])} and {show(last)}")
    return _verdict(found, last, gold, comparer)


def _verdict(found: Extraction, last: Answer, gold: Answer, comparer: Comparer) -> Verdict:
    offer = one_line(found.offers[-1], 80)
    if comparer.is_equal(last, gold) or _prose_equals(last, gold, comparer, found.is_marked):
        return correct(f"{offer} equals the gold {show(gold)}")
    return wrong(f"{offer} is not the gold {show(gold)}")


def _same_offer(other: Answer, last: Answer, comparer: Comparer) -> bool:
    return (
        comparer.is_equal(other, last) or comparer.is_equal(last, other) or _prose_equals(other, last, comparer, True)
    )


def _prose_equals(answer: Answer, gold: Answer, comparer: Comparer, is_marked: bool) -> bool:
    """A sentence in the answer place counts for the value that it asserts."""
    if answer.node[0] != "text" or gold.node[0] == "text" or _is_open_end(answer.text):
        return False
    letter, chosen = gold_choice(gold.text), named_choice(answer.text)[0]
    if letter and chosen and letter != chosen:
        return False  # A: C chooses A
    for part in candidates(answer.source, is_marked=is_marked):
        read = parse(part, exotic_digits=comparer.settings.exotic_digits)
        if read is not None and read.node[0] != "text":
            return comparer.is_equal(read, gold)
    return False


def _without_echo(item: Item) -> str:
    """The completion without a copy of the prompt in front of it."""
    prompt = item.task.prompt if isinstance(item.task.prompt, str) else item.task.prompt[-1].content
    return item.text[len(prompt) :] if len(prompt) > 20 and item.text.startswith(prompt) else item.text


_LETTER = re.compile(r"[a-zA-Z]")
_DIGIT = re.compile(r"\d")


def _is_open_end(text: str) -> bool:
    """``7...``: some number that begins so, and no word before the dots."""
    if not text.endswith(("..", "\\ldots")):
        return False
    begun = text.removesuffix("\\ldots").removesuffix("..")
    return _LETTER.search(begun) is None and _DIGIT.search(begun) is not None


_read_gold = lru_cache(maxsize=4096)(read_gold)
