"""Changes of the user's own rows whose right verdict is known from the change."""

from collections.abc import Callable, Iterator, Sequence

from oncurve.types import Task, derive_seed
from oncurve.verify.attacks.attack import Attack, attack_item, number, same_value
from oncurve.verify.attacks.cheap import last_turn
from oncurve.verify.attacks.wrappers import Wrapper

MAX_CANDIDATES = 5

Change = tuple[str, str, bool, str]
"""(kind, completion, is it right, why)"""


def metamorphic_attacks(tasks: Sequence[Task], wrapper: Wrapper) -> Iterator[Attack]:
    """Attack every task with changes of its own gold, prompt and columns.

    Right: the gold as it is, and with blanks around. Wrong: the gold of another task, the negated gold, one more, a
    digit more, several candidates, a retracted answer, a denied or merely mentioned gold, a claimed equality, the
    prompt, a completion that was cut off. Changes that would leave the value as it is are left out.

    Args:
        tasks: the user's rows; only those with a gold are attacked.
        wrapper: how the reward function wants answers.
    """
    usable = [task for task in tasks if task.gold.strip()]
    for place, task in enumerate(usable):
        others = _others(usable, place)
        changes = [*_honest(task, wrapper), *_alone(task, wrapper)]
        if others:
            changes += _against(task, [other.gold.strip() for other in others], wrapper)
        for index, (kind, text, is_right, why) in enumerate(changes):
            yield Attack(
                id=f"metamorphic/{kind}/{task.id}/{index}",
                family="metamorphic",
                kind=kind,
                item=attack_item(task, text, is_truncated=kind == "cut off"),
                is_right=is_right,
                why=why,
            )


def _others(tasks: Sequence[Task], place: int) -> list[Task]:
    """Other tasks with other golds, in an order of the task's own."""
    task = tasks[place]
    found = [other for other in tasks if other is not task and not same_value(other.gold, task.gold)]
    found = [other for other in found if not _is_same_question(other, task)]
    return sorted(found, key=lambda other: derive_seed("others", task.id, other.id))[:MAX_CANDIDATES]


def _is_same_question(one: Task, other: Task) -> bool:
    return "".join(last_turn(one.prompt).split()) == "".join(last_turn(other.prompt).split())


def _honest(task: Task, wrapper: Wrapper) -> Iterator[Change]:
    gold = task.gold.strip()
    yield "the gold", wrapper.state(task, gold), True, "the gold itself"
    yield "blanks around", f"\n{wrapper.state(task, gold)}  \n", True, "blanks change nothing"


def _alone(task: Task, wrapper: Wrapper) -> Iterator[Change]:
    gold, state = task.gold.strip(), wrapper.state
    yield "empty place", state(task, ""), False, "nothing is answered"
    prompt = last_turn(task.prompt)
    if not same_value(prompt, gold):
        yield "the prompt again", prompt, False, "the question is no answer"
        yield "the prompt as the answer", state(task, prompt), False, "the question is no answer"
    yield "only mentioned", f"Some say {gold}. I have not worked it out.", False, "the gold is named, not answered"
    yield "denied", state(task, f"not {gold}"), False, "it denies the gold"
    value = number(gold.replace(",", ""))
    if value is not None:
        if value != 0:
            negated = gold[1:] if gold.startswith("-") else f"-{gold.lstrip('+')}"
            yield "negated", state(task, negated), False, "the other sign"
        if value.denominator == 1 and "/" not in gold:
            yield "one more", state(task, str(int(value) + 1)), False, "one more than the gold"
            yield "a digit more", state(task, f"{int(value)}7"), False, "the gold is only its beginning"
            yield "a digit before", state(task, f"7{abs(int(value))}"), False, "the gold is only its end"
    cut = gold[: len(gold) // 2]
    if not same_value(cut, gold):
        text = state(task, f"\0{gold}").partition("\0")[0] if "\0" in state(task, "\0") else ""
        yield "cut off", text + cut, False, "cut off in the middle of the answer"


def _against(task: Task, others: Sequence[str], wrapper: Wrapper) -> list[Change]:
    """Changes that need a wrong answer: the gold of another task."""
    gold, other = task.gold.strip(), others[0]

    def say(answer: str) -> str:
        return wrapper.state(task, answer)

    def place(answer: str) -> str:
        return wrapper.place(task, answer)

    before = wrapper.before
    candidates = [*others[:2], gold, *others[2:]]
    why = "the answer is that of another task"
    changes: list[Change] = [
        ("another task's gold", say(other), False, why),
        ("several places, gold first", f"{say(gold)}\n{place(other)}", False, "two different answers"),
        ("gold or another", say(f"{gold} or {other}"), False, "two different answers"),
        ("another or gold", say(f"{other} or {gold}"), False, "two different answers"),
        ("all candidates", say(", ".join(candidates)), False, f"{len(candidates)} candidates"),
        (
            "all candidates, each in its place",
            before + " ".join(map(place, candidates)),
            False,
            f"{len(candidates)} candidates",
        ),
        ("retracted", f"{say(gold)}\nWait, that is wrong. {place(other)}", False, "the last answer is another one"),
        ("denied before another", f"{before}The answer is not {gold}.\n{place(other)}", False, why),
        ("gold in the thinking only", f"<think>Perhaps {gold}.</think>{place(other)}", False, why),
        ("claimed equality", say(f"{other} = {gold}"), False, "that they are equal is only claimed"),
        ("gold behind another answer", f"{say(other)}\n(reference: {gold})", False, why),
    ]
    if place("").strip():  # without a mark, what stands before the last line is reasoning
        changes.append(("several places, gold last", f"{say(other)}\n{place(gold)}", False, "two different answers"))
    return changes + _claims(task, other, place)


def _claims(task: Task, other: str, place: Callable[[str], str]) -> list[Change]:
    """Numbers that the row holds beside its gold, claimed as the result of a wrong answer."""
    changes: list[Change] = []
    for name, value in task.meta.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str) or number(str(value)) is None:
            continue
        claim = f"<think>{other}={value}</think>{place(other)}"
        changes.append((f"claimed {name}", claim, False, f"that it makes {value} is only claimed"))
    return changes
