"""Reward functions that fail: the run says so once, clearly, and nothing is lost."""

import json
from pathlib import Path

import pytest

from oncurve.learner import latest_checkpoint
from oncurve.report import read_events, read_metrics
from oncurve.train import Noted, Session, train
from oncurve.types import RunError

FAILING = {
    "raises": ("def f(prompts, completions, **c):\n    raise KeyError('colour')", "error", "colour"),
    "hangs": ("import time\ndef f(prompts, completions, **c):\n    time.sleep(60)", "timeout", "0.5"),
    "too few": ("def f(prompts, completions, **c):\n    return [1.0]", "bad_value", "1"),
    "nan": ("def f(prompts, completions, **c):\n    return [float('nan')] * len(completions)", "bad_value", "nan"),
    "dies": ("import os\ndef f(prompts, completions, **c):\n    os._exit(3)", "crash", "3"),
}


def words(path: Path) -> tuple[str, ...]:
    component = ("--reward.components.correct.verifier", json.dumps(f"{path}:f"))
    return (*component, "--reward.timeout_s", "0.5", "--evaluation.num_samples", "1", "--evaluation.k", "1")


@pytest.mark.parametrize("fault", FAILING)
def test_a_failing_reward_function_stops_the_run_with_its_cause(fault: str, small_config, tmp_path: Path) -> None:
    source, cause, detail = FAILING[fault]
    (tmp_path / "reward.py").write_text(source)
    config = small_config(*words(tmp_path / "reward.py"))
    with Session.create(config) as session, pytest.raises(RunError) as caught:
        list(train(session))
    message = str(caught.value)
    assert "12 of 12 completions have no verdict" in message
    assert f"{cause} 12" in message
    assert detail in message
    assert f"oncurve resume {config.run_dir}" in message
    assert latest_checkpoint(Path(config.run_dir) / "checkpoints") is not None


def test_after_the_function_is_mended_the_run_goes_on(small_config, tmp_path: Path) -> None:
    path = tmp_path / "reward.py"
    path.write_text(FAILING["raises"][0])
    config = small_config(*words(path))
    with Session.create(config) as session, pytest.raises(RunError):
        list(train(session))
    path.write_text("def f(prompts, completions, **c):\n    return [float(len(text) % 2) for text in completions]")
    with Session.resume(Path(config.run_dir)) as session:
        list(train(session))
    assert [row["step"] for row in read_metrics(Path(config.run_dir))] == [0, 1, 2, 3]


def test_a_component_that_never_gives_a_value_is_noted(small_config, tmp_path: Path) -> None:
    path = tmp_path / "reward.py"
    path.write_text("def f(prompts, completions, **c):\n    return [colour for text in completions]")
    config = small_config("--reward.components.brevity.verifier", json.dumps(f"{path}:f"))
    with Session.create(config) as session:
        notes = [event for event in train(session) if isinstance(event, Noted)]
    mine = [note for note in notes if note.kind == "component_without_value"]
    assert [note.step for note in mine] == [0, 1, 2, 3]
    assert "component brevity gave no value for any of 12 completions" in mine[0].message
    assert "colour" in mine[0].message


def test_a_step_without_signal_is_noted(small_config, tmp_path: Path) -> None:
    path = tmp_path / "reward.py"
    path.write_text("def f(prompts, completions, **c):\n    return [1.0] * len(completions)")
    config = small_config(*words(path))
    with Session.create(config) as session:
        notes = [event for event in train(session) if isinstance(event, Noted)]
    assert [note.kind for note in notes] == ["no_signal"] * 4
    assert "3 of 3 all right" in notes[0].message


def test_a_few_without_verdict_are_counted_by_cause_and_the_run_goes_on(small_config, tmp_path: Path) -> None:
    path = tmp_path / "reward.py"
    path.write_text(
        "def f(prompts, completions, **c):\n    return [None] + [float(len(t) % 2) for t in completions[1:]]"
    )
    config = small_config(*words(path))
    with Session.create(config) as session:
        list(train(session))
    events = [event for event in read_events(Path(config.run_dir)) if event["kind"] == "no_verdict"]
    assert events
    assert events[0]["data"]["unscored"] >= 1
