import json
import math
import os
import resource
import shutil
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from run_builder import CONFIG, FORMULA, append_groups, build_run, create_run, evaluation, make_group, make_task

from oncurve.report import (
    RunFolder,
    count_rollouts,
    read_evaluations,
    read_events,
    read_metrics,
    read_rollouts,
)
from oncurve.report.storage import plain
from oncurve.types import Group, Message, NumericsError, RunError, Status, StorageError


def every_file(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def rollout_files(run: RunFolder) -> list[str]:
    return sorted(file.name for file in (run.path / "rollouts").iterdir())


def continue_run(run: RunFolder, first: int, last: int) -> None:
    for step in range(first, last + 1):
        append_groups(run, step, [make_group(step, [1.0, 0.0, None])])
        run.append_metrics({"step": step, "reward/mean": step / 7})
        run.append_event(step, "note", f"step {step}", value=step / 3)
        if step % 5 == 0:
            run.append_evaluation(step, {"greedy": step / 100})


# what is written


def test_a_new_run_holds_what_it_was_given(tmp_path):
    run = create_run(tmp_path / "a" / "b")
    assert (run.config_toml, run.formula, run.environment) == (CONFIG, FORMULA, {"python": "3.11.7", "cpus": 2})
    assert run.checkpoints.is_dir()
    assert RunFolder.open(run.path).config_toml == CONFIG


def test_metrics_are_one_line_a_step_in_a_fixed_order(tmp_path):
    run = create_run(tmp_path / "run")
    run.append_metrics({"reward/mean": 0.1, "step": 0, "clip/low": None, "tokens/completion": np.int64(7)})
    run.append_metrics({"step": 3, "a": np.float32(0.5)})
    text = (run.path / "metrics.jsonl").read_text()
    assert text == ('{"step":0,"clip/low":null,"reward/mean":0.1,"tokens/completion":7}\n' + '{"step":3,"a":0.5}\n')
    assert [row["step"] for row in read_metrics(run)] == [0, 3]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_a_metric_that_is_not_finite_is_refused_by_name(tmp_path, value):
    run = create_run(tmp_path / "run")
    with pytest.raises(NumericsError, match="kl/reference"):
        run.append_metrics({"step": 0, "kl/reference": value})
    assert list(read_metrics(run)) == []


@pytest.mark.parametrize("value", ["0.5", True, [1.0], object()])
def test_a_metric_that_is_not_a_number_is_refused_by_name(tmp_path, value):
    with pytest.raises(ValueError, match="kl/reference"):
        create_run(tmp_path / "run").append_metrics({"step": 0, "kl/reference": value})


@pytest.mark.parametrize("row", [{}, {"step": -1}, {"step": 1.5}, {"step": True}])
def test_metrics_need_a_step(tmp_path, row):
    with pytest.raises(ValueError, match="step must be a whole number"):
        create_run(tmp_path / "run").append_metrics(row)


def test_a_step_is_recorded_once_also_after_reopening(tmp_path):
    run = create_run(tmp_path / "run")
    continue_run(run, 0, 2)
    for again in (run, RunFolder.open(run.path)):
        with pytest.raises(RunError, match="Rewind"):
            again.append_metrics({"step": 2})
        with pytest.raises(RunError, match="Rewind"):
            append_groups(again, 2, [make_group(2, [1.0, 0.0])])


def test_events_and_evaluations_keep_their_data(tmp_path):
    run = create_run(tmp_path / "run")
    run.append_event(4, "dropped", "no verdict", cause="timeout", counts={"b": 1, "a": (1, 2)})
    run.append_evaluation(20, evaluation(20, 0.5))
    run.append_evaluation(3, {"greedy": 0.25})
    run.append_evaluation(3, {"greedy": 0.5})
    event = {"step": 4, "kind": "dropped", "message": "no verdict"}
    assert list(read_events(run)) == [event | {"data": {"cause": "timeout", "counts": {"a": [1, 2], "b": 1}}}]
    assert read_evaluations(run) == [{"step": 3, "greedy": 0.5}, evaluation(20, 0.5)]  # by number: 3 before 20
    with pytest.raises(ValueError, match="step 20 was handed over for step 21"):
        run.append_evaluation(21, evaluation(20, 0.5))
    with pytest.raises(NumericsError, match=r"event gap\.worst\[1\]"):
        run.append_event(5, "gap", "too large", worst=[0.0, math.nan])


def test_only_plain_data_is_recorded():
    with pytest.raises(ValueError, match="x is a set"):
        plain({1}, "x")
    with pytest.raises(ValueError, match="bytes"):
        plain(b"a", "x")


def test_a_recorded_completion_comes_back_exactly(tmp_path):
    run = create_run(tmp_path / "run")
    group = make_group(3, [1.0, 0.1, None], step=5)
    chat = make_group(4, [0.0, 0.0], task=make_task(4, prompt=(Message(role="user", content="十 = ?"),)))
    run.append_rollouts(5, [group, chat], [[1.5, -1.5, 0.0], [0.0, 0.0]])
    rows = list(read_rollouts(run))
    assert [(row.step, row.group, row.index, row.advantage) for row in rows] == [
        (5, 0, 0, 1.5),
        (5, 0, 1, -1.5),
        (5, 0, 2, 0.0),
        (5, 1, 0, 0.0),
        (5, 1, 1, 0.0),
    ]
    for row, completion, verdict in zip(rows, group.completions, group.verdicts, strict=False):
        assert row.old_logprobs == completion.old_logprobs
        assert (row.token_ids, row.prompt_ids) == (completion.token_ids, completion.prompt_ids)
        assert (row.text, row.finish_reason) == (completion.text, completion.finish_reason)
        assert (row.status, row.reward, row.components) == (verdict.status, verdict.reward, verdict.components)
        assert (row.evidence, row.cause, row.policy_version) == (verdict.evidence, verdict.cause, 5)
        assert (row.task_id, row.kind, row.gold, row.prompt) == ("countdown-3", "countdown", "3+7+3", group.task.prompt)
    assert rows[2].status is Status.NO_VERDICT
    assert rows[3].prompt == (Message(role="user", content="十 = ?"),)


def test_advantages_must_fit_the_groups(tmp_path):
    run = create_run(tmp_path / "run")
    with pytest.raises(ValueError, match=r"sizes \[2\] for groups of sizes \[3\]"):
        run.append_rollouts(0, [make_group(1, [1.0, 0.0, 0.0])], [[1.0, -1.0]])
    with pytest.raises(NumericsError, match="task countdown-1, completion 1: advantage"):
        run.append_rollouts(0, [make_group(1, [1.0, 0.0])], [[1.0, math.nan]])


# sealing


def test_sealing_changes_no_record(tmp_path):
    run = build_run(tmp_path / "run", num_steps=45, is_final=False)
    assert rollout_files(run) == [
        "steps_000000-000019.parquet",
        "steps_000020-000039.parquet",
        "steps_000040-000059.jsonl",
    ]
    before, counts = list(read_rollouts(run)), count_rollouts(run)
    run.seal(is_final=True)
    assert rollout_files(run)[-1] == "steps_000040-000059.parquet"
    assert list(read_rollouts(run)) == before
    assert count_rollouts(run) == counts
    assert counts == dict.fromkeys(range(44), 32) | {44: 40}
    for step in (0, 19, 20, 44):
        assert list(read_rollouts(run, step=step)) == [row for row in before if row.step == step]
    assert list(read_rollouts(run, step=1000)) == []


def test_a_sealed_part_is_ordinary_parquet(tmp_path):
    run = build_run(tmp_path / "run", num_steps=20)
    table = pq.read_table(run.path / "rollouts" / "steps_000000-000019.parquet")
    rows = list(read_rollouts(run))
    assert table.column("old_logprobs").to_pylist() == [list(row.old_logprobs) for row in rows]
    assert table.column("reward").to_pylist() == [row.reward for row in rows]


def test_a_sealed_part_takes_no_more_steps_until_it_is_rewound(tmp_path):
    run = create_run(tmp_path / "run")
    continue_run(run, 0, 3)
    run.seal(is_final=True)
    with pytest.raises(RunError, match="Rewind the run to 4"):
        append_groups(run, 4, [make_group(4, [1.0, 0.0])])
    run.rewind(4)
    append_groups(run, 4, [make_group(4, [1.0, 0.0])])
    assert list(count_rollouts(run)) == [0, 1, 2, 3, 4]


def test_a_step_without_groups_is_no_trouble(tmp_path):
    run = create_run(tmp_path / "run")
    append_groups(run, 19, [])
    run.seal(is_final=True)
    append_groups(run, 20, [])
    assert list(read_rollouts(run)) == []
    assert RunFolder.open(run.path).path == run.path
    append_groups(RunFolder.open(run.path), 21, [make_group(1, [1.0, 0.0])])
    assert count_rollouts(run) == {21: 2}


awkward = st.text(st.characters(exclude_categories=())).filter(bool)


@example(texts=["\ud800 a", "b \udfff\ud83d"], number=-0.1, flag=False)
@example(texts=["\ud800 a", "\u2028\r\n"], number=5e-324, flag=True)
@given(texts=st.lists(awkward, min_size=2, max_size=4), number=st.floats(-1e308, 1e308), flag=st.booleans())
def test_text_and_floats_survive_both_stores(tmp_path_factory, texts, number, flag):
    run = create_run(tmp_path_factory.mktemp("any") / "run")
    task = make_task(1, prompt=(Message(role="user", content=texts[0]),) if flag else texts[0], gold=texts[1])
    run.append_rollouts(0, [make_group(1, [0.0] * len(texts), texts=texts, task=task)], [[number] * len(texts)])
    before = list(read_rollouts(run))
    run.seal(is_final=True)
    assert list(read_rollouts(run)) == before
    assert [row.advantage for row in before] == [number] * len(texts)
    assert [row.text for row in before] == [text.encode("utf-8", "backslashreplace").decode() for text in texts]


# rewind


@pytest.mark.parametrize("step", [0, 1, 7, 19, 20, 23, 40])
@pytest.mark.parametrize("sealed", ["never", "finished", "final"])
def test_a_rewound_run_continues_to_the_same_bytes(tmp_path, step, sealed):
    whole = create_run(tmp_path / "whole")
    continue_run(whole, 0, 45)
    whole.seal()
    cut = create_run(tmp_path / "cut")
    continue_run(cut, 0, 41)
    if sealed != "never":
        cut.seal(is_final=sealed == "final")
    with (cut.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step":42,"rew')
    cut = RunFolder.open(cut.path)
    cut.rewind(step)
    assert [row["step"] for row in read_metrics(cut)] == list(range(step))
    assert [row["step"] for row in read_events(cut)] == list(range(step))
    assert [row["step"] for row in read_evaluations(cut)] == list(range(0, step, 5))
    assert list(count_rollouts(cut)) == list(range(step))
    continue_run(cut, step, 45)
    cut.seal()
    assert every_file(cut.path) == every_file(whole.path)


def test_a_torn_rollout_line_is_unseen_and_cut(tmp_path):
    run = create_run(tmp_path / "run")
    continue_run(run, 0, 1)
    part = run.path / "rollouts" / "steps_000000-000019.jsonl"
    whole = part.read_bytes()
    part.write_bytes(whole[:-9])
    assert [(row.step, row.index) for row in read_rollouts(run)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    again = RunFolder.open(run.path)
    again.rewind(1)
    append_groups(again, 1, [make_group(1, [1.0, 0.0, None])])
    assert part.read_bytes() == whole


def test_an_append_after_a_torn_line_starts_a_new_line(tmp_path):
    run = create_run(tmp_path / "run")
    run.append_event(0, "a", "x" * 200_000)
    whole = (run.path / "events.jsonl").read_bytes()
    (run.path / "events.jsonl").write_bytes(whole + b'{"step":1,' + b" " * 100_000)
    run.append_event(1, "b", "")
    assert [event["kind"] for event in read_events(run)] == ["a", "b"]


def test_a_crash_between_sealing_and_removing_shows_each_record_once(tmp_path):
    run = create_run(tmp_path / "run")
    continue_run(run, 0, 19)
    part = run.path / "rollouts" / "steps_000000-000019.jsonl"
    shutil.copy(part, tmp_path / "kept")
    run.seal()
    shutil.copy(tmp_path / "kept", part)
    assert list(count_rollouts(run).values()) == [3] * 20
    run.rewind(10)
    assert list(count_rollouts(run)) == list(range(10))
    assert rollout_files(run) == [part.name]
    shutil.copy(tmp_path / "kept", part)
    run.seal(is_final=True)
    shutil.copy(tmp_path / "kept", part)
    run.rewind(0)
    assert rollout_files(run) == []


def test_leftover_temporary_files_are_nobodys_records(tmp_path):
    run = create_run(tmp_path / "run")
    continue_run(run, 0, 5)
    (run.path / "rollouts" / ".steps_000000-000019.parquet.tmp").write_bytes(b"half")
    (run.path / "eval" / ".step_9.json.tmp").write_bytes(b"{")
    run.seal(is_final=True)
    assert len(read_evaluations(run)) == 2
    assert rollout_files(run) == ["steps_000000-000019.parquet"]


# what the disk and the user do wrong


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match=r"not empty.*oncurve resume"):
        create_run(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("read", [RunFolder.open, lambda path: list(read_metrics(path)), count_rollouts])
def test_a_folder_that_is_no_run_is_refused(tmp_path, read):
    with pytest.raises(RunError, match="is not a run folder"):
        read(tmp_path)


def test_a_path_through_a_file_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        StorageError, match=r"cannot create .*file/run: Not a directory\. A part of this path is a file"
    ):
        create_run(tmp_path / "file" / "run")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device /dev/full of Linux")
def test_a_full_disk_is_one_clear_error(tmp_path):
    run = create_run(tmp_path / "run")
    (run.path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"metrics.jsonl: No space left on device\. Free space there"):
        run.append_metrics({"step": 0})


def test_a_disk_that_fills_up_leaves_whole_records(tmp_path):
    run = create_run(tmp_path / "run")
    continue_run(run, 0, 4)
    before = every_file(run.path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (run.path / "rollouts" / "steps_000000-000019.jsonl").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 700, hard))
    try:
        with pytest.raises(StorageError, match="Free space there"):
            append_groups(run, 5, [make_group(5, [1.0, 0.0, None])])
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
        with pytest.raises(StorageError, match="Free space there"):
            run.append_evaluation(0, {"note": "x" * 1000})
        with pytest.raises(StorageError, match="Free space there"):
            run.seal(is_final=True)
        assert not list(run.path.rglob(".*.tmp"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    run.rewind(5)
    assert every_file(run.path) == before


@pytest.mark.parametrize("line", [b"{broken}\n", b"[1]\n", b"\xff\n"])
def test_a_damaged_line_is_named(tmp_path, line):
    run = create_run(tmp_path / "run")
    continue_run(run, 0, 1)
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(line)
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 3: not "):
        list(read_metrics(run))


def test_damaged_whole_files_are_named(tmp_path):
    run = create_run(tmp_path / "run")
    (run.path / "eval" / "step_3.json").write_text("{")
    with pytest.raises(RunError, match=r"step_3\.json is not JSON"):
        read_evaluations(run)
    (run.path / "eval" / "step_3.json").write_text("[]")
    with pytest.raises(RunError, match=r"step_3\.json is not a JSON object"):
        read_evaluations(run)
    (run.path / "rollouts" / "steps_000000-000019.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(RunError, match="is not a parquet file"):
        list(read_rollouts(run))
    pq.write_table(
        pq.read_table(build_run(tmp_path / "b", num_steps=1).path / "rollouts").select(["step"]),
        (run.path / "rollouts" / "steps_000000-000019.parquet"),
    )
    with pytest.raises(RunError, match="other columns"):
        list(read_rollouts(run))


def test_a_reader_sees_a_run_that_is_still_written(tmp_path):
    run = create_run(tmp_path / "run")
    assert (list(read_metrics(run)), read_evaluations(run), list(read_rollouts(run))) == ([], [], [])
    continue_run(run, 0, 0)
    rows = read_metrics(run)
    assert next(rows)["step"] == 0
    run.append_metrics({"step": 1})
    assert [row["step"] for row in read_metrics(str(run.path))] == [0, 1]


def test_the_clock_is_nowhere_in_a_record(tmp_path):
    group = make_group(1, [1.0, 0.0])
    slower = Group(
        task=group.task,
        completions=tuple(_with_seconds(member, 9.0) for member in group.completions),
        verdicts=tuple(_with_seconds(member, 9.0) for member in group.verdicts),
    )
    files = []
    for name, member in (("a", group), ("b", slower)):
        run = create_run(tmp_path / name)
        append_groups(run, 0, [member])
        run.append_event(0, "note", "text")
        run.sync()
        files.append(every_file(run.path))
    assert files[0] == files[1]


def _with_seconds(item, seconds):
    return type(item)(**{name: getattr(item, name) for name in item.__dataclass_fields__} | {"seconds": seconds})


def test_metrics_lines_are_json_for_everybody(tmp_path):
    run = build_run(tmp_path / "run", num_steps=3)
    for line in (run.path / "metrics.jsonl").read_text().splitlines():
        assert json.loads(line)["seconds/rollout"] > 0


def test_the_half_written_file_of_a_killed_rewind_is_not_continued(tmp_path):
    run = build_run(tmp_path / "run", num_steps=10)  # sealed: the rewind makes JSONL of a parquet part again
    half = run.path / "rollouts" / ".steps_000000-000019.jsonl.tmp"
    half.write_text('{"step":0}\n')
    run.rewind(5)
    assert sorted(count_rollouts(run)) == [0, 1, 2, 3, 4]
    assert len(set(count_rollouts(run).values())) == 1


# a real kill

_WRITER = """
import sys
from pathlib import Path
from run_builder import create_run
from test_run_folder import continue_run
from oncurve.report import RunFolder
run = create_run(Path(sys.argv[1]))
for step in range(10_000):
    continue_run(run, step, step)
    if step % 7 == 6:
        run.seal(is_final=True)
        run.rewind(step + 1)
    print(step, flush=True)
"""


@pytest.mark.parametrize("instant", range(5))
def test_a_killed_run_continues_to_the_same_bytes(tmp_path, instant):
    killed = tmp_path / "killed"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    with Popen([sys.executable, "-c", _WRITER, str(killed)], stdout=PIPE, env=environment) as writer:
        while int(writer.stdout.readline()) < 8 + instant:  # then at any place within a step
            pass
        time.sleep(0.007 * instant)
        writer.kill()
        last = int((b"0\n" + writer.stdout.read()).splitlines()[-1])
    run = RunFolder.open(killed)
    reached = max(last, 8 + instant)
    assert list(count_rollouts(run))[:reached] == list(range(reached))
    run.rewind(reached - 3)
    continue_run(run, reached - 3, reached)
    whole = create_run(tmp_path / "whole")
    continue_run(whole, 0, reached)
    assert every_file(run.path) == every_file(whole.path)
