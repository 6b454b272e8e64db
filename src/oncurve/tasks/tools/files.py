"""Small jobs in a directory of files: rename one, copy one, add two up."""

from random import Random
from typing import Literal

from pydantic import Field

from oncurve.tasks.problem import Problem, Source
from oncurve.tasks.tools.wording import ask_with_tools, solution
from oncurve.types import Settings, Task

Job = Literal["move", "copy", "add"]
_NAMES = "abcdefghijklmnopqrstuvwxyz"
_TOOLS = "list(), read(path), write(path, text), move(source, target), delete(path)"


class FilesOptions(Settings):
    """Which jobs are drawn."""

    jobs: tuple[Job, ...] = Field(("move", "copy"), min_length=1)
    """``move`` takes one call; ``copy`` has to read first, and ``add`` twice: what is in the files stands nowhere in
    the prompt."""

    num_files: int = Field(3, ge=2, le=20)
    """Files in the directory; those that the job does not name must stay as they are."""

    max_number: int = Field(99, ge=1, le=1_000_000)
    """Each file holds a number from 1 to this."""


def files(rng: Random, options: FilesOptions) -> Problem:
    """Draw a directory and a job in it. The names are single letters."""
    *names, target = rng.sample(_NAMES, options.num_files + 1)
    start = {name: str(rng.randint(1, options.max_number)) for name in sorted(names)}
    job = rng.choice(options.jobs)
    first, second = names[:2]
    goal, write = dict(start), {"path": target, "text": start[first]}
    if job == "move":
        text, short = f"Rename the file {first} to {target}.", f"move {first} to {target}\n"
        goal[target] = goal.pop(first)
        calls = [("move", {"source": first, "target": target})]
    elif job == "copy":
        text, short = f"Copy the file {first} to a new file {target}.", f"copy {first} to {target}\n"
        goal[target] = start[first]
        calls = [("read", {"path": first}), ("write", write)]
    else:
        text = f"The files {first} and {second} hold numbers. Write their sum to a new file {target}."
        short = f"add {first} and {second} to {target}\n"
        goal[target] = str(int(start[first]) + int(start[second]))
        reads = [("read", {"path": name}) for name in (first, second)]
        calls = [*reads, ("write", write | {"text": goal[target]})]
    return Problem(
        kind=f"files_{job}",
        canonical=f"{short.strip()}:{','.join(f'{name}={number}' for name, number in start.items())}",
        question=ask_with_tools(text, tools=_TOOLS, example=("read", {"path": "q"})),
        compact=short,
        gold=solution(*calls),
        difficulty=float(len(calls)),
        meta={"environment": {"name": "files", "start": start, "goal": goal}},
    )


def guess_files(rng: Random, task: Task) -> str:
    """The job without looking: a file is renamed to where it should be, a number is written that nobody read."""
    start, goal = (task.meta["environment"][part] for part in ("start", "goal"))
    (target,) = set(goal) - set(start)
    if task.kind == "files_move":
        return solution(("move", {"source": rng.choice(sorted(start)), "target": target}))
    digits = "".join(rng.choice("123456789") for _ in goal[target])
    return solution(("write", {"path": target, "text": digits}))


FILES = Source(
    name="files",
    verifier="environment",
    options=FilesOptions,
    generate=files,
    guess=guess_files,
    has_compact=True,
    asks_for="tools",
)
