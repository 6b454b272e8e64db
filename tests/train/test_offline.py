"""Runs on given pairs and examples: records, evaluation, what is left out, what is refused."""

import json
from collections.abc import Callable
from math import log
from pathlib import Path
from typing import Any

import pytest

from oncurve.cli.inspect import explain_config
from oncurve.config import RunConfig, load_config
from oncurve.report import read_evaluations, read_events, read_metrics, read_rollouts, render_report, summarise
from oncurve.tasks import load_tasks, worked_example
from oncurve.train import Evaluated, OfflineSession, OnlineSession, Saved, Session, Stepped, train
from oncurve.types import ConfigError, DataError, RunError
from tests.train.conftest import SMALL

ROLLED = ("--steps", "1", "--rollout.num_prompts", "12", "--rollout.group_size", "6", "--evaluation.num_samples", "1")


@pytest.fixture(scope="module")
def source_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose rollouts make pairs."""
    run_dir = tmp_path_factory.mktemp("source") / "run"
    with Session.create(
        load_config(None, [*SMALL, *ROLLED, "--evaluation.k", "1", "--run_dir", str(run_dir)])
    ) as session:
        assert isinstance(session, OnlineSession)
        list(train(session))
    return run_dir


def run(config: RunConfig) -> list[Any]:
    with Session.create(config) as session:
        assert isinstance(session, OfflineSession)
        return list(train(session))


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def pair_rows(count: int, config: RunConfig) -> list[dict[str, Any]]:
    """Worked examples preferred to their first half."""
    tasks = load_tasks(config.tasks, seed=0).train[:count]
    return [{"prompt": t.prompt, "chosen": worked_example(t), "rejected": worked_example(t)[:9]} for t in tasks]


def dpo_words(path: str, *words: str) -> tuple[str, ...]:
    return ("--method", "dpo", "--dpo.pairs", path, "--dpo.batch_size", "4", *words)


def test_a_dpo_run_leaves_what_every_run_leaves(small_config: Callable[..., RunConfig], source_run: Path) -> None:
    config = small_config("--method", "dpo", "--dpo.rollouts", str(source_run), "--dpo.batch_size", "3")
    events = run(config)
    kinds = [(type(event), event.evaluation.step if isinstance(event, Evaluated) else event.step) for event in events]
    assert kinds == [
        *((Evaluated, 0), (Stepped, 1), (Stepped, 2), (Saved, 2), (Stepped, 3)),
        *((Evaluated, 3), (Stepped, 4), (Saved, 4), (Evaluated, 4)),
    ]
    path = Path(config.run_dir)
    first, *_, last = read_metrics(path)
    assert first["loss/total"] == pytest.approx(log(2))
    assert (first["dpo/margin"], first["drift/kl"]) == (0.0, 0.0)
    promised = ("dpo/accuracy", "dpo/chosen_logprob", "dpo/rejected_logprob", "grad/norm", "learner/lr")
    assert {*promised, "tokens/completion", "seconds/update", "tokens_per_second/update"} <= last.keys()
    assert last["drift/kl"] > 0.0
    assert [row["step"] for row in read_evaluations(path)] == [0, 3, 4]
    assert list(read_rollouts(path)) == []
    assert "−log σ(zᵢ)" in (path / "formula.txt").read_text()


def test_pairs_of_a_run_are_counted_with_what_gave_none(
    small_config: Callable[..., RunConfig], source_run: Path
) -> None:
    config = small_config("--method", "dpo", "--dpo.rollouts", str(source_run), "--dpo.batch_size", "3")
    run(config)
    notes = {event["kind"]: event["data"]["count"] for event in read_events(Path(config.run_dir))}
    groups: dict[int, set[str]] = {}
    for rollout in read_rollouts(source_run):
        groups.setdefault(rollout.group, set()).add(rollout.status)
    silent = sum(len(statuses) == 1 for statuses in groups.values())
    assert notes.get("data_all_wrong", 0) + notes.get("data_all_right", 0) == silent
    assert notes["data_given"] >= len(groups) - silent


def test_dpo_learns_the_pairs_of_a_file(small_config: Callable[..., RunConfig], tmp_path: Path) -> None:
    path = written(tmp_path / "pairs.jsonl", pair_rows(8, small_config()))
    config = small_config(*dpo_words(path, "--learner.lr", "1e-3", "--steps", "8", "--dpo.passes", "9"))
    run(config)
    first, *_, last = read_metrics(Path(config.run_dir))
    assert last["loss/total"] < first["loss/total"]
    assert last["dpo/accuracy"] == 1.0
    assert last["tokens/completion"] > 0


def test_a_run_ends_after_its_passes(small_config: Callable[..., RunConfig], tmp_path: Path) -> None:
    # 9 pairs make 2 batches of 4 a pass; 3 passes make 6 of the 40 steps.
    path = written(tmp_path / "pairs.jsonl", pair_rows(9, small_config()))
    config = small_config(*dpo_words(path, "--steps", "40", "--dpo.passes", "3"))
    *_, saved, evaluated = run(config)
    assert (saved.step, evaluated.evaluation.step) == (6, 6)
    assert load_config(Path(config.run_dir) / "config.toml").steps == 6
    with Session.resume(Path(config.run_dir)) as session:
        assert (session.step, session.config.steps) == (6, 6)


def test_supervised_runs_imitate_the_worked_examples_of_the_source(small_config: Callable[..., RunConfig]) -> None:
    config = small_config("--method", "sft", "--sft.batch_size", "32", "--learner.lr", "5e-4", "--steps", "8")
    run(config)
    first, *_, last = read_metrics(Path(config.run_dir))
    before, *_, after = read_evaluations(Path(config.run_dir))
    assert after["greedy"] > before["greedy"] + 0.2  # it knew both habits, and now prefers to work the answer out
    assert first["drift/kl"] == pytest.approx(0.0, abs=1e-9)
    assert last["drift/kl"] > 0.0
    formula = " ".join((Path(config.run_dir) / "formula.txt").read_text().split())
    assert "8 steps at a learning rate of at most 0.0005" in formula


def test_supervised_runs_learn_the_rows_of_a_file(small_config: Callable[..., RunConfig], tmp_path: Path) -> None:
    tasks = load_tasks(small_config().tasks, seed=0).train[:10]
    path = written(tmp_path / "rows.jsonl", [{"prompt": t.prompt, "completion": worked_example(t)} for t in tasks])
    config = small_config("--method", "sft", "--sft.examples", path, "--sft.batch_size", "5", "--steps", "3")
    run(config)
    row, *_ = read_metrics(Path(config.run_dir))
    assert row["tokens/completion"] > 5 * 20


def test_the_seed_decides_the_batches(small_config: Callable[..., RunConfig], tmp_path: Path) -> None:
    path = written(tmp_path / "pairs.jsonl", pair_rows(16, small_config()))
    seen = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        run(small_config(*dpo_words(path), "--run_dir", str(tmp_path / name), "--seed", seed, "--steps", "2"))
        seen.append([row["dpo/chosen_logprob"] for row in read_metrics(tmp_path / name)])
    assert seen[0] == seen[1] != seen[2]


def test_held_out_prompts_equal_pairs_and_long_rows_are_left_out_and_counted(
    small_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    config = small_config()
    held_out = load_tasks(config.tasks, seed=0).held_out[0].prompt
    rows = pair_rows(4, config)
    odd: list[dict[str, Any]] = [
        {"prompt": held_out, "chosen": "1", "rejected": "2"},
        {"prompt": f" {held_out}", "chosen": "1", "rejected": "2"},
        {"prompt": "1+1=", "chosen": "2", "rejected": "2"},
        {"prompt": "1+1=", "chosen": "2", "rejected": "3" * 200},
    ]
    config = small_config(*dpo_words(written(tmp_path / "pairs.jsonl", [*rows, *odd]), "--steps", "1"))
    run(config)
    notes = {event["kind"]: event["data"]["count"] for event in read_events(Path(config.run_dir))}
    found = {kind: count for kind, count in notes.items() if kind.startswith("data_")}
    assert found == {"data_given": 4, "data_held_out": 2, "data_equal_text": 1, "data_too_long": 1}


def test_too_few_pairs_are_refused_with_what_was_left_out(
    small_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    rows = [*pair_rows(3, small_config()), {"prompt": "1+1=", "chosen": "2", "rejected": "2"}]
    with pytest.raises(DataError, match=r"dpo\.batch_size is 4, but there are only 3 pairs \(left out: 1 pairs of two"):
        Session.create(small_config(*dpo_words(written(tmp_path / "pairs.jsonl", rows))))
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_needs_its_data(small_config: Callable[..., RunConfig], tmp_path: Path) -> None:
    rows = pair_rows(8, small_config())
    path = tmp_path / "pairs.jsonl"
    config = small_config(*dpo_words(written(path, rows)))
    run(config)
    written(path, [*rows[1:], rows[0] | {"chosen": "2"}])
    with pytest.raises(DataError, match=r"is no longer what it was .* the file or the rollouts"):
        Session.resume(Path(config.run_dir))


def test_rollouts_of_another_tokenizer_are_refused(
    small_config: Callable[..., RunConfig], source_run: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "rollouts").mkdir(parents=True)
    (other / "config.toml").write_text("")
    [part] = (source_run / "rollouts").iterdir()
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.read_table(part).to_pylist()
    shifted = [row | {"token_ids": [(token + 1) % 57 for token in row["token_ids"]]} for row in rows]
    pq.write_table(pa.Table.from_pylist(shifted, schema=pq.read_schema(part)), other / "rollouts" / part.name)
    words = ("--method", "dpo", "--dpo.rollouts", str(other), "--dpo.batch_size", "3")
    with pytest.raises(DataError, match="are not those of this model's tokenizer"):
        Session.create(small_config(*words))
    with pytest.raises(RunError, match="is not a run folder"):
        Session.create(small_config("--method", "dpo", "--dpo.rollouts", str(tmp_path)))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "dpo"), r'method = "dpo" learns from pairs, and none are named'),
        (("--dpo.pairs", "a.jsonl", "--dpo.rollouts", "b"), "both name a source of pairs"),
        (("--method", "ppo2"), "method"),
        (("--method", "dpo", "--dpo.pairs", "a.jsonl", "--dpo.gamma", "1.0"), "gamma is the margin of simpo"),
        (("--dpo.bta", "1"), r"Did you mean dpo\.beta"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, list(words))


def test_variants_take_their_published_numbers_from_a_file_and_back(tmp_path: Path) -> None:
    path = tmp_path / "dpo.toml"
    path.write_text('method = "dpo"\n[dpo]\nvariant = "simpo"\npairs = "pairs.jsonl"\n')
    assert (load_config(path).dpo.beta, load_config(path).dpo.gamma) == (2.0, 0.5)


def test_sources_without_worked_examples_say_so_before_the_run(
    small_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    rows = [{"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(40)]
    config = small_config("--method", "sft").model_dump(mode="json", exclude_none=True)
    config["tasks"] = {"path": written(tmp_path / "tasks.jsonl", rows)}
    with pytest.raises(ValueError, match="has no worked example"):
        Session.create(RunConfig.model_validate(config))


@pytest.mark.parametrize("method", ["dpo", "sft"])
def test_the_report_reads_well_without_rollouts(
    method: str, small_config: Callable[..., RunConfig], source_run: Path
) -> None:
    pairs = ("--dpo.rollouts", str(source_run), "--dpo.batch_size", "3")
    config = small_config("--method", method, *(pairs if method == "dpo" else ("--sft.batch_size", "4")))
    run(config)
    path = Path(config.run_dir)
    assert "No rollouts are recorded." not in summarise(path)["missing"]
    page = render_report(path).read_text(encoding="utf-8")
    assert 'href="#rollouts"' not in page
    assert 'id="rollouts"' not in page
    assert "0 completions" not in page
    assert "Drift from the start" in page
    assert ("Preference accuracy" in page) == (method == "dpo")
    assert "Group composition" not in page  # not even as something that is missing


def test_explain_says_what_a_run_on_pairs_would_do(small_config: Callable[..., RunConfig], tmp_path: Path) -> None:
    rows = [*pair_rows(9, small_config()), {"prompt": "1+1=", "chosen": "2", "rejected": "2"}]
    words = dpo_words(written(tmp_path / "pairs.jsonl", rows), "--steps", "40", "--dpo.passes", "3")
    found = explain_config(None, [*SMALL, *words])
    assert "6 optimiser steps of 4 pairs, 2.7 passes over 9" in found.text
    assert "1 pairs of two equal completions: left out." in found.text
    assert (found.data["pairs"], found.data["left_out"], found.data["optimiser_steps"]) == (9, {"equal_text": 1}, 6)
    assert found.data["formula"] in found.text
    assert not (tmp_path / "run").exists()


def test_explain_says_what_a_supervised_run_would_do() -> None:
    found = explain_config(None, [*SMALL, "--method", "sft", "--sft.batch_size", "4"])
    assert "4 optimiser steps of 4 examples, of as many as there are tasks" in found.text
    assert found.data["completion_tokens_first_step"] > 4 * 20
    assert found.data["seconds_total"] > 0
