"""The sampler: every task once an epoch, nothing twice in a call, one number to resume from."""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncurve.tasks import TaskSampler, TaskSettings, load_tasks
from oncurve.types import DataError, Task


def make_tasks(count: int) -> list[Task]:
    return [Task(id=str(index), prompt="Q", gold="1", kind="toy", verifier="answer") for index in range(count)]


def ids(tasks: list[Task]) -> list[str]:
    return [task.id for task in tasks]


@given(st.integers(1, 30), st.integers(0, 2**63), st.integers(1, 30))
def test_an_epoch_gives_every_task_once(count: int, seed: int, size: int) -> None:
    sampler = TaskSampler(make_tasks(count), seed=seed)
    seen: list[str] = []
    while len(seen) + min(size, count) <= count:
        seen += ids(sampler.take(min(size, count)))
    seen += ids(sampler.take(count - len(seen)))
    assert sorted(seen, key=int) == [str(index) for index in range(count)]
    assert sampler.cursor == count


@given(st.integers(1, 12), st.integers(0, 99), st.lists(st.integers(0, 12), max_size=12))
def test_no_call_and_no_epoch_serves_a_task_twice(count: int, seed: int, sizes: list[int]) -> None:
    sampler = TaskSampler(make_tasks(count), seed=seed)
    served: Counter[str] = Counter()
    for size in sizes:
        size = min(size, count)
        taken = ids(sampler.take(size))
        assert len(taken) == len(set(taken)) == size
        served.update(taken)
        epochs_entered = -(-sampler.cursor // count)
        assert max(served.values(), default=0) <= epochs_entered


@given(st.integers(1, 12), st.integers(0, 99), st.lists(st.integers(0, 12), max_size=8), st.lists(st.integers(0, 12)))
def test_the_cursor_is_the_whole_state(count: int, seed: int, before: list[int], after: list[int]) -> None:
    tasks = make_tasks(count)
    sampler = TaskSampler(tasks, seed=seed)
    for size in before:
        sampler.take(min(size, count))
    resumed = TaskSampler(tasks, seed=seed, cursor=sampler.cursor)
    moved = TaskSampler(tasks, seed=seed)
    moved.take(1)
    moved.cursor = sampler.cursor
    for size in after:
        expected = sampler.take(min(size, count))
        assert resumed.take(min(size, count)) == moved.take(min(size, count)) == expected
    assert resumed.cursor == moved.cursor == sampler.cursor


def test_each_epoch_and_each_seed_has_its_own_order() -> None:
    tasks = make_tasks(50)
    first = TaskSampler(tasks, seed=0)
    one, two = ids(first.take(50)), ids(first.take(50))
    other = ids(TaskSampler(tasks, seed=1).take(50))
    assert len({tuple(order) for order in (one, two, other, ids(tasks))}) == 4


def test_over_many_epochs_tasks_are_served_equally_often() -> None:
    sampler = TaskSampler(make_tasks(10), seed=0)
    counts = Counter(task for _ in range(1000) for task in ids(sampler.take(4)))
    # 4000 draws of 10 tasks; a task sits out at most one turn in each of the about 500 calls that cross an epoch.
    assert all(350 <= count <= 450 for count in counts.values())
    assert len(counts) == 10


def test_an_endless_source_is_walked_and_resumed() -> None:
    tasks = load_tasks(TaskSettings(), seed=0).train
    sampler = TaskSampler(tasks, seed=9)
    assert ids(sampler.take(3)) == [tasks[index].id for index in range(3)]
    cursor = sampler.cursor
    expected = sampler.take(40)
    assert TaskSampler(tasks, seed=9, cursor=cursor).take(40) == expected
    assert len(set(ids(expected))) == 40


def test_an_endless_source_of_few_problems_repeats_none_in_a_call() -> None:
    # Numbers up to 2, one addition: at most three problems in all.
    config = TaskSettings(
        options={"num_numbers": 2, "max_number": 4, "operators": "+"}, num_held_out=2, held_out_fraction=0.5
    )
    sampler = TaskSampler(load_tasks(config, seed=0).train, seed=0)
    for _ in range(20):
        assert len(set(ids(sampler.take(3)))) == 3
    cursor = sampler.cursor
    with pytest.raises(DataError, match=r"11 different tasks are wanted at once, but there are only \d\."):
        sampler.take(11)
    assert sampler.cursor == cursor


def test_more_tasks_than_there_are_is_refused() -> None:
    sampler = TaskSampler([*make_tasks(3), make_tasks(1)[0]], seed=0)
    assert len(sampler.take(3)) == 3
    with pytest.raises(DataError, match=r"4 different tasks .* only 3\. Lower rollout.num_prompts"):
        sampler.take(4)
    with pytest.raises(DataError, match="no tasks"):
        TaskSampler([], seed=0)
    with pytest.raises(ValueError, match="got -1"):
        sampler.take(-1)
    with pytest.raises(ValueError, match="got -2"):
        TaskSampler(make_tasks(2), seed=0, cursor=-2)


def test_tasks_load_without_torch_or_the_optional_packages() -> None:
    code = (
        "import sys; from oncurve.tasks import TaskSettings, load_tasks; load_tasks(TaskSettings(), seed=0);"
        "print(sorted({'torch', 'transformers', 'reasoning_gym', 'pyarrow'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_same_settings_and_seed_give_the_same_tasks_in_another_process() -> None:
    code = (
        "from oncurve.tasks import TaskSettings, load_tasks;"
        "t = load_tasks(TaskSettings(source='letter_count'), seed=3).train;"
        "print([t[i].id for i in range(20)])"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert runs == {f"{ids(list(load_tasks(TaskSettings(source='letter_count'), seed=3).train[:20]))}\n"}
