"""The ``judge`` verifier: a language model behind an endpoint grades what no verifier can decide. Fallible."""

from collections.abc import Sequence
from dataclasses import dataclass

from oncurve.types import Task, Verdict
from oncurve.verify.items import Item, correct, no_verdict, one_line, wrong
from oncurve.verify.judges.client import ChatClient, NoReplyError
from oncurve.verify.judges.prompts import Conversation, pair_prompt, reference_of, score_prompt
from oncurve.verify.judges.replies import BadReplyError, Choice, read_choice, read_score
from oncurve.verify.judges.settings import JudgeSettings

_SWAPPED: dict[Choice, Choice] = {"first": "second", "second": "first", "tie": "tie"}
_WORTH: dict[Choice, float] = {"first": 1.0, "second": 0.0, "tie": 0.5}


@dataclass(frozen=True, slots=True)
class _Asked:
    """The questions about one item, or the verdict that needs none."""

    questions: tuple[tuple[Conversation, str], ...] = ()
    verdict: Verdict | None = None


class EndpointJudge:
    """Grades completions by a chat model; the reward is the score on the scale from ``min_score`` to ``max_score``.

    Fallible: it can be talked to, it likes long answers, and it errs. No verdict: no reply (``timeout``,
    ``unreachable``, ``server_error``, ``refused``, ``bad_reply``), a reply without exactly one verdict
    (``unparsable``, ``off_range``), orders that disagree (``disagreement``), no reference to compare with
    (``bad_gold``).

    Raises:
        ConfigError: the key cannot be read.
    """

    name = "judge"
    reward_range = (0.0, 1.0)
    """The worst and the best reward."""

    def __init__(self, settings: JudgeSettings) -> None:
        self.settings = settings
        self.num_probe_rows = settings.probe_rows
        self._client = ChatClient(settings.endpoint)

    @property
    def compares(self) -> bool:
        """True when it has a preference between two answers, which can depend on their order."""
        return self.settings.mode == "pair"

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict an item; all of them are asked at once, within ``endpoint.max_concurrent``."""
        asked = [self._questions(item) for item in items]
        replies = iter(self._client.ask_all([talk for each in asked for talk, _ in each.questions]))
        return [each.verdict or self._verdict([(next(replies), mark) for _, mark in each.questions]) for each in asked]

    def prefer(self, pairs: Sequence[tuple[Task, str, str]]) -> list[Choice | None]:
        """Which of two answers to a task is better, in the order given; None where there is no verdict."""
        asked = [pair_prompt(task, first, second, self.settings) for task, first, second in pairs]
        replies = self._client.ask_all([talk for talk, _ in asked])
        return [_choice_or_none(reply, mark) for reply, (_, mark) in zip(replies, asked, strict=True)]

    def _questions(self, item: Item) -> _Asked:
        answer = item.text if self.settings.show_thinking else _after_thinking(item.text)
        if not answer.strip():
            return _Asked(verdict=wrong("fallible judge: there is no answer to grade"))
        if len(answer) > self.settings.max_chars:
            too_long = f"fallible judge: {len(answer)} characters, at most {self.settings.max_chars} are graded"
            return _Asked(verdict=wrong(too_long))
        if self.settings.mode == "score":
            return _Asked((score_prompt(item.task, answer, self.settings),))
        reference = reference_of(item.task)
        if not reference:
            return _Asked(verdict=no_verdict("bad_gold", f"task {item.task.id} has no reference to compare with"))
        return _Asked(
            (
                pair_prompt(item.task, answer, reference, self.settings),
                pair_prompt(item.task, reference, answer, self.settings),
            )
        )

    def _verdict(self, replies: Sequence[tuple[str | NoReplyError, str]]) -> Verdict:
        try:
            return self._score(*replies) if self.settings.mode == "score" else self._pair(*replies)
        except (NoReplyError, BadReplyError) as error:
            return no_verdict(error.cause, f"fallible judge: {one_line(str(error), 200)}")

    def _score(self, reply: tuple[str | NoReplyError, str]) -> Verdict:
        low, high = self.settings.min_score, self.settings.max_score
        text, mark = reply
        score = read_score(_received(text), mark, low, high)
        return self._rewarded((score - low) / (high - low), f"scored {score:g} of {low:g} to {high:g}")

    def _pair(self, ours: tuple[str | NoReplyError, str], swapped: tuple[str | NoReplyError, str]) -> Verdict:
        choice = read_choice(_received(ours[0]), ours[1])
        other = _SWAPPED[read_choice(_received(swapped[0]), swapped[1])]
        if choice != other:
            if self.settings.on_disagreement == "half":
                return self._rewarded(0.5, "the choice depends on the order")
            return no_verdict("disagreement", "fallible judge: the choice depends on the order of the two answers")
        said = {"first": "better than the reference", "second": "worse than the reference", "tie": "as good as it"}
        return self._rewarded(_WORTH[choice], f"{said[choice]}, in both orders")

    def _rewarded(self, reward: float, said: str) -> Verdict:
        evidence = f"fallible judge: {said}"
        is_enough = reward >= self.settings.correct_at
        return correct(evidence, reward) if is_enough else wrong(evidence, reward)


def _received(reply: str | NoReplyError) -> str:
    if isinstance(reply, NoReplyError):
        raise reply
    return reply


def _choice_or_none(reply: str | NoReplyError, mark: str) -> Choice | None:
    try:
        return read_choice(_received(reply), mark)
    except (NoReplyError, BadReplyError):
        return None


def _after_thinking(text: str) -> str:
    """What follows the thinking; nothing when it never ends."""
    answer = text.rpartition("</think>")[2]
    return "" if "<think>" in answer else answer
