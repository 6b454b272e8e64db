"""The curriculum: what was seen of the policy decides which of the next tasks are taken."""

from collections import Counter

import pytest
from pydantic import ValidationError

from oncurve.tasks import CurriculumSampler, CurriculumSettings, TaskSampler, TaskSettings, load_tasks
from oncurve.types import DataError, Task


def tasks_of(difficulties):
    return [
        Task(id=f"t{place}", prompt=f"p{place}", gold="", kind="k", verifier="answer", difficulty=difficulty)
        for place, difficulty in enumerate(difficulties)
    ]


def sampler_of(difficulties, seed=0, **settings):
    return CurriculumSampler(tasks_of(difficulties), CurriculumSettings(**settings), seed=seed)


def test_without_a_mode_it_is_the_plain_walk():
    tasks = tasks_of(range(20))
    plain = TaskSampler(tasks, seed=3)
    steered = CurriculumSampler(tasks, CurriculumSettings(), seed=3)
    assert [task.id for task in steered.take(7)] == [task.id for task in plain.take(7)]


def test_difficulty_asks_for_harder_tasks_after_good_rollouts():
    # From 0 a mean reward of 1 moves by 10 * tanh(2 * 0.5) = 7.6: the four nearest of 0..19 are 6, 7, 8, 9.
    sampler = sampler_of(range(20), mode="difficulty", window=5, highest=19.0, step=10.0)
    assert {task.difficulty for task in sampler.take(4)} == {0, 1, 2, 3}
    sampler.observe([], 1.0)
    assert sampler.metrics()["curriculum/target"] == pytest.approx(7.6159, abs=1e-4)
    assert {task.difficulty for task in sampler.take(4)} == {6, 7, 8, 9}
    for _ in range(3):
        sampler.observe([], 0.0)
    assert sampler.metrics()["curriculum/target"] == 0.0  # limited to the lowest


def test_failure_draws_what_the_policy_fails_at():
    sampler = sampler_of([1.0] * 40, mode="failure", window=10, memory=0.0)
    tasks = tasks_of([1.0] * 40)
    sampler.observe([(task, 1.0 if place < 36 else 0.0) for place, task in enumerate(tasks)], 0.9)
    # A task that always succeeds has weight 0, so the four failures are what every window of all 40 gives.
    assert {task.id for task in sampler.take(4)} == {"t36", "t37", "t38", "t39"}


def test_variance_prefers_tasks_at_one_half():
    tasks = tasks_of([1.0] * 8)
    counts: Counter[str] = Counter()
    for seed in range(300):
        sampler = CurriculumSampler(
            tasks, CurriculumSettings(mode="variance", window=8, memory=0.0, variance_floor=0.0), seed=seed
        )
        sampler.observe([(task, 0.5 if place == 0 else 0.1) for place, task in enumerate(tasks)], 0.5)
        counts.update(task.id for task in sampler.take(1))
    # Weight 0.5 against seven times 0.3: one draw in 5.2, so about 58 of 300 with a standard deviation of 6.8.
    assert 35 < counts["t0"] < 85


def test_a_pass_rate_carries_over_to_tasks_of_the_same_kind_and_difficulty():
    tasks = tasks_of([1.0, 1.0, 2.0, 2.0])
    sampler = CurriculumSampler(tasks, CurriculumSettings(mode="failure", window=4, memory=0.0), seed=0)
    sampler.observe([(tasks[0], 1.0), (tasks[2], 0.0)], 0.5)
    # t1 was never seen, but its like always succeeds: weight 0. t3's like always fails.
    assert {task.id for task in sampler.take(2)} == {"t2", "t3"}


def test_rates_are_remembered_as_long_as_memory_says():
    (task,) = tasks_of([1.0])
    sampler = sampler_of([1.0, 2.0], mode="failure", memory=0.75)
    sampler.observe([(task, 1.0)], 1.0)
    sampler.observe([(task, 0.0)], 0.0)
    # 0.75 * 1 + 0.25 * 0, for the task and for its kind.
    assert sampler.metrics()["curriculum/seen_rate"] == 0.75


def test_retired_tasks_come_last():
    tasks = tasks_of([1.0, 2.0, 3.0, 4.0])
    sampler = CurriculumSampler(tasks, CurriculumSettings(mode="variance", window=4, retire_at=0.9), seed=0)
    sampler.observe([(tasks[0], 1.0), (tasks[1], 0.95), (tasks[2], 0.5)], 0.8)
    assert {task.id for task in sampler.take(2)} == {"t2", "t3"}
    assert len(sampler.take(3)) == 3  # one of the retired has to help out


@pytest.mark.parametrize("mode", ["none", "difficulty", "failure", "variance"])
def test_a_resumed_sampler_goes_on_alike(mode):
    whole = sampler_of(range(30), mode=mode, highest=29.0)
    parts = sampler_of(range(30), mode=mode, highest=29.0)
    for step in range(4):
        taken = whole.take(3)
        assert [task.id for task in parts.take(3)] == [task.id for task in taken]
        results = [(task, (step + place) % 3 / 2) for place, task in enumerate(taken)]
        whole.observe(results, 0.7)
        parts.observe(results, 0.7)
        state = parts.state_dict()
        parts = sampler_of(range(30), mode=mode, highest=29.0)
        parts.load_state_dict(state)


def test_it_works_on_an_endless_source():
    tasks = load_tasks(TaskSettings(source="sum"), seed=0).train
    sampler = CurriculumSampler(tasks, CurriculumSettings(mode="variance"), seed=0)
    assert len({task.id for task in sampler.take(16)}) == 16


def test_a_task_without_difficulty_is_named():
    tasks = [Task(id="bare", prompt="", gold="", kind="k", verifier="answer"), *tasks_of([1.0])]
    sampler = CurriculumSampler(tasks, CurriculumSettings(mode="difficulty"), seed=0)
    with pytest.raises(DataError, match=r"task bare has no difficulty.*curriculum.mode"):
        sampler.take(1)


def test_an_empty_range_is_refused():
    with pytest.raises(ValidationError, match="below highest"):
        CurriculumSettings(lowest=3.0, highest=3.0)
