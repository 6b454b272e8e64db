"""Who gets which cores: threads for tensor work, processes for verifiers, as a run's settings say."""

import pytest

from oncurve.config import load_config
from oncurve.model.threads import available_cores
from oncurve.train.cores import plan_cores


def plan(*words: str):
    return plan_cores(load_config(None, words))


def test_without_settings_everybody_may_use_every_core():
    found = plan()
    assert (found.cores, found.tensor_threads, found.verifier_processes) == (available_cores(),) * 3
    assert found.judged_while_sampling == "completion"
    assert "by whole completions while others are sampled" in found.sentence()


def test_threads_are_those_of_the_engine_and_the_learner():
    assert plan("--threads", "1").tensor_threads == 1
    assert plan("--threads", "1").verifier_processes == available_cores()


@pytest.mark.parametrize(
    ("components", "processes"),
    [
        ({"a": {"verifier": "code", "options": {"sandbox": {"num_workers": 3}}}}, 3),
        ({"a": {"verifier": "task", "options": {"code": {"sandbox": {"num_workers": 5}}}}}, 5),
        ({"a": {"verifier": "answer", "options": {"num_workers": 7}}}, 7),
        ({"a": {"verifier": "task", "options": {"answer": {"num_workers": 6}}}}, 6),
        ({"a": {"verifier": "mine.py:score"}}, 1),  # calls of a function follow each other unless it says otherwise
        ({"a": {"verifier": "mine.py:score", "options": {"num_workers": 400}}, "b": {"verifier": "countdown"}}, 400),
        ({"a": {"verifier": "mine.py:score", "options": {"num_workers": 0}}}, available_cores()),
    ],
)
def test_a_pool_has_the_processes_that_its_options_name(components, processes):
    config = load_config(None)
    reward = type(config.reward).model_validate({"components": components})
    assert plan_cores(config.model_copy(update={"reward": reward})).verifier_processes == processes


def test_the_plan_says_when_nothing_is_judged_while_sampling():
    found = plan("--rollout.overlap", "never")
    assert found.judged_while_sampling == "rollout"
    assert "which judges after sampling" in found.sentence()
