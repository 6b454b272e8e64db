"""The loop: what a run records, and that it is the same run again for the same seed."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from oncurve.report import read_evaluations, read_events, read_metrics, read_rollouts, read_seconds_after
from oncurve.train import Evaluated, Noted, Saved, Session, Stepped, train
from oncurve.types import DataError, ModelError, RunError


def run(config) -> list:
    with Session.create(config) as session:
        return list(train(session))


def deterministic(rows) -> list[dict]:
    timed = ("seconds/", "tokens_per_second/", "memory/")
    return [{name: value for name, value in row.items() if not name.startswith(timed)} for row in rows]


def test_a_run_evaluates_before_during_and_after_and_saves_on_the_way(small_config) -> None:
    events = [event for event in run(small_config()) if not isinstance(event, Noted)]
    kinds = [(type(event), event.evaluation.step if isinstance(event, Evaluated) else event.step) for event in events]
    assert kinds == [
        (Evaluated, 0),
        (Stepped, 1),
        (Stepped, 2),
        (Saved, 2),
        (Stepped, 3),
        (Evaluated, 3),
        (Stepped, 4),
        (Saved, 4),
        (Evaluated, 4),
    ]


def test_every_step_is_recorded_with_its_rollouts(small_config) -> None:
    config = small_config()
    run(config)
    rows = list(read_metrics(Path(config.run_dir)))
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    saved = [row["step"] - 1 for row in rows if row.get("seconds/checkpoint", 0.0) > 0]
    assert saved == [step for step in range(3) if (step + 1) % config.checkpoint_every == 0]  # in the row after it
    rollouts = list(read_rollouts(Path(config.run_dir)))
    assert len(rollouts) == 4 * 3 * 4  # steps x prompts x group
    assert {rollout.policy_version for rollout in rollouts if rollout.step == 0} == {0}


def test_the_seconds_of_every_examination_are_recorded_the_last_ones_by_themselves(small_config) -> None:
    config = small_config()
    spent = [event.seconds for event in run(config) if isinstance(event, Evaluated)]
    rows = list(read_metrics(Path(config.run_dir)))
    after = read_seconds_after(config.run_dir, len(rows))
    assert after["seconds/evaluation"] == pytest.approx(spent[-1])
    assert after["seconds/checkpoint"] > 0
    assert sum(row.get("seconds/evaluation", 0.0) for row in rows) == pytest.approx(sum(spent[:-1]))
    assert read_seconds_after(config.run_dir, len(rows) - 1) == {}


def test_the_checkpoint_of_a_stop_is_counted_by_the_step_after_it(small_config) -> None:
    config = small_config("--checkpoint_every", "100")
    with Session.create(config) as session:
        list(train(session, should_stop=lambda: session.step == 2))
    after = read_seconds_after(config.run_dir, 2)
    with Session.resume(Path(config.run_dir)) as session:
        list(train(session))
    rows = list(read_metrics(Path(config.run_dir)))
    assert [row.get("seconds/checkpoint") for row in rows[1:]] == [None, after["seconds/checkpoint"], None]


REQUIRED_METRICS = (
    *("reward/mean", "reward/group_std", "component/correct/mean", "component/correct/group_std"),
    *("component/format/mean", "component/format/group_std"),
    *("groups/all_right", "groups/mixed", "groups/all_wrong", "groups/no_verdict"),
    *("length/p10", "length/p50", "length/p90", "length/truncated_frac"),
    *("kl/reference", "entropy/mean", "clip/low", "clip/high", "ratio/mean", "ratio/min", "ratio/max"),
    *("grad/norm", "gap/mean_abs", "gap/max_abs", "seconds/rollout", "seconds/verify", "seconds/update"),
    *("seconds/verify_busy", "seconds/record", "seconds/evaluation"),  # of the examination before the first step
    *("tokens_per_second/rollout", "tokens_per_second/update"),
)


def test_every_promised_metric_is_recorded(small_config) -> None:
    config = small_config("--steps", "1", "--rollout.num_prompts", "8")
    run(config)
    (row,) = read_metrics(Path(config.run_dir))
    assert [name for name in REQUIRED_METRICS if name not in row] == []


def test_the_first_update_after_a_snapshot_is_on_policy(small_config) -> None:
    config = small_config("--rollout.num_prompts", "8")
    run(config)
    for row in read_metrics(Path(config.run_dir)):
        assert row["gap/mean_abs"] < 1e-4
        if "ratio/max" in row:
            assert row["ratio/max"] == pytest.approx(1.0, abs=1e-3)
            assert (row["clip/low"], row["clip/high"]) == (0.0, 0.0)


def test_a_seed_decides_everything_but_the_timings(small_config, tmp_path) -> None:
    outcomes = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        config = small_config("--run_dir", str(tmp_path / name), "--seed", seed)
        run(config)
        outcomes.append(deterministic(read_metrics(tmp_path / name)))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0] != outcomes[2]


def test_the_checkpoint_loads_in_transformers(small_config) -> None:
    config = small_config()
    *_, saved, _ = run(config)
    model = AutoModelForCausalLM.from_pretrained(saved.path)
    tokenizer = AutoTokenizer.from_pretrained(saved.path)
    ids = tokenizer("4,5,2:11=", return_tensors="pt")
    with torch.inference_mode():
        grown = model.generate(**ids, max_new_tokens=8, do_sample=False)
    assert grown.shape[1] > ids["input_ids"].shape[1]


def test_resampling_fills_the_batch_with_groups_that_carry_a_signal(small_config) -> None:
    config = small_config("--objective.zero_variance", "resample", "--objective.resample_rounds", "5", "--steps", "1")
    run(config)
    (row,) = read_metrics(Path(config.run_dir))
    assert row["groups/rounds"] > 1 or row["groups/accepted_frac"] == 1.0
    rewards: dict[str, set[float]] = {}
    advantages: dict[str, set[float]] = {}
    for rollout in read_rollouts(Path(config.run_dir)):
        rewards.setdefault(rollout.task_id, set()).add(rollout.components["correct"])
        advantages.setdefault(rollout.task_id, set()).add(rollout.advantage)
    # Mixed groups are trained on; the others were sampled too, are recorded, and teach nothing.
    assert {task: len(values) == 2 for task, values in rewards.items()} == {
        task: values != {0.0} for task, values in advantages.items()
    }
    assert sum(len(values) == 2 for values in rewards.values()) == 3


def test_a_budget_that_finds_nothing_informative_teaches_nothing_and_goes_on(small_config, tmp_path) -> None:
    (tmp_path / "reward.py").write_text("def f(prompts, completions, **c):\n    return [0.0] * len(completions)")
    component = ("--reward.components.correct.verifier", f'"{tmp_path}/reward.py:f"')
    config = small_config("--objective.zero_variance", "resample", "--objective.resample_rounds", "1", *component)
    run(config)
    for row in read_metrics(Path(config.run_dir)):
        assert (row["groups/all_wrong"], row["grad/norm"]) == (1.0, 0.0)
    assert len(list(read_rollouts(Path(config.run_dir), 0))) == 2 * 3 * 4  # both rounds


def test_a_model_that_samples_slowly_is_named_once_with_the_reason(small_config, tmp_path) -> None:
    fast = small_config()
    assert "slow_sampling" not in [event.kind for event in run(fast) if isinstance(event, Noted)]
    config = small_config("--run_dir", str(tmp_path / "slow"))
    with Session.create(config) as session:
        session.policy.model.lm_head.register_forward_hook(lambda *_: None)  # somebody listens: its own code has to run
        told = [event for event in train(session) if isinstance(event, Noted) and event.kind == "slow_sampling"]
    assert [event.step for event in told] == [0]
    assert "own code: a hook on Linear" in told[0].message
    assert [row["step"] for row in read_events(config.run_dir) if row["kind"] == "slow_sampling"] == [0]


def test_a_stop_between_steps_leaves_a_checkpoint(small_config) -> None:
    config = small_config()
    with Session.create(config) as session:
        events = list(train(session, should_stop=lambda: session.step == 1))
    assert isinstance(events[-1], Saved)
    assert events[-1].step == 1


def test_a_folder_that_belongs_to_another_run_is_refused(small_config) -> None:
    run(small_config("--steps", "1"))
    with pytest.raises(RunError, match="is not empty"):
        Session.create(small_config("--steps", "1"))


def test_a_resumed_run_needs_its_starting_weights(small_config) -> None:
    config = small_config("--steps", "1")
    run(config)
    path = Path(config.run_dir) / "environment.json"
    environment = json.loads(path.read_text())
    path.write_text(json.dumps(environment | {"starting_weights": "0" * 32}))
    with pytest.raises(ModelError, match="no longer what it was"):
        Session.resume(Path(config.run_dir))


def test_golds_that_reject_themselves_stop_a_run_before_it_starts(small_config, tmp_path) -> None:
    rows = [{"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(40)] + [{"prompt": "9/0=", "answer": "nan"}]
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = small_config().model_dump(mode="json", exclude_none=True)
    config["tasks"] = {"path": str(path)}
    with pytest.raises(DataError, match=r"1 of \d+ golds are not accepted by their own verifier"):
        Session.create(type(small_config()).model_validate(config))


def test_prompts_that_leave_no_room_for_an_answer_are_refused(small_config) -> None:
    with pytest.raises(DataError, match=r"max_tokens = 125 only 3 fit into the model's context of 128"):
        Session.create(small_config("--rollout.sampling.max_tokens", "125"))


def test_evaluations_are_on_disk_in_the_promised_shape(small_config) -> None:
    config = small_config()
    run(config)
    before, during, after = read_evaluations(Path(config.run_dir))
    assert {"greedy", "pass_at_1", "pass_at_k", "k", "interval", "tokens_per_correct"} <= before.keys()
    assert (before["step"], during["step"], after["step"]) == (0, 3, 4)
    assert during["pass_at_1"] is None  # only the greedy answer while the run goes on
    low, high = after["interval"]
    assert low <= after["greedy"] <= high
