"""Small functions to write: one template with its constants, a reference solution, and hidden cases as plain data."""

from random import Random
from typing import Any

from pydantic import Field, field_validator

from oncurve.tasks.problem import Problem, Source
from oncurve.tasks.programs.templates import TEMPLATES, Template
from oncurve.tasks.programs.wording import complete_this
from oncurve.types import ConfigError, Settings, did_you_mean

MAX_DRAWS = 100
"""Problems drawn in search of one whose cases tell, and inputs drawn in search of one not seen yet."""


class MiniCodeOptions(Settings):
    """Which functions are asked for."""

    max_difficulty: int = Field(3, ge=1, le=3)
    """1: an expression of one argument; 2: a list or a string; 3: a loop, a condition or two steps."""

    templates: tuple[str, ...] = ()
    """Names of templates to draw from, for example ``("add", "count_letter")``. Empty: all of that difficulty."""

    num_cases: int = Field(8, ge=2, le=100)
    """Hidden cases of a task. The example in its prompt is not among them."""

    max_constant: int = Field(30, ge=5, le=10_000)
    """The numbers in the tasks are drawn from 2 to this: more numbers make more different problems."""

    @field_validator("templates")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in TEMPLATES:
                raise ValueError(
                    f"there is no template {name!r}.{did_you_mean(name, TEMPLATES)} Known: {', '.join(TEMPLATES)}"
                )
        return value


def mini_code(rng: Random, options: MiniCodeOptions) -> Problem:
    """Draw a template, its constants and its inputs; what the template computes is what the cases expect.

    The function's name and constants are the content: equal ones are one problem, whatever inputs were drawn. No
    constant and no argument handed back passes the hidden cases.

    Raises:
        ConfigError: the options leave no such cases.
    """
    named = options.templates or tuple(
        name for name, template in TEMPLATES.items() if template.difficulty <= options.max_difficulty
    )
    for _ in range(MAX_DRAWS):
        template = TEMPLATES[rng.choice(named)]
        constants = {name: draw(rng, options.max_constant) for name, draw in template.constants.items()}
        shown, *hidden = _cases(rng, template, constants, options.num_cases + 1)
        if _tell(hidden):
            return _problem(template, constants, shown, hidden)
    raise ConfigError(
        f"tasks.options: in {MAX_DRAWS} draws no {options.num_cases} cases of {', '.join(named)} were found that a "
        "constant does not pass. Raise num_cases."
    )


def _problem(
    template: Template, constants: dict[str, Any], shown: dict[str, Any], hidden: list[dict[str, Any]]
) -> Problem:
    entry = "_".join([template.name, *(str(value) for value in constants.values())])
    opening = _opening(template, entry, constants, shown)
    return Problem(
        kind="mini_code",
        canonical=entry,
        question=complete_this(opening),
        opening=opening,
        gold="".join(f"    {line}\n" for line in _fill(template.body, constants).split("\n")),
        difficulty=float(template.difficulty),
        meta={"mode": "function", "entry_point": entry, "tests": hidden, "prefix": opening, "template": template.name},
    )


def _cases(rng: Random, template: Template, constants: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Different inputs while there are any, each with what comes out."""
    cases: list[dict[str, Any]] = []
    for _ in range(count):
        for _ in range(MAX_DRAWS):
            args = [draw(rng, constants) for draw in template.inputs]
            if all(args != case["args"] for case in cases):
                break
        cases.append({"args": args, "expected": template.compute(*args, **constants)})
    return cases


def _tell(cases: list[dict[str, Any]]) -> bool:
    """Neither a constant nor the first argument is right in all of them."""
    return any(case["expected"] != cases[0]["expected"] for case in cases) and any(
        case["expected"] != case["args"][0] for case in cases
    )


def _opening(template: Template, entry: str, constants: dict[str, Any], shown: dict[str, Any]) -> str:
    call = f"{entry}({', '.join(map(repr, shown['args']))})"
    return (
        f'def {entry}({template.parameters}):\n    """{_fill(template.says, constants)}\n\n'
        f'    >>> {call}\n    {shown["expected"]!r}\n    """\n'
    )


def _fill(text: str, constants: dict[str, Any]) -> str:
    """Put the constants in as Python writes them."""
    return text.format(**{name: repr(value) for name, value in constants.items()})


MINI_CODE = Source(name="mini_code", verifier="code", options=MiniCodeOptions, generate=mini_code, asks_for="program")
