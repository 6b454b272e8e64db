"""One run with everything it holds: made new from a config, or resumed from its folder."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oncurve.algo import describe_objective
from oncurve.config import RunConfig, dump_config, load_config, with_absolute_paths
from oncurve.evaluate import evaluate_policy
from oncurve.learner import Learner, UpdateResult, latest_checkpoint, load_state, rollout_metrics, save_checkpoint
from oncurve.model import Policy, load_policy, weights_fingerprint
from oncurve.report import RunFolder, read_metrics
from oncurve.rollout import Collector, Rollout, TorchEngine, collect_informative
from oncurve.tasks import TaskSampler, TaskSet, load_tasks
from oncurve.train.environment import available_cores, describe_environment, use_threads
from oncurve.train.events import Evaluated, Noted, Saved, Stepped
from oncurve.train.findings import inspect_rollout, share_without_verdict
from oncurve.train.plan import require_memory
from oncurve.types import DataError, ModelError, RunError, Task
from oncurve.verify import Scorer, check_golds

GOLDS_CHECKED = 512
"""Golds that must accept themselves before a run starts; ``oncurve check`` goes through all of a file."""


class Session:
    """A run in this process. Make one with ``Session.create`` or ``Session.resume``; close it to end its processes."""

    def __init__(self, config: RunConfig, folder: RunFolder, policy: Policy, tasks: TaskSet) -> None:
        self.config = config
        self.folder = folder
        self.policy = policy
        self.step = 0
        self.saved_step: int | None = None
        self._held_out = tasks.held_out[: config.evaluation.num_tasks]
        self._sampler = TaskSampler(tasks.train, seed=config.seed)
        self._scorer = Scorer(config.reward)
        self._engine = TorchEngine(policy, max_rows=config.rollout.max_rows)
        self._collector = Collector(policy, self._engine, self._scorer, config.rollout, seed=config.seed)
        self.learner = Learner(
            policy,
            config.learner,
            config.objective,
            sampling=config.rollout.sampling,
            primary=config.reward.primary_name,
        )

    @classmethod
    def create(cls, config: RunConfig) -> "Session":
        """Start a new run in a new folder.

        Raises:
            ConfigError, DataError, ModelError: something the run needs cannot be used; no folder is left behind.
            RunError, StorageError: the run folder cannot be made.
        """
        num_threads = config.threads or available_cores()
        use_threads(num_threads)
        tasks = load_tasks(config.tasks, seed=config.seed)
        require_memory(config, row_tokens=config.rollout.sampling.max_tokens + 1)
        policy = load_policy(config.model, seed=config.seed)
        _refuse_unusable(config, policy, tasks)
        folder = RunFolder.create(
            Path(config.run_dir) if config.run_dir else _next_folder(config),
            config_toml=dump_config(with_absolute_paths(config)),
            environment=describe_environment(num_threads=num_threads, weights=weights_fingerprint(policy)),
            formula=formula_of(config),
        )
        folder.lock()
        session = cls(config, folder, policy, tasks)
        session._note(tasks)
        return session

    @classmethod
    def resume(cls, run_dir: Path) -> "Session":
        """Continue a run from its last checkpoint, with the threads and settings it was started with.

        Everything recorded after that checkpoint is dropped and done again.

        Raises:
            RunError: the folder is no run, or its files disagree.
            ModelError: the starting weights are gone or changed: the reference policy would be another one.
        """
        folder = RunFolder.open(run_dir)
        folder.lock()
        config = load_config(run_dir / "config.toml")
        use_threads(int(_recorded(folder, "threads")))
        tasks = load_tasks(config.tasks, seed=config.seed)
        policy = load_policy(config.model, seed=config.seed)
        _require_same_start(folder, policy)
        session = cls(config, folder, policy, tasks)
        checkpoint = latest_checkpoint(folder.checkpoints)
        if checkpoint is not None:
            session._restore(load_state(checkpoint))
        folder.rewind(session.step)
        _require_history(folder, session.step)
        if session.step == config.steps:
            folder.seal(is_final=True)
        if session.step == 0:
            session._note(tasks)
        return session

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self._scorer.close()
        self.folder.unlock()

    def is_evaluation_due(self, step: int) -> bool:
        """True before the first step, after the last, and every ``evaluation.every`` between."""
        every = self.config.evaluation.every
        return step in (0, self.config.steps) or (every > 0 and step % every == 0)

    def evaluate(self, step: int) -> Evaluated:
        """Examine the policy on held-out tasks and record it."""
        started = time.perf_counter()
        settings = self.config.evaluation
        is_full = step in (0, self.config.steps)
        evaluation = evaluate_policy(
            self._engine,
            self._scorer,
            self._held_out,
            self.policy.encode_prompt,
            sampling=self.config.rollout.sampling,
            num_samples=settings.num_samples if is_full else settings.during_samples,
            k=settings.k,
            seed=self.config.seed,
            step=step,
        )
        self.folder.append_evaluation(step, evaluation.as_dict())
        return Evaluated(evaluation=evaluation, seconds=time.perf_counter() - started)

    def collect(self, step: int) -> Rollout:
        """Sample and verify the groups of one step from the weights as they are now."""
        objective, num_prompts = self.config.objective, self.config.rollout.num_prompts

        def collect(tasks: Sequence[Task], round_index: int) -> Rollout:
            return self._collector.collect(
                tasks, policy_version=self.learner.num_steps, step=step, round_index=round_index
            )

        if objective.zero_variance != "resample":
            return collect(self._sampler.take(num_prompts), 0)
        rollout = collect_informative(
            collect,
            self._sampler.take,
            num_prompts=num_prompts,
            extra_rounds=objective.resample_rounds,
            primary=self.config.reward.primary_name,
            tolerance=objective.advantage.tolerance,
        )
        # Nothing informative within the budget: what was sampled is recorded, and teaches nothing.
        return rollout if rollout.groups else replace(rollout, groups=rollout.set_aside, set_aside=())

    def inspect(self, step: int, rollout: Rollout) -> Iterator[Noted]:
        """Record what the rollout shows; stop when too few completions have a verdict to train on the rest.

        Raises:
            RunError: more than ``max_no_verdict_frac`` of the completions have no verdict.
        """
        primary, tolerance = self.config.reward.primary_name, self.config.objective.advantage.tolerance
        findings = inspect_rollout(rollout, primary=primary, tolerance=tolerance)
        limit = self.config.max_no_verdict_frac
        if share_without_verdict(rollout) > limit:
            if self.saved_step != self.step:
                self.checkpoint(self.step)
            raise RunError(
                f"step {step}: {findings[0].message}\nThat is more than max_no_verdict_frac = {limit:g} allows. Mend "
                f"the verifier or the reward function, then continue with `oncurve resume {self.folder.path}`: nothing "
                "is lost. A slow one needs a higher reward.timeout_s."
            )
        for finding in findings:
            self.folder.append_event(step, finding.kind, finding.message, **finding.counts)
            yield Noted(step=step, kind=finding.kind, message=finding.message)

    def update(self, rollout: Rollout) -> UpdateResult:
        """Take the optimiser steps of one rollout, and the time they take."""
        started = time.perf_counter()
        result = self.learner.update(rollout.groups)
        seconds = time.perf_counter() - started
        num_tokens = sum(len(done.token_ids) for group in rollout.groups for done in group.completions)
        times = {"seconds/update": seconds, "tokens_per_second/update": num_tokens / seconds}
        return replace(result, metrics=result.metrics | times)

    def record(self, step: int, rollout: Rollout, update: UpdateResult) -> Stepped:
        """Write what one step did; from here on it counts as done."""
        metrics = {**rollout.metrics(), **update.metrics}
        advantages = [*update.advantages, *([0.0] * len(group.completions) for group in rollout.set_aside)]
        if rollout.set_aside:  # rates describe the policy, not the selection that it is trained on
            metrics |= rollout_metrics(rollout.all_groups, advantages)
        self.folder.append_rollouts(step, rollout.all_groups, advantages)
        self.folder.append_metrics({"step": step, **metrics})
        self.step = step + 1
        return Stepped(step=self.step, metrics=metrics)

    def checkpoint(self, step: int) -> Saved:
        """Make records and weights safe; a kill during this call leaves the checkpoint before it."""
        self.folder.seal(is_final=step == self.config.steps)
        self.folder.sync()
        state = {"step": step, "cursor": self._sampler.cursor, "learner": self.learner.state_dict()}
        path = save_checkpoint(
            self.folder.checkpoints, step, self.policy, state, keep_last=self.config.keep_checkpoints
        )
        self.saved_step = step
        return Saved(step=step, path=path)

    def _restore(self, state: dict[str, Any]) -> None:
        self.step = self.saved_step = int(state["step"])
        self._sampler.cursor = int(state["cursor"])
        self.learner.load_state_dict(state["learner"])

    def _note(self, tasks: TaskSet) -> None:
        for note in tasks.notes:
            self.folder.append_event(0, f"tasks_{note.kind}", note.text, count=note.count)


def _recorded(folder: RunFolder, key: str) -> Any:
    """What ``environment.json`` says the run was started with."""
    try:
        return folder.environment[key]
    except KeyError:
        raise RunError(
            f"{folder.path / 'environment.json'} does not say {key}: it is damaged, and without it the run cannot be "
            "continued to the same result. Start a new run with --model.path and the last checkpoint."
        ) from None


def _require_history(folder: RunFolder, step: int) -> None:
    recorded = [int(row["step"]) for row in read_metrics(folder.path)]
    if recorded != list(range(step)):
        raise RunError(
            f"the checkpoint of {folder.path} is at step {step}, but metrics.jsonl holds {len(recorded)} steps before "
            "it: records are missing. Put the file back, or remove this checkpoint to go on from the one before."
        )


def _require_same_start(folder: RunFolder, policy: Policy) -> None:
    recorded, found = _recorded(folder, "starting_weights"), weights_fingerprint(policy)
    if found != recorded:
        raise ModelError(
            f"the starting model of {folder.path} is no longer what it was (fingerprint {found}, recorded {recorded}). "
            "The reference policy is that starting model: put it back, or start a new run from the last checkpoint."
        )


def _refuse_unusable(config: RunConfig, policy: Policy, tasks: TaskSet) -> None:
    """Find before the first step what would otherwise fail, or silently teach nothing, in the middle of a run."""
    if len(tasks.held_out) < 2:
        raise DataError(
            f"only {len(tasks.held_out)} held-out task(s): nothing could be said of the result. "
            "Add rows, or raise tasks.held_out_fraction."
        )
    if len(tasks.train) < config.rollout.num_prompts:
        raise DataError(
            f"rollout.num_prompts is {config.rollout.num_prompts}, but there are only {len(tasks.train)} different "
            "training prompts. Lower it, or add problems."
        )
    first = list(tasks.train[: min(GOLDS_CHECKED, len(tasks.train))])
    with Scorer(config.reward) as scorer:
        problems = check_golds([*first, *tasks.held_out], scorer)
    if problems:
        shown = "\n".join(f"  {problem.task_id}: {problem.reason}" for problem in problems[:5])
        raise DataError(
            f"{len(problems)} of {len(first) + len(tasks.held_out)} golds are not accepted by their own verifier, "
            f"so no completion of these tasks could be right:\n{shown}\n"
            "`oncurve check` lists them all. Correct or drop these rows, or choose another tasks.verifier."
        )
    room = policy.context_length - config.rollout.sampling.max_tokens
    longest = 0
    for task in (*first, *tasks.held_out):
        length = len(policy.encode_prompt(task.prompt))
        longest = max(longest, length)
        if length > room:
            raise DataError(
                f"the prompt of task {task.id} has {length} tokens; with rollout.sampling.max_tokens = "
                f"{config.rollout.sampling.max_tokens} only {room} fit into the model's context of "
                f"{policy.context_length}. Lower max_tokens, shorten or drop the prompt, or use another model."
            )
    require_memory(config, row_tokens=longest + config.rollout.sampling.max_tokens)


def formula_of(config: RunConfig) -> str:
    """The formula that a run of this config optimises."""
    sampling = config.rollout.sampling
    return str(
        describe_objective(
            config.objective,
            group_size=config.rollout.group_size,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
        )
    )


def _next_folder(config: RunConfig) -> Path:
    """Make the next free folder of this name."""
    output = Path(config.output)
    number = 1
    output.mkdir(parents=True, exist_ok=True)
    while True:
        path = output / f"{config.name}-{number:03d}"
        try:
            path.mkdir()  # of several runs that start at once, one makes it
        except FileExistsError:
            number += 1
        else:
            return path
