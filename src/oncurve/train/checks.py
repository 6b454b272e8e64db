"""What is refused before a run starts or continues, with what to do about it."""

from collections.abc import Sequence
from typing import Any

from oncurve.config import RunConfig
from oncurve.model import Policy, weights_fingerprint
from oncurve.report import RunFolder, read_metrics
from oncurve.rollout.reward_model import NETWORK_VERIFIERS
from oncurve.types import DataError, ModelError, RunError, Task
from oncurve.verify import Scorer, check_golds


def refuse_unusable_tasks(config: RunConfig, policy: Policy, tasks: Sequence[Task], *, num_held_out: int) -> int:
    """Find before the first step what would otherwise fail, or silently teach nothing, in the middle of a run.

    Args:
        config: reward and sampling.
        policy: its context must hold prompt and completion.
        tasks: to sample for; the held-out ones among them.
        num_held_out: how many held-out tasks there are.

    Returns:
        Tokens of the longest prompt and completion together.

    Raises:
        DataError: too few held-out tasks, a gold that its own verifier rejects, or a prompt that leaves no room.
    """
    if num_held_out < 2:
        raise DataError(
            f"only {num_held_out} held-out task(s): nothing could be said of the result. "
            "Add rows, or raise tasks.held_out_fraction."
        )
    _refuse_rejected_golds(config, tasks)
    return _longest_prompt(config, policy, tasks) + config.rollout.sampling.max_tokens


def _refuse_rejected_golds(config: RunConfig, tasks: Sequence[Task]) -> None:
    with Scorer(config.reward, builders=NETWORK_VERIFIERS) as scorer:
        problems = check_golds(tasks, scorer)
    if problems:
        shown = "\n".join(f"  {problem.task_id}: {problem.reason}" for problem in problems[:5])
        raise DataError(
            f"{len(problems)} of {len(tasks)} golds are not accepted by their own verifier, "
            f"so no completion of these tasks could be right:\n{shown}\n"
            "`oncurve check` lists them all. Correct or drop these rows, or choose another tasks.verifier."
        )


def _longest_prompt(config: RunConfig, policy: Policy, tasks: Sequence[Task]) -> int:
    room = policy.context_length - config.rollout.sampling.max_tokens
    longest = 0
    for task in tasks:
        length = len(policy.encode_prompt(task.prompt))
        longest = max(longest, length)
        if length > room:
            raise DataError(
                f"the prompt of task {task.id} has {length} tokens; with rollout.sampling.max_tokens = "
                f"{config.rollout.sampling.max_tokens} only {room} fit into the model's context of "
                f"{policy.context_length}. Lower max_tokens, shorten or drop the prompt, or use another model."
            )
    return longest


def recorded(folder: RunFolder, key: str) -> Any:
    """What ``environment.json`` says the run was started with.

    Raises:
        RunError: it does not say.
    """
    try:
        return folder.environment[key]
    except KeyError:
        raise RunError(
            f"{folder.path / 'environment.json'} does not say {key}: it is damaged, and without it the run cannot be "
            "continued to the same result. Start a new run with --model.path and the last checkpoint."
        ) from None


def require_history(folder: RunFolder, step: int) -> None:
    """Refuse a checkpoint whose steps are not all in the records. Raises RunError."""
    steps = [int(row["step"]) for row in read_metrics(folder.path)]
    if steps != list(range(step)):
        raise RunError(
            f"the checkpoint of {folder.path} is at step {step}, but metrics.jsonl holds {len(steps)} steps before "
            "it: records are missing. Put the file back, or remove this checkpoint to go on from the one before."
        )


def require_same_start(folder: RunFolder, policy: Policy) -> None:
    """Refuse a starting model that is not the recorded one: the reference would be another. Raises ModelError."""
    known, found = recorded(folder, "starting_weights"), weights_fingerprint(policy)
    if found != known:
        raise ModelError(
            f"the starting model of {folder.path} is no longer what it was (fingerprint {found}, recorded {known}). "
            "The reference policy is that starting model: put it back, or start a new run from the last checkpoint."
        )


def require_same_data(folder: RunFolder, fingerprint: str | None) -> None:
    """Refuse data that are not the recorded ones: the run would go on with other batches. Raises DataError."""
    known = folder.environment.get("data")
    if fingerprint != known:
        raise DataError(
            f"what {folder.path} learns from is no longer what it was (fingerprint {fingerprint}, recorded {known}): "
            "the file or the rollouts of the other run have changed. Put them back, or start a new run with "
            "--model.path and the last checkpoint."
        )
