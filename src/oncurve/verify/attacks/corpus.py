"""The built-in corpus: questions with one right answer, and what has been tried in the place of it."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from oncurve.types import Task
from oncurve.verify.attacks.attack import Attack, attack_item
from oncurve.verify.attacks.wrappers import Wrapper

_PLACE = re.compile(r"⟦(.*?)⟧", re.DOTALL)


@cache
def corpus_rows() -> tuple[Mapping[str, Any], ...]:
    """The rows: ``kind``, ``gold``, ``completion`` with ⟦answer⟧ where an answer stands, ``expect``, ``why``."""
    text = files("oncurve.verify.attacks").joinpath("corpus.jsonl").read_text(encoding="utf-8")
    return tuple(json.loads(line) for line in text.splitlines() if line.strip())


def corpus_attacks(wrapper: Wrapper, meta: Mapping[str, Any] | None = None) -> Iterator[Attack]:
    """The corpus, with every answer stated as ``wrapper`` does.

    Args:
        wrapper: how the reward function wants answers.
        meta: columns that a reward function expects of its rows.
    """
    for index, row in enumerate(corpus_rows()):
        task = Task(
            id=f"corpus-{index}",
            prompt=row.get("prompt", "Solve the problem."),
            gold=row["gold"],
            kind=row["kind"],
            verifier="answer",
            meta=dict(meta or {}),
        )

        def place(match: re.Match[str], task: Task = task) -> str:
            return wrapper.place(task, match.group(1))

        before = "" if row["completion"].startswith("<think>") else wrapper.before
        yield Attack(
            id=f"corpus/{row['kind']}/{index}",
            family="corpus",
            kind=row["kind"],
            item=attack_item(task, before + _PLACE.sub(place, row["completion"])),
            is_right=row["expect"],
            why=row["why"],
        )
