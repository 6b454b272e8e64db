"""Where the seconds of an update go."""

import time

import pytest

from oncurve.algo import ObjectiveSettings
from oncurve.learner import Learner, LearnerSettings, time_metrics
from oncurve.learner.stopwatch import PARTS
from oncurve.types.stopwatch import Stopwatch
from tests.learner.build import SAMPLING, sample_groups, tiny_policy


def test_names_add_up_because_a_block_belongs_to_the_outermost_one():
    clock = Stopwatch()
    with clock.running("reference"), clock.running("pack"):
        time.sleep(0.02)
    with pytest.raises(ValueError), clock.running("grade"):
        raise ValueError
    with clock.running("grade"):
        time.sleep(0.01)
    found = clock.seconds()
    assert list(found) == ["reference", "grade"]
    assert found["reference"] >= 0.02
    assert found["grade"] >= 0.01
    clock.reset()
    assert clock.seconds() == {}


def test_phases_add_up_to_the_whole_and_parts_lie_within_the_update():
    assert time_metrics(10.0, {"reference": 2.0, "forward": 3.0, "optimizer": 1.0}) == {
        "seconds/reference": 2.0,
        "seconds/update": 8.0,
        "seconds/update/forward": 3.0,
        "seconds/update/optimizer": 1.0,
    }


@pytest.mark.parametrize("family", ["gpt2", "gemma2"])  # the latter does more than its head after the body
def test_the_parts_cover_an_update(family):
    policy = tiny_policy(family)
    learner = Learner(policy, LearnerSettings(), ObjectiveSettings(kl_coef=0.1), sampling=SAMPLING)
    groups = sample_groups(policy, [[1.0, 0.0, 1.0], [0.0, 1.0]])
    started = time.perf_counter()
    seconds = learner.update(groups).seconds
    spent = time.perf_counter() - started
    assert set(seconds) == {"reference", *PARTS} - {"recompute"}
    assert 0.5 * spent < sum(seconds.values()) <= spent
    again = learner.update(sample_groups(policy, [[1.0, 0.0]], seed=1)).seconds
    assert sum(again.values()) < sum(seconds.values()) + spent  # each update is counted from nothing


def test_log_probs_found_ahead_of_the_gradient_are_a_part_of_their_own():
    policy = tiny_policy()
    settings = LearnerSettings(old_logprobs="recompute", updates_per_rollout=2)
    learner = Learner(policy, settings, ObjectiveSettings(), sampling=SAMPLING)
    assert learner.update(sample_groups(policy, [[1.0, 0.0], [1.0, 0.0]])).seconds["recompute"] > 0
