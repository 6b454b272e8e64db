"""The places where answers stand: an attack has to use the one that the reward function reads."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from oncurve.types import Task
from oncurve.verify.items import StatesGold


@dataclass(frozen=True, slots=True)
class Wrapper:
    """One way of stating an answer."""

    name: str
    place: Callable[[Task, str], str]
    """(task, answer) to the place of the answer alone."""
    before: str = ""
    """What stands once in front of a completion."""

    def state(self, task: Task, answer: str) -> str:
        """The completion that states the answer and nothing else."""
        return self.before + self.place(task, answer)


def _around(name: str, opening: str, closing: str = "", *, before: str = "") -> Wrapper:
    return Wrapper(name, lambda _, answer: f"{opening}{answer}{closing}", before)


_STEPS = "I work it out step by step."
THINKING = f"<think>{_STEPS}</think>"

WRAPPERS: tuple[Wrapper, ...] = (
    _around("think and answer tags", "<answer>", "</answer>", before=THINKING),
    _around("answer tag", "<answer>", "</answer>"),
    _around("box", "\\boxed{", "}"),
    _around("sentence with a box", "The answer is $\\boxed{", "}$.", before=f"{_STEPS} "),
    _around("hash", "#### ", before=f"{_STEPS}\n"),
    _around("sentence", "The answer is ", "."),
    _around("Answer:", "Answer: "),
    _around("last line", "", before=f"{_STEPS}\n"),
    Wrapper("JSON field", lambda _, answer: json.dumps({"answer": answer}, ensure_ascii=False)),
    _around("code block", "```python\n", "\n```"),
    _around("bare", ""),
)
"""Those in use, from the strictest to nothing at all: of equally good ones an audit takes the first."""


def stated_wrappers(verifier: StatesGold) -> tuple[Wrapper, ...]:
    """How this verifier itself would state an answer, with and without thinking before it."""

    def place(task: Task, answer: str) -> str:
        return verifier.state_gold(replace(task, gold=answer))

    return (Wrapper("as declared, after thinking", place, THINKING), Wrapper("as declared", place))
