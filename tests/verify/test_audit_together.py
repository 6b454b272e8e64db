"""Functions that look sound one by one, and treat a completion otherwise in company."""

from pathlib import Path

import pytest

from oncurve.cli.app import app
from oncurve.verify import RewardSettings
from oncurve.verify.audit import AuditResult, AuditSettings, FunctionTarget, RewardTarget, audit, default_tasks

RIGHT = """
import random, re
def right(text, gold):
    found = re.findall(r"<answer>([^<]*)</answer>", text)
    return float(len(found) == 1 and found[0].strip() == gold and "wrong" not in text and "not" not in text)
def alone(completions, answer, **c):
    return [right(text, gold) for text, gold in zip(completions, answer)]
def mean(completions, answer, **c):
    values = alone(completions, answer)
    return [sum(values) / len(values)]
def centred(completions, answer, **c):
    values = alone(completions, answer)
    return [2 * value - sum(values) / len(values) for value in values]
def first_column(completions, answer, **c):
    return [right(text, answer[0]) for text in completions]
def first_decides(completions, answer, **c):
    values = alone(completions, answer)
    return [value * values[0] for value in values]
def shared(prompts, completions, answer, **c):
    values = alone(completions, answer)
    paid = [sum(v for v, other in zip(values, prompts) if other == prompt) for prompt in prompts]
    return [value / max(1.0, all_of_it) for value, all_of_it in zip(values, paid)]
def drawn(completions, answer, **c):
    return [value + random.random() for value in alone(completions, answer)]
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return right(solution_str, ground_truth)
def compute_scores(data_sources, solution_strs, ground_truths, extra_infos):
    return [{"score": right(text, ground_truths[0])} for text in solution_strs]
class Rubric:
    funcs, weights = [lambda completion, answer: right(completion[-1]["content"], answer)], [1.0]
"""
"""Six tasks in a call: those at 0, 2 and 4 answered rightly, those at 1, 3 and 5 wrongly."""
SETTINGS = AuditSettings(families=("metamorphic",))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rewards.py"
    path.write_text(RIGHT)
    return path


def audited(file: Path, name: str, settings: AuditSettings = SETTINGS) -> AuditResult:
    with FunctionTarget(f"{file}:{name}") as target:
        return audit(target, default_tasks()[:6], settings)


@pytest.mark.parametrize("name", ["alone", "compute_score", "Rubric"])
def test_what_judges_each_by_itself_has_no_fault(file: Path, name: str):
    found = audited(file, name)
    assert (found.together.faults, found.together.notes) == ((), ())
    assert found.together.num_asked > 2 * 6  # six tasks in two orders, and completions of one task
    assert found.passed, found.faults


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("mean", "6 completions in one call get no reward, each alone does: TypeError: 6 completions were given"),
        # alone 2 v - v = v; in the call 2 v - 1/2
        ("centred", "6 of 6 completions get another reward beside those of other tasks (1 alone, 1.5 in the call"),
        ("first_column", "2 of 6 completions get another reward beside those of other tasks (1 alone, 0 in the call"),
        ("compute_scores", "2 of 6 completions get another reward beside those of other tasks (1 alone, 0 in the call"),
        # the last of the six is wrong, and comes first in the other order: the three right ones lose their reward
        ("first_decides", "3 of 6 completions get another reward in another order (1 alone, 0 in the call"),
    ],
)
def test_what_company_changes_is_a_fault(file: Path, name: str, fault: str):
    found = audited(file, name)
    (said,) = found.together.faults
    assert fault in said
    assert said in found.faults
    assert not found.passed


def test_what_company_of_its_own_task_changes_is_told_and_no_fault(file: Path):
    found = audited(file, "shared")
    assert found.together.faults == ()
    (note,) = found.together.notes
    assert "completions get another reward beside others of its task (1 alone, 0.5 in the call" in note
    assert note in found.notes
    assert found.passed, found.faults


def test_what_changes_by_itself_is_told(file: Path):
    (note,) = audited(file, "drawn").together.notes
    assert "6 of 6 completions get another reward when asked again" in note
    assert "It draws at random or remembers" in note


def test_nothing_is_asked_in_company_when_that_is_not_wanted(file: Path):
    found = audited(file, "mean", AuditSettings(families=("metamorphic",), num_together=0))
    assert (found.together.num_asked, found.together.faults) == (0, ())


def test_a_function_of_a_config_is_asked_in_company_too(file: Path):
    reward = RewardSettings.model_validate({"components": {"mine": {"verifier": f"{file}:first_column"}}})
    with RewardTarget(reward, name="a config", task=default_tasks()[0]) as target:
        found = audit(target, default_tasks()[:6], SETTINGS)
    (fault,) = found.together.faults
    assert fault.startswith(f"{file}:first_column: 2 of 6 completions get another reward beside those of other tasks")


def test_the_account_says_it(file: Path, capsys: pytest.CaptureFixture[str]):
    words = ["--families", "metamorphic", "--num-tasks", "6"]
    for name, code, said in (
        ("alone", 0, "completions got the reward that they get alone"),
        ("first_column", 1, "beside those of other tasks"),
    ):
        with pytest.raises(SystemExit) as end:
            app(["audit", f"{file}:{name}", *words])
        assert int(end.value.code or 0) == code
        assert said in capsys.readouterr().out


def test_where_no_gold_is_paid_the_account_does_not_say_what_an_honest_answer_gets(file: Path, capsys):
    file.write_text("def never(completions, **c):\n    return [0.0] * len(completions)\n")
    found = audited(file, "never")
    assert (found.floor, found.full, found.is_full_assumed) == (0.0, 1.0, True)
    with pytest.raises(SystemExit):
        app(["audit", f"{file}:never", "--families", "metamorphic"])
    assert "0 to 1, taken for the honest one since no gold is paid" in capsys.readouterr().out
