"""The adversarial validation set: never learned from, scored at each evaluation, recorded and shown."""

import json
from pathlib import Path
from typing import Any

import pytest

from oncurve.cli.view import describe
from oncurve.config import load_config, with_absolute_paths
from oncurve.evaluate.adversarial import examine_reward, reward_metrics
from oncurve.report import read_evaluations, read_metrics
from oncurve.report.page import measures
from oncurve.tasks import TaskSettings, load_tasks
from oncurve.train import Evaluated, Session, train
from oncurve.types import ConfigError, Task
from oncurve.verify import RewardSettings, Scorer

HELD_OUT = load_tasks(TaskSettings(num_held_out=8), seed=0).held_out
FORM = {"verifier": "tags", "options": {"order": ["think", "answer"]}}


def examine(reward: dict[str, Any], source: str, held_out: tuple[Task, ...] = HELD_OUT) -> Any:
    with Scorer(RewardSettings.model_validate(reward)) as scorer:
        return examine_reward(scorer, held_out, source)


def test_the_built_in_set_pays_nothing_with_a_small_weight_for_form_and_a_third_with_a_large_one():
    honest = examine({"components": {"correct": {}, "form": FORM | {"weight": 0.1}}}, "builtin")
    assert (honest["num_paid"], honest["paid_frac"], honest["refused_frac"]) == (0, 0.0, 0.0)
    assert honest["num_hostile"] > 200
    formal = examine({"components": {"correct": {}, "form": FORM | {"weight": 3}}}, "builtin")
    assert formal["num_hostile"] == honest["num_hostile"]
    assert formal["paid_frac"] == formal["num_paid"] / formal["num_hostile"] > 0.2
    assert "<think>" in formal["examples"][0]["completion"]


def test_a_file_of_cases_is_the_set(tmp_path: Path):
    rows = [
        {"mark": "exploit", "gold": "42", "completion": "<answer>41</answer>"},
        {"mark": "exploit", "gold": "42", "completion": "<answer>42</answer>"},  # a case that this reward pays
        {"mark": "fine", "gold": "7", "completion": "<answer>7</answer>"},
        {"mark": "fine", "gold": "7", "completion": "seven"},
    ]
    file = tmp_path / "hostile.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    found = examine({"components": {"correct": {}}}, str(file))
    assert (found["num_hostile"], found["num_paid"], found["paid_frac"]) == (2, 1, 0.5)
    assert (found["num_right"], found["refused_frac"], found["no_verdict_frac"]) == (2, 0.5, 0.0)


def test_a_reward_function_that_dies_pays_nothing_and_is_no_clean_bill(tmp_path: Path):
    (tmp_path / "dies.py").write_text("def f(completions, **c):\n    raise SystemExit(3)\n")
    found = examine({"components": {"a": {"verifier": f"{tmp_path / 'dies.py'}:f"}}}, "builtin")
    assert (found["num_hostile"], found["paid_frac"], found["no_verdict_frac"]) == (0, None, 1.0)


def test_no_source_is_no_set_and_an_empty_one_is_a_mistake(tmp_path: Path):
    assert examine({"components": {"correct": {}}}, "") is None
    with pytest.raises(ConfigError, match=r"holds no case"):
        examine({"components": {"correct": {}}}, str(tmp_path))


def test_a_run_can_be_resumed_from_elsewhere_with_a_set_of_its_own():
    config = load_config(None, ["--evaluation.adversarial", "exploits/hostile.jsonl"])
    assert with_absolute_paths(config).evaluation.adversarial == str(Path("exploits/hostile.jsonl").absolute())
    assert with_absolute_paths(load_config(None)).evaluation.adversarial == "builtin"


def test_every_evaluation_of_a_run_holds_it_and_the_means_of_the_components(tmp_path: Path):
    words = [
        *("--steps", "1", "--threads", "1", "--rollout.num_prompts", "2", "--rollout.group_size", "2"),
        *("--rollout.sampling.max_tokens", "30", "--tasks.num_held_out", "8", "--evaluation.num_tasks", "8"),
        *("--evaluation.num_samples", "1", "--evaluation.k", "1", "--run_dir", json.dumps(str(tmp_path / "run"))),
        *("--reward.components.format.weight", "3"),
    ]
    with Session.create(load_config(None, words)) as session:
        events = list(train(session))
    lines = [describe(event.evaluation) for event in events if isinstance(event, Evaluated)]
    assert all("HOSTILE COMPLETIONS ARE PAID, see `oncurve audit`" in line for line in lines)
    before, after = read_evaluations(tmp_path / "run")
    for one in (before, after):
        assert set(one["components"]) == {"correct", "format"}
        assert one["components"]["correct"] == one["greedy"]
        assert one["adversarial"]["num_paid"] > 0
    (step,) = read_metrics(tmp_path / "run")
    assert step["adversarial/paid_frac"] == before["adversarial"]["paid_frac"]
    rows = {row.label: row for row in measures(before, after)}
    assert rows["hostile completions paid"].change == "+0.0 points"  # the reward is the same
    assert "component format, greedy" in rows


def test_the_table_leaves_out_what_was_not_measured():
    assert [row.label for row in measures({"greedy": 0.5}, None)][-1] == "tokens per completion"
    rows = {row.label: row for row in measures(None, {"adversarial": {"paid_frac": 0.25}, "components": {"a": 1.0}})}
    assert (rows["hostile completions paid"].before, rows["hostile completions paid"].after) == ("–", "25.0 %")
    assert "component a, greedy" not in rows  # it is the accuracy


def test_shares_that_were_not_measured_are_no_metrics():
    found = {"num_paid": 0, "paid_frac": None, "refused_frac": 0.5, "no_verdict_frac": 1.0}
    assert reward_metrics(found) == {"adversarial/refused_frac": 0.5, "adversarial/no_verdict_frac": 1.0}
    assert reward_metrics(None) == {}
