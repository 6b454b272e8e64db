"""Supervised warm start: token-mean likelihood of worked examples, so that GRPO finds something right to reinforce."""

from collections.abc import Iterator
from dataclasses import replace

from oncurve.config import RunConfig
from oncurve.learner import SupervisedLearner
from oncurve.model import Policy, fresh_embedded_policy, load_policy
from oncurve.tasks import TaskSampler, guessed_example, load_tasks
from oncurve.train.examples import Example, encode_example, encode_worked
from oncurve.types import Task, unit_interval
from oncurve.verify.environments import Stage, environment_of

EMBEDDED = "embedded"


def starting_policy(config: RunConfig) -> Policy:
    """What the warm start begins with: random weights for the embedded model, the model itself otherwise."""
    if config.model.path == EMBEDDED:
        return fresh_embedded_policy(config.seed)
    return load_policy(config.model, seed=config.seed)


def warm_start(config: RunConfig, policy: Policy) -> Iterator[tuple[int, float]]:
    """Train ``policy`` on worked examples of the training split; yields (steps done, loss in nats a token).

    Raises:
        ValueError: the task source has no worked examples.
    """
    settings = config.sft
    learner = SupervisedLearner(policy, config.learner.model_copy(update=settings.learner_changes()))
    sampler = TaskSampler(load_tasks(config.tasks, seed=config.seed).train, seed=config.seed)
    with Stage() as stage:
        for step in range(1, settings.steps + 1):
            tasks = sampler.take(settings.batch_size)
            metrics = learner.update([_example(config, policy, task, stage) for task in tasks])
            yield step, metrics["loss/supervised"]


def _example(config: RunConfig, policy: Policy, task: Task, stage: Stage) -> Example:
    is_guess = unit_interval("sft", config.seed, task.id) < config.sft.guess_frac
    if is_guess and environment_of(task) is None:
        return encode_example(policy, task, guessed_example(task, seed=config.seed))
    done = replace(task, gold=guessed_example(task, seed=config.seed)) if is_guess else task
    return encode_worked(policy, done, stage)
