"""The calling conventions of trainers, as their own code calls: what they pass, and what functions make of it."""

from pathlib import Path

import pytest

from oncurve.verify import Item
from oncurve.verify.audit import FunctionTarget, default_tasks

ITEM = Item(task=default_tasks()[0], text="<answer>1</answer>")


def ask(tmp_path: Path, source: str, name: str, **options: float) -> tuple[str, float | None]:
    file = tmp_path / "rewards.py"
    file.write_text(source)
    with FunctionTarget(f"{file}:{name}", **options) as target:
        (answer,) = target.ask([ITEM])
        assert answer.cause == "", answer.evidence
        return target.shape, answer.reward


@pytest.mark.parametrize(
    "source",
    [
        "def f(data_source, solution_str, ground_truth, extra_info=None, **kwargs): return 0.5",
        "async def f(data_source, solution_str, ground_truth, extra_info): return {'score': 0.5, 'acc': True}",
        "def f(data_sources, solution_strs, ground_truths, extra_infos): return [0.5 for _ in solution_strs]",
        "def f(data_sources, solution_strs, ground_truths, extra_infos): return [{'score': 0.5}]",
    ],
)
def test_verl(tmp_path: Path, source: str):
    assert ask(tmp_path, source, "f") == ("verl", 0.5)


@pytest.mark.parametrize(
    "source",
    [
        "def f(prompts, completions, completion_ids, trainer_state, **kwargs): return [0.5] * len(prompts)",
        "async def f(completions, solution, log_metric, **kwargs):\n    log_metric('x', 1.0)\n    return [0.5]",
        "class F:\n    __name__ = 'f'\n    def __call__(self, completions, **kwargs): return [0.5]\nf = F()",
    ],
)
def test_trl(tmp_path: Path, source: str):
    assert ask(tmp_path, source, "f") == ("trl", 0.5)


RUBRIC = """
class Rubric:
    weights = [1.0, 10.0, 100.0, 1000.0]
    parser = None
    def __init__(self):
        self.funcs = [self.turns, self.attributes, self.mapping, self.group]
    async def turns(self, state): return len(state["trajectory"])
    def attributes(self, completion): return completion[-1].content.count("<answer>")
    def mapping(self, completion, prompt): return completion[-1]["content"].count("1")
    def group(self, completions, answers, states): return [1.0 for _ in completions]
class Environment:
    rubric = Rubric()
def load_environment(): return Environment()
"""


def test_a_rubric_reads_the_state_that_an_environment_leaves(tmp_path: Path):
    assert ask(tmp_path, RUBRIC, "load_environment") == ("verifiers", 1111.0)


def test_an_import_may_take_longer_than_a_call(tmp_path: Path):
    source = "import time\ntime.sleep(2)\ndef f(completions, **kwargs): return [0.5]"
    assert ask(tmp_path, source, "f", timeout_s=1.0) == ("trl", 0.5)
