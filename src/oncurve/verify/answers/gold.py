"""Read the gold of a task, in the shapes in which data sets store it."""

from oncurve.verify.answers.extract import extract
from oncurve.verify.answers.grammar import Answer, parse
from oncurve.verify.answers.nodes import number, walk
from oncurve.verify.answers.sentence import candidates

_LONG = 120
_NOTHING = frozenset(("nan", "null", "n/a"))
_ZERO = number(0)
_SEVERAL = frozenset(("list", "any", "set", "tuple"))


def read_gold(gold: str, exotic_digits: bool = True) -> Answer | None:
    """The gold as an answer; None when it states nothing.

    A gold may be the bare answer, set in math mode, boxed (several boxes are a list), or a worked solution that ends
    in ``####``, a box, or a sentence that states the answer. Nothing: blank, an empty box, the NaN of a missing cell,
    broken mathematics such as an open brace.
    """
    bare = gold.rpartition("####")[2].strip()
    if "boxed" in bare or "fbox" in bare:
        found = extract(bare, "box", thinking_tag="no-thinking-in-golds")
        if found.offers:
            return _from_offers(found.offers if found.is_joined else found.offers[-1:], exotic_digits)
        if len(bare) > _LONG or found.problem.endswith("empty"):
            return None
    answer = _read(bare, exotic_digits)
    return None if answer is None or answer.text.casefold() in _NOTHING or _is_broken(answer) else answer


def _is_broken(answer: Answer) -> bool:
    """Mathematics that did not parse: braces that do not close; without a letter any bracket that does not; x/0."""
    text = answer.text
    if answer.node[0] == "div" and answer.node[2] == _ZERO:
        return True
    if answer.node[0] != "text":
        return False
    if text.count("{") != text.count("}"):
        return True
    num_open, num_closed = (sum(map(text.count, signs)) for signs in ("([", ")]"))
    is_wordless = not any(letter.isalpha() for letter in text)
    return is_wordless and num_open != num_closed


def _read(text: str, exotic_digits: bool) -> Answer | None:
    answer = parse(text, exotic_digits=exotic_digits)
    return _from_prose(answer, exotic_digits) if answer is not None and answer.node[0] == "text" else answer


def _from_offers(offers: tuple[str, ...], exotic_digits: bool) -> Answer | None:
    answers = [answer for offer in dict.fromkeys(offers) if (answer := _read(offer, exotic_digits))]
    if len(answers) != 1:
        text = ",".join(answer.text for answer in answers)
        return Answer(text, text, ("list", *(answer.node for answer in answers))) if answers else None
    return answers[0]


def _from_prose(answer: Answer, exotic_digits: bool) -> Answer:
    """A remark in parentheses is dropped; a long text counts for the value that its last statement asserts."""
    remark = answer.source.rstrip(" }$").rpartition("(")[0]
    parts = [remark.replace("\\text{", "")] if answer.source.rstrip(" }$").endswith(")") else []
    if len(answer.source) > _LONG:
        parts += candidates(answer.source)
    for part in parts:
        read = parse(part, exotic_digits=exotic_digits)
        if read is not None and read.node[0] not in ("text", "sym"):
            return read
    return answer


def is_several(gold: Answer) -> bool:
    """True when a gold consists of several values, so that several places may state them."""
    return gold.node[0] in _SEVERAL or any(part[0] == "pm" for part in walk(gold.node))


def show(answer: Answer | None) -> str:
    """A short spelling for the evidence: numbers by value, anything else as it was written."""
    if answer is None:
        return "nothing"
    if answer.node[0] == "num":
        top, bottom = answer.node[1:3]
        return str(top) if bottom == 1 else f"{top}/{bottom}"
    text = answer.source.strip() or answer.text
    return text if len(text) <= 80 else text[:79] + "…"
