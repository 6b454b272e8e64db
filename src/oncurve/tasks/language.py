"""Small questions in plain English whose answer is one whole number."""

from functools import cache
from random import Random
from typing import Self

from pydantic import Field, model_validator

from oncurve.tasks.problem import Problem, Source
from oncurve.tasks.words import WORDS
from oncurve.types import Settings, Task


class NumberListOptions(Settings):
    """Questions about a list of different numbers."""

    num_numbers: int = Field(4, ge=2, le=20)
    """Length of the list."""

    min_number: int = Field(10, ge=0)
    """Smallest number drawn."""

    max_number: int = Field(99, ge=1, le=1_000_000)
    """Largest number drawn."""

    @model_validator(mode="after")
    def _enough_numbers(self) -> Self:
        choices = self.max_number - self.min_number + 1
        if choices < self.num_numbers:
            raise ValueError(
                f"{self.min_number}..{self.max_number} holds {max(choices, 0)} numbers, too few for num_numbers = "
                f"{self.num_numbers} different ones. Raise max_number."
            )
        return self


class SequenceOptions(Settings):
    """Arithmetic sequences."""

    num_shown: int = Field(4, ge=2, le=20)
    """Terms shown; the next one is asked for."""

    max_start: int = Field(99, ge=1, le=1_000_000)
    """The first term is drawn from 1 to this."""

    max_step: int = Field(50, ge=1, le=1_000_000)
    """The difference of neighbours is drawn from 1 to this."""


class LetterCountOptions(Settings):
    """Counting a letter in a word."""

    min_length: int = Field(4, ge=1, le=10)
    """Shortest word drawn."""

    max_length: int = Field(12, ge=4)
    """Longest word drawn."""

    @model_validator(mode="after")
    def _has_words(self) -> Self:
        if not _words(self.min_length, self.max_length):
            raise ValueError(f"no word has {self.min_length} to {self.max_length} letters. Raise max_length.")
        return self


def largest(rng: Random, options: NumberListOptions) -> Problem:
    """Which number of a list is the largest?"""
    numbers = _numbers(rng, options)
    return _about_numbers(
        "largest", numbers, f"Which of these numbers is the largest: {_listed(numbers)}?", max(numbers)
    )


def count_even(rng: Random, options: NumberListOptions) -> Problem:
    """How many numbers of a list are even?"""
    numbers = _numbers(rng, options)
    evens = sum(number % 2 == 0 for number in numbers)
    return _about_numbers("count_even", numbers, f"How many of these numbers are even: {_listed(numbers)}?", evens)


def total(rng: Random, options: NumberListOptions) -> Problem:
    """What is the sum of a list of numbers?"""
    numbers = _numbers(rng, options)
    question = f"What is {' + '.join(map(str, numbers))}?"
    return _about_numbers("sum", numbers, question, sum(numbers))


def next_term(rng: Random, options: SequenceOptions) -> Problem:
    """Which number continues an arithmetic sequence?"""
    start, step = rng.randint(1, options.max_start), rng.randint(1, options.max_step)
    terms = tuple(start + step * index for index in range(options.num_shown))
    question = f"Which number comes next: {_listed(terms)}, ...?"
    return _about_numbers("next_term", terms, question, terms[-1] + step)


def letter_count(rng: Random, options: LetterCountOptions) -> Problem:
    """How often does a letter stand in a word? The letter always occurs.

    The count is drawn first, from those that the word offers: drawing a letter would make nearly every answer 1.
    """
    word = rng.choice(_words(options.min_length, options.max_length))
    wanted = rng.choice(sorted({word.count(letter) for letter in word}))
    letter = rng.choice(sorted({letter for letter in word if word.count(letter) == wanted}))
    return Problem(
        kind="letter_count",
        canonical=f"{word}/{letter}",
        question=f'How many times does the letter "{letter}" occur in the word "{word}"?',
        gold=str(word.count(letter)),
        difficulty=float(len(word)),
        meta={"word": word, "letter": letter},
    )


def _about_numbers(kind: str, numbers: tuple[int, ...], question: str, answer: int) -> Problem:
    return Problem(
        kind=kind,
        canonical=_listed(tuple(sorted(numbers))),
        question=question,
        gold=str(answer),
        difficulty=float(len(numbers)),
        meta={"numbers": numbers},
    )


def _numbers(rng: Random, options: NumberListOptions) -> tuple[int, ...]:
    return tuple(rng.sample(range(options.min_number, options.max_number + 1), options.num_numbers))


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


@cache
def _words(min_length: int, max_length: int) -> tuple[str, ...]:
    return tuple(word for word in WORDS if min_length <= len(word) <= max_length)


def _explain_largest(task: Task) -> str:
    best, *rest = task.meta["numbers"]
    steps = []
    for number in rest:
        steps.append(f"{number} > {best}" if number > best else f"{best} > {number}")
        best = max(best, number)
    return ", ".join(steps)


def _explain_count_even(task: Task) -> str:
    evens = [number for number in task.meta["numbers"] if number % 2 == 0]
    return f"Even: {_listed(tuple(evens))}" if evens else "None is even"


def _explain_total(task: Task) -> str:
    so_far, *rest = task.meta["numbers"]
    steps = []
    for number in rest:
        steps.append(f"{so_far} + {number} = {so_far + number}")
        so_far += number
    return ", ".join(steps)


def _explain_next_term(task: Task) -> str:
    before, last = task.meta["numbers"][-2:]
    step = last - before
    return f"{last} - {before} = {step}, {last} + {step} = {last + step}"


def _explain_letter_count(task: Task) -> str:
    word, letter = task.meta["word"], task.meta["letter"]
    return ", ".join(f"{character} yes" if character == letter else character for character in word)


LANGUAGE_SOURCES = (
    Source(name="largest", verifier="answer", options=NumberListOptions, generate=largest, explain=_explain_largest),
    Source(
        name="count_even",
        verifier="answer",
        options=NumberListOptions,
        generate=count_even,
        explain=_explain_count_even,
    ),
    Source(name="sum", verifier="answer", options=NumberListOptions, generate=total, explain=_explain_total),
    Source(
        name="next_term", verifier="answer", options=SequenceOptions, generate=next_term, explain=_explain_next_term
    ),
    Source(
        name="letter_count",
        verifier="answer",
        options=LetterCountOptions,
        generate=letter_count,
        explain=_explain_letter_count,
    ),
)
