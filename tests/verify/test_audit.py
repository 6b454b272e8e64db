"""The audit finds planted holes in reward functions of every shape, and nothing in one without holes."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncurve.tasks import TaskSettings, load_tasks
from oncurve.types import ConfigError, Task
from oncurve.verify import Item, RewardSettings
from oncurve.verify.attacks import WRAPPERS, cheap_completions, metamorphic_attacks, mutants, same_value
from oncurve.verify.audit import (
    Answer,
    AuditSettings,
    FunctionTarget,
    RewardTarget,
    audit,
    by_kind,
    default_tasks,
)

STRICT = """
import re
def answer_of(text):
    found = re.findall(r"<answer>([^<]*)</answer>", text.rpartition("</think>")[2])
    return found[0].strip() if len(found) == 1 else None
"""


def target(tmp_path: Path, source: str, name: str, **options: Any) -> FunctionTarget:
    file = tmp_path / "rewards.py"
    file.write_text(STRICT + source)
    return FunctionTarget(f"{file}:{name}", **options)


def kinds(findings: Sequence[Any]) -> set[str]:
    return {kind for _, kind, _ in by_kind(findings)}


def rows(count: int = 6) -> list[Task]:
    return default_tasks()[:count]


# --- our own rewards --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("carrier", ["tag", "box", "hash", "last_line", "text", "json"])
def test_the_answer_verifier_pays_none_of_it(carrier: str):
    reward = {"components": {"correct": {"options": {"answer": {"carrier": carrier}}}}}
    with RewardTarget(RewardSettings.model_validate(reward), name=carrier, task=rows()[0]) as one:
        found = audit(one, rows())
    assert kinds(found.false_accepts) == set()
    assert (found.false_refusals, found.no_verdicts) == ((), {})
    assert found.passed
    assert found.num_right > 20
    assert found.num_wrong > 300


def test_countdown_is_attacked_with_what_its_rows_claim():
    tasks = load_tasks(TaskSettings(num_held_out=6), seed=0).held_out
    with RewardTarget(RewardSettings(), name="countdown", task=tasks[0]) as one:
        found = audit(one, tasks)
    assert found.passed, found.false_accepts[:3]
    assert found.counts["metamorphic"] > 6 * 15
    assert "corpus" not in found.counts
    assert any("corpus was left out" in note for note in found.notes)
    attacks = [a for a in metamorphic_attacks(tasks, WRAPPERS[0]) if a.kind == "claimed target"]
    assert len(attacks) == 6
    assert f"={tasks[0].meta['target']}</think>" in attacks[0].item.text


@pytest.mark.parametrize(("weight", "is_paid"), [(0.5, False), (1.0, True), (4.0, True)])
def test_form_that_pays_as_much_as_being_right_is_found_before_training(weight: float, is_paid: bool):
    # Wrong in perfect form gets w / (1 + w) of what is possible: 1/3, 1/2, 4/5. Half of it counts as paid.
    reward = {
        "components": {
            "correct": {"options": {"answer": {"carrier": "tag"}}},
            "form": {"verifier": "tags", "weight": weight},
        }
    }
    with RewardTarget(RewardSettings.model_validate(reward), name="form", task=rows()[0]) as one:
        found = audit(one, rows(3))
    assert bool(found.false_accepts) == is_paid
    assert found.recipes[0].share == pytest.approx(weight / (1 + weight))
    assert "<think>" in found.recipes[0].completion


# --- functions of users -----------------------------------------------------------------------------------------


def test_a_trl_function_without_holes_passes(tmp_path: Path):
    source = """
from fractions import Fraction
def value(text):
    try:
        return Fraction(text.replace(",", "")) if len(text) < 40 else None
    except (ValueError, ZeroDivisionError):
        return text
def reward(prompts, completions, answer, **columns):
    found = [answer_of(text) for text in completions]
    return [float(one is not None and "e" not in one and value(one) == value(gold)) for one, gold in zip(found, answer)]
"""
    with target(tmp_path, source, "reward") as one:
        assert one.shape == "trl"
        found = audit(one, rows(), AuditSettings(families=("metamorphic", "policy")))
    assert found.passed, (found.faults, found.false_accepts[:3], found.no_verdict_examples)
    assert (found.floor, found.full) == (0.0, 1.0)


def test_a_substring_match_is_found_with_the_exact_strings(tmp_path: Path):
    source = "def reward(completions, answer, **c):\n    return [float(g in t) for g, t in zip(answer, completions)]\n"
    with target(tmp_path, source, "reward") as one:
        found = audit(one, rows())
    assert not found.passed
    assert {"only mentioned", "all candidates", "denied", "a digit more", "retracted"} <= kinds(found.false_accepts)
    denied = next(one for one in found.false_accepts if one.kind == "only mentioned" and one.gold == "42")
    assert denied.completion == "Some say 42. I have not worked it out."
    assert "wrong completions are paid, limit 0" in found.faults[0]


def test_verls_signature_and_a_scale_from_minus_one(tmp_path: Path):
    source = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": 1.0 if answer_of(solution_str) == ground_truth else -1.0, "acc": 1}
"""
    with target(tmp_path, source, "compute_score") as one:
        assert one.shape == "verl"
        found = audit(one, rows(), AuditSettings(families=("metamorphic",)))
    assert (found.floor, found.full) == (-1.0, 1.0)
    assert found.false_accepts == ()
    assert found.passed


def test_a_function_that_pays_the_form_only_is_found_on_any_scale(tmp_path: Path):
    source = "def reward(completions, **c):\n    return [5.0 if '<answer>' in text else -5.0 for text in completions]\n"
    with target(tmp_path, source, "reward") as one:
        found = audit(one, rows(3), AuditSettings(families=("metamorphic", "policy")))
    assert "another task's gold" in kinds(found.false_accepts)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("__import__('time').sleep(60)", "timeout"),
        ("__import__('os')._exit(0)", "crash"),
        ("1 / 0", "error"),
        ("float('nan')", "bad_value"),
        ("None", "unscored"),
    ],
)
def test_a_function_that_fails_has_no_verdict_and_never_a_0(tmp_path: Path, body: str, cause: str):
    source = f"def reward(completions, **c):\n    return [{body} for text in completions]\n"
    with target(tmp_path, source, "reward", timeout_s=0.3) as one:
        one.max_failures = 2
        found = audit(one, rows(2), AuditSettings(families=("metamorphic",)))
    assert not found.passed
    assert (found.num_right, found.num_wrong, found.false_accepts, found.false_refusals) == (0, 0, (), ())
    assert set(found.no_verdicts) <= {cause, "not_asked"}
    assert sum(found.no_verdicts.values()) == found.counts["metamorphic"]


def test_one_hanging_row_costs_itself_only(tmp_path: Path):
    source = """
import time
def reward(completions, answer, **c):
    if "not 42" in completions[0]:
        time.sleep(60)
    return [float(answer_of(text) == gold) for text, gold in zip(completions, answer)]
"""
    with target(tmp_path, source, "reward", timeout_s=0.5) as one:
        found = audit(one, rows(3), AuditSettings(families=("metamorphic",)))
    assert found.no_verdicts == {"timeout": 2}  # "denied" and "denied before another"
    assert found.false_accepts == ()


def test_the_function_does_not_run_in_this_process(tmp_path: Path):
    source = f"import os\ndef reward(completions, **c):\n    return [float(os.getpid() == {os.getpid()})]\n"
    with target(tmp_path, source, "reward") as one:
        assert one.ask([Item(task=rows()[0], text="x")]) == [Answer(0.0)]


def test_a_rubric_is_the_weighted_sum_of_its_functions_and_its_errors_are_no_zeros(tmp_path: Path):
    source = """
class Parser: pass
class Rubric:
    def __init__(self):
        self.funcs, self.weights, self.parser = [right, form], [1.0, 0.25], Parser()
async def right(completion, answer, state):
    if "1 / 0" in completion[-1]["content"]:
        raise ValueError("broken")
    return answer_of(completion[-1]["content"]) == answer
def form(parser, **kwargs):
    return 1.0
class Environment:
    rubric = Rubric()
def load_environment(**settings):
    return Environment()
"""
    items = [
        Item(task=rows()[0], text=text)
        for text in ("<answer>42</answer>", "<answer>41</answer>", "<answer>1 / 0</answer>")
    ]
    for name in ("Rubric", "load_environment", "Environment"):
        with target(tmp_path, source, name) as one:
            assert one.shape == "verifiers"
            right, wrong, failed = one.ask(items)
        assert (right.reward, wrong.reward) == (1.25, 0.25)
        assert (failed.reward, failed.cause) == (None, "error")
        assert "broken" in failed.evidence


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.py:reward", "there is no file"),
        ("rewards", "expected path/to/file.py:function"),
        ("no_such_module_at_all:Rubric", "cannot be loaded.*there is no module no_such_module_at_all"),
        ("json:Rubric", "json has no Rubric. It has: .*dumps, load, loads$"),
        ("math:pi", "neither a function nor a rubric"),
    ],
)
def test_what_cannot_be_audited_is_refused_with_the_reason(name: str, message: str):
    with pytest.raises(ConfigError, match=message):
        FunctionTarget(name)


def test_a_file_that_is_no_function_is_refused_with_the_place(tmp_path: Path):
    (tmp_path / "rewards.py").write_text("\ndef honest(completions, **c): return [0.0]\ndef f(x:\n    pass")
    (tmp_path / "rows.jsonl").write_text("{}")
    for name, message in (
        ("rewards.py", r"SyntaxError: '\(' was never closed \(rewards.py, line 3\)$"),
        ("rows.jsonl", r"rows.jsonl is no Python file. Write path/to/file.py:function"),
        ("", r"is no Python file"),
    ):
        with pytest.raises(ConfigError, match=message):
            FunctionTarget(f"{tmp_path / name}:f")
    (tmp_path / "rewards.py").write_text("def honest(completions, **c): return [0.0]")
    with pytest.raises(ConfigError, match=r"rewards.py has no f. It has: honest$"):
        FunctionTarget(f"{tmp_path / 'rewards.py'}:f")


# --- the attacks themselves -------------------------------------------------------------------------------------


def test_changes_that_leave_the_value_alone_are_no_attacks():
    tasks = [
        Task(id=str(number), prompt=f"p{number}", gold=gold, kind="k", verifier="answer")
        for number, gold in enumerate(["0", "0.0", "-3", "yes"])
    ]
    attacks = list(metamorphic_attacks(tasks, WRAPPERS[-1]))
    texts = {(attack.item.task.gold, attack.kind): attack.item.text for attack in attacks}
    assert ("0", "negated") not in texts
    assert texts["-3", "negated"] == "3"
    assert ("yes", "negated") not in texts
    assert texts["0", "another task's gold"] not in ("0", "0.0")  # 0.0 is the same answer
    assert texts["-3", "one more"] == "-2"
    assert len({attack.id for attack in attacks}) == len(attacks)


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_no_attack_on_whole_numbers_states_the_gold_as_its_only_answer(one: int, other: int):
    tasks = [
        Task(id="a", prompt="first", gold=str(one), kind="k", verifier="answer"),
        Task(id="b", prompt="second", gold=str(other), kind="k", verifier="answer"),
    ]
    for attack in metamorphic_attacks(tasks, WRAPPERS[-1]):
        if not attack.is_right:
            assert not same_value(attack.item.text, attack.item.task.gold), attack


def test_recipes_are_the_same_for_every_task_and_state_what_they_say():
    first, second = (list(cheap_completions(task)) for task in rows(2))
    assert [cheap.recipe for cheap in first] == [cheap.recipe for cheap in second]
    assert len({cheap.recipe for cheap in first}) == len(first)
    assert next(c for c in first if c.recipe == "constant 10 (box)").text == "\\boxed{10}"
    assert next(c for c in first if c.recipe == "constant 10 (box)").answer == "10"
    assert len(next(c for c in first if c.recipe == "longest").text) == 20_000


def test_mutants_differ_from_the_reference_and_say_where():
    gold = "def f(x):\n    if x > 1:\n        return x + 1\n    return 0\n"
    found = mutants(Task(id="m", prompt="", gold=gold, kind="k", verifier="code"))
    assert {"line 2: Gt to LtE", "line 3: Add to Sub", "line 4: 0 to 1", "line 3: return None"} <= {
        mutant.change for mutant in found
    }
    assert gold not in {mutant.source for mutant in found}
    assert len({mutant.source for mutant in found}) == len(found)
    assert mutants(Task(id="m", prompt="", gold="not python (", kind="k", verifier="code")) == []


def test_weak_tests_let_mutants_pass_and_strong_ones_do_not():
    def task(tests: list[dict[str, Any]], name: str) -> Task:
        meta = {"mode": "function", "entry_point": "f", "tests": tests}
        gold = "def f(x):\n    return x + 1 if x > 0 else 0\n"
        return Task(id=name, prompt="increment", gold=gold, kind="k", verifier="code", meta=meta)

    weak = task([{"args": [-5], "expected": 0}], "weak")
    strong = task([{"args": [x], "expected": x + 1 if x > 0 else 0} for x in (-5, 0, 1, 2, 9)], "strong")
    passed = {}
    for one in (weak, strong):
        with RewardTarget(RewardSettings(), name="code", task=one) as reward:
            found = audit(reward, [one], AuditSettings(families=("program",)))
        assert found.false_refusals == ()
        assert found.false_accepts == ()
        passed[one.id] = (len(found.mutants_passed), found.num_mutants, found.passed)
    assert passed["strong"][0] == 0
    assert passed["strong"][2]
    assert passed["weak"][0] >= 2
    assert not passed["weak"][2]


def test_the_account_is_plain_data(tmp_path: Path):
    source = "def reward(completions, **c):\n    return [1.0]\n"
    with target(tmp_path, source, "reward") as one:
        found = audit(one, rows(2), AuditSettings(num_policy_tasks=1))
    again = json.loads(json.dumps(found.as_dict()))
    assert again["passed"] is False
    assert again["num_asked"] == again["num_right"] + again["num_wrong"] == sum(again["counts"].values())
    assert len(again["false_accepts"]) == again["num_wrong"]
