"""Small jobs in a database: set a value, raise all, delete a row."""

from random import Random
from typing import Any, Literal

from pydantic import Field

from oncurve.tasks.problem import Problem, Source
from oncurve.tasks.tools.wording import ask_with_tools, solution
from oncurve.types import Settings, Task

Job = Literal["set", "delete", "raise", "largest"]


class DatabaseOptions(Settings):
    """Which jobs are drawn. There is one table t with the columns id and x."""

    jobs: tuple[Job, ...] = Field(("set", "delete", "raise"), min_length=1)
    """``set`` x in one row, ``delete`` a row, ``raise`` x in every row, or delete the row with the ``largest`` x."""

    num_rows: int = Field(4, ge=2, le=9)
    """Rows; their ids count from 1."""

    max_number: int = Field(99, ge=10, le=1_000_000)
    """Numbers are drawn from 1 to this."""


def database(rng: Random, options: DatabaseOptions) -> Problem:
    """Draw a table and a job in it. No two rows hold the same number."""
    numbers = rng.sample(range(1, options.max_number + 1), options.num_rows)
    rows = [[place + 1, number] for place, number in enumerate(numbers)]
    job, row, number = rng.choice(options.jobs), rng.choice(rows)[0], _other(rng, numbers, options.max_number)
    if job == "set":
        text, short = f"Set x to {number} in the row with id {row}.", f"set {row} to {number}\n"
        query = f"update t set x={number} where id={row}"  # noqa: S608  two numbers of ours
        after = [[i, number if i == row else x] for i, x in rows]
    elif job == "delete":
        text, short = f"Delete the row with id {row}.", f"delete {row}\n"
        query = f"delete from t where id={row}"  # noqa: S608  a number of ours
        after = [[i, x] for i, x in rows if i != row]
    elif job == "raise":
        text, short = f"Raise x by {number} in every row.", f"raise by {number}\n"
        query = f"update t set x=x+{number}"  # noqa: S608  a number of ours
        after = [[i, x + number] for i, x in rows]
    else:
        text, short = "Delete the row with the largest x.", "delete largest\n"
        query = "delete from t where x=(select max(x) from t)"
        after = [[i, x] for i, x in rows if x != max(numbers)]
    return Problem(
        kind=f"database_{job}",
        canonical=f"{short.strip()}:{','.join(map(str, numbers))}",
        question=ask_with_tools(
            f"The table t has the columns id and x. {text}",
            tools="sql(query)",
            example=("sql", {"query": "select * from t"}),
        ),
        compact=short,
        gold=solution(("sql", {"query": query})),
        difficulty=1.0,
        meta={"environment": {"name": "database", "start": _table(rows), "goal": _table(after)}},
    )


def guess_database(rng: Random, task: Task) -> str:
    """Delete some row, whatever the job."""
    rows = task.meta["environment"]["start"]["t"]["rows"]
    return solution(("sql", {"query": f"delete from t where id={rng.choice(rows)[0]}"}))  # noqa: S608  a number of ours


def _other(rng: Random, numbers: list[int], most: int) -> int:
    """A number that no row holds, so that setting it always changes something."""
    return rng.choice([number for number in range(1, min(most, 99) + 1) if number not in numbers])


def _table(rows: list[list[int]]) -> dict[str, Any]:
    """As the environment says its state: rows in the order of their text."""
    return {"t": {"columns": ["id", "x"], "rows": sorted(rows, key=repr)}}


DATABASE = Source(
    name="database",
    verifier="environment",
    options=DatabaseOptions,
    generate=database,
    guess=guess_database,
    has_compact=True,
    asks_for="tools",
)
