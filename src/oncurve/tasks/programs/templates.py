"""Templates of small functions. What a task asks, how it is solved and what comes out stand side by side.

``compute`` is evaluated here and ``body`` in the sandbox, so each checks the other.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from string import ascii_lowercase
from typing import Any

from oncurve.tasks.words import WORDS

Constants = Mapping[str, Any]
DrawConstant = Callable[[Random, int], Any]
"""From randomness and the largest number allowed."""
DrawInput = Callable[[Random, Constants], Any]
"""From randomness and the constants, so that an input can be on either side of one."""


@dataclass(frozen=True, kw_only=True)
class Template:
    """A family of functions that differ in their constants."""

    name: str
    difficulty: int
    parameters: str
    says: str
    """The task in one sentence; ``{k}`` is a constant as Python writes it."""
    body: str
    """The lines of a solution, not indented."""
    compute: Callable[..., Any]
    """What the function returns, from its arguments and, by name, the constants."""
    inputs: tuple[DrawInput, ...]
    """One for each argument."""
    constants: Mapping[str, DrawConstant] = field(default_factory=dict)


def _number(rng: Random, largest: int) -> int:
    return rng.randint(2, largest)


def _few(rng: Random, _: int) -> int:
    return rng.randint(2, 6)


def _letter(rng: Random, _: int) -> str:
    return rng.choice(ascii_lowercase)


def _whole(rng: Random, constants: Constants) -> int:
    """A whole number around the constant, and often a multiple of it."""
    k = constants.get("k")
    if not isinstance(k, int):
        return rng.randint(-50, 99)
    return rng.choice((rng.randint(-50, 99), k * rng.randint(0, 9), k + rng.randint(-2, 2)))


def _list(rng: Random, constants: Constants) -> list[int]:
    return [_whole(rng, constants) for _ in range(rng.randint(3, 8))]


def _word(rng: Random, constants: Constants) -> str:
    """A word, with the letters of the constants in it as often as not."""
    letters = [value for value in constants.values() if isinstance(value, str)]
    word = rng.choice(WORDS)
    if not letters or rng.random() < 0.3:
        return word
    return "".join(rng.choice(letters) if rng.random() < 0.35 else letter for letter in word)


def _words(rng: Random, constants: Constants) -> list[str]:
    return [_word(rng, constants) for _ in range(rng.randint(2, 5))]


def _sentence(rng: Random, constants: Constants) -> str:
    return " ".join(_words(rng, constants))


_PARAMETERS: Mapping[DrawInput, str] = {_list: "numbers", _word: "text", _words: "words", _sentence: "text"}
_K: Mapping[str, DrawConstant] = {"k": _number}
_FEW: Mapping[str, DrawConstant] = {"k": _few}
_C: Mapping[str, DrawConstant] = {"c": _letter}
_CD: Mapping[str, DrawConstant] = {"c": _letter, "d": _letter}
_KM: Mapping[str, DrawConstant] = {"k": _number, "m": _number}


def _easy(
    name: str, says: str, body: str, compute: Callable[..., Any], constants: Mapping[str, DrawConstant] = _K
) -> Template:
    return Template(
        name=name,
        difficulty=1,
        parameters="n",
        says=says,
        body=body,
        compute=compute,
        inputs=(_whole,),
        constants=constants,
    )


def _on(
    draw: DrawInput,
    difficulty: int,
    name: str,
    says: str,
    body: str,
    compute: Callable[..., Any],
    constants: Mapping[str, DrawConstant] = _K,
) -> Template:
    return Template(
        name=name,
        difficulty=difficulty,
        parameters=_PARAMETERS.get(draw, "n"),
        says=says,
        body=body,
        compute=compute,
        inputs=(draw,),
        constants=constants,
    )


_ALL = (
    _easy("add", "Return n plus {k}.", "return n + {k}", lambda n, k: n + k),
    _easy("subtract", "Return n minus {k}.", "return n - {k}", lambda n, k: n - k),
    _easy("multiply", "Return n times {k}.", "return n * {k}", lambda n, k: n * k),
    _easy("remainder", "Return the remainder of n divided by {k}.", "return n % {k}", lambda n, k: n % k),
    _easy("divide", "Return n divided by {k}, rounded down.", "return n // {k}", lambda n, k: n // k),
    _easy("is_multiple", "Return True if n is a multiple of {k}.", "return n % {k} == 0", lambda n, k: n % k == 0),
    _easy("is_greater", "Return True if n is greater than {k}.", "return n > {k}", lambda n, k: n > k),
    _easy("at_most", "Return n, or {k} if n is greater.", "return min(n, {k})", lambda n, k: min(n, k)),
    _easy("distance", "Return the distance between n and {k}.", "return abs(n - {k})", lambda n, k: abs(n - k)),
    _easy("scale", "Return n times {k} plus {m}.", "return n * {k} + {m}", lambda n, k, m: n * k + m, _KM),
    _on(_list, 2, "first", "Return the first {k} numbers.", "return numbers[:{k}]", lambda x, k: x[:k], _FEW),
    _on(_list, 2, "last", "Return the last {k} numbers.", "return numbers[-{k}:]", lambda x, k: x[-k:], _FEW),
    _on(_list, 2, "contains", "Return True if {k} is in the list.", "return {k} in numbers", lambda x, k: k in x),
    _on(_list, 2, "append", "Return the list with {k} at its end.", "return numbers + [{k}]", lambda x, k: [*x, k]),
    _on(_list, 2, "total_plus", "Return the sum of the numbers plus {k}.", "return sum(numbers) + {k}",
        lambda x, k: sum(x) + k),
    _on(_list, 2, "largest_times", "Return the largest number times {k}.", "return max(numbers) * {k}",
        lambda x, k: max(x) * k),
    _on(_list, 2, "add_to_all", "Return a list with {k} added to each number.", "return [n + {k} for n in numbers]",
        lambda x, k: [n + k for n in x]),
    _on(_list, 2, "multiply_all", "Return a list of the numbers, each times {k}.", "return [n * {k} for n in numbers]",
        lambda x, k: [n * k for n in x]),
    _on(_word, 2, "count_letter", "Return how often the letter {c} is in the text.", "return text.count({c})",
        lambda x, c: x.count(c), _C),
    _on(_word, 2, "starts_with", "Return True if the text starts with {c}.", "return text.startswith({c})",
        lambda x, c: x.startswith(c), _C),
    _on(_word, 2, "remove_letter", "Return the text without the letter {c}.", "return text.replace({c}, '')",
        lambda x, c: x.replace(c, ""), _C),
    _on(_word, 2, "replace_letter", "Return the text with every {c} replaced by {d}.", "return text.replace({c}, {d})",
        lambda x, c, d: x.replace(c, d), _CD),
    _on(_word, 2, "repeat", "Return the text {k} times in a row.", "return text * {k}", lambda x, k: x * k, _FEW),
    _on(_word, 2, "join_with", "Return the letters of the text with {c} between them.", "return {c}.join(text)",
        lambda x, c: c.join(x), _C),
    _on(_list, 3, "keep_greater", "Return the numbers that are greater than {k}.",
        "return [n for n in numbers if n > {k}]", lambda x, k: [n for n in x if n > k]),
    _on(_list, 3, "count_multiples", "Return how many of the numbers are multiples of {k}.",
        "return sum(n % {k} == 0 for n in numbers)", lambda x, k: len([n for n in x if n % k == 0])),
    _on(_list, 3, "sum_smaller", "Return the sum of the numbers that are smaller than {k}.",
        "return sum(n for n in numbers if n < {k})", lambda x, k: sum(n for n in x if n < k)),
    _on(_list, 3, "drop_all", "Return the numbers without those equal to {k}.",
        "return [n for n in numbers if n != {k}]", lambda x, k: [n for n in x if n != k]),
    _on(_words, 3, "longer_than", "Return the words that have more than {k} letters.",
        "return [word for word in words if len(word) > {k}]", lambda x, k: [w for w in x if len(w) > k], _FEW),
    _on(_words, 3, "words_with", "Return the words that contain the letter {c}.",
        "return [word for word in words if {c} in word]", lambda x, c: [w for w in x if c in w], _C),
    _on(_sentence, 3, "first_words", "Return the first {k} words of the text, joined by blanks.",
        "return ' '.join(text.split()[:{k}])", lambda x, k: " ".join(x.split()[:k]), _FEW),
    _on(_whole, 3, "clamp", "Return n, but at least {k} and at most {k} plus {m}.",
        "return max({k}, min(n, {k} + {m}))", lambda n, k, m: max(k, min(n, k + m)), _KM),
)  # fmt: skip

TEMPLATES: dict[str, Template] = {template.name: template for template in _ALL}
