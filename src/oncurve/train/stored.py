"""A step of a recorded run as it was when it was taken: the groups that were sampled, the weights that sampled them.

Nothing is written into the run folder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from torch import Tensor

from oncurve.algo import ObjectiveSettings
from oncurve.config import RunConfig, load_config
from oncurve.learner import Learner, LearnerSettings, list_checkpoints, load_state
from oncurve.model import Policy, Reference, load_policy
from oncurve.model.threads import use_threads
from oncurve.report import Rollout, RunFolder, count_rollouts, read_rollouts
from oncurve.rollout import is_informative
from oncurve.train.checks import recorded, require_same_start
from oncurve.types import Completion, Group, RunError, Task, Verdict


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A policy between two steps, to be handed to any learner of the same model."""

    masters: Mapping[str, Tensor]
    """The trained weights by name, float32 or better."""
    num_updates: int
    """Rollouts learned from so far."""
    num_steps: int
    """Optimiser steps taken so far."""
    coefficients: Mapping[str, Any] | None
    """Of KL and entropy, as the run had steered them; None at the start."""
    origin: str
    """Where they come from, for people."""

    def begin(self, learner: Learner, *, is_own: bool) -> None:
        """Put a new learner where the run was: its weights, its place in the learning rate schedule, no moments.

        Args:
            learner: new; its policy is changed in place.
            is_own: it follows the run's own objective, and so takes the coefficients that the run had steered.
        """
        fresh = learner.state_dict()
        keeps = is_own and self.coefficients is not None
        learner.load_state_dict(
            {
                **fresh,
                "num_updates": self.num_updates,
                "num_steps": self.num_steps,
                "optimizer": {**fresh["optimizer"], "masters": self.masters},
                "coefficients": self.coefficients if keeps else fresh["coefficients"],
            }
        )


class StoredRun:
    """A run that sampled, read from its folder.

    Raises:
        RunError: there is no run, or it sampled nothing.
    """

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder.open(path)
        self.config: RunConfig = load_config(path / "config.toml")
        if self.config.method not in ("online", "collect"):
            raise RunError(
                f'{path} is a run of method "{self.config.method}": it has no rollouts of its own to look at. '
                'Name a run of method "online" or "collect".'
            )

    def groups(self, step: int) -> tuple[list[Group], list[Group]]:
        """What was sampled in ``step``: the groups that were trained on, and those that resampling set aside.

        Raises:
            RunError: the step is not recorded; says which are.
        """
        records = list(read_rollouts(self.folder.path, step))
        if not records:
            raise RunError(f"{self.folder.path} holds no rollouts of step {step}.{self._recorded_steps()}")
        everything = [self._group(list(members)) for _, members in groupby(records, key=lambda record: record.group)]
        if self.config.objective.zero_variance != "resample":
            return everything, []
        primary, tolerance = self.config.reward.primary_name, self.config.objective.advantage.tolerance
        has_signal = [is_informative(group, primary=primary, tolerance=tolerance) for group in everything]
        if not any(has_signal):  # nothing informative within the budget: the run handed all of them to the learner
            return everything, []
        return (
            [group for group, is_kept in zip(everything, has_signal, strict=True) if is_kept],
            [group for group, is_kept in zip(everything, has_signal, strict=True) if not is_kept],
        )

    def policy(self) -> Policy:
        """The starting model, on the threads that the run had.

        Raises:
            ModelError: it is gone or changed.
        """
        use_threads(int(recorded(self.folder, "threads")))
        policy = load_policy(self.config.model, seed=self.config.seed)
        require_same_start(self.folder, policy)
        return policy

    def learner(
        self, policy: Policy, settings: LearnerSettings, objective: ObjectiveSettings, reference: Reference | None
    ) -> Learner:
        """A new learner of this run's rollouts, whatever its objective."""
        return Learner(
            policy,
            settings,
            objective,
            sampling=self.config.rollout.sampling,
            reference=reference,
            primary=self.config.reward.primary_name,
            component_weights=self.config.reward.weights,
        )

    def replay_from(self, step: int) -> tuple[int, Path | None]:
        """The step from which updates must be repeated to have the weights before ``step``, and its checkpoint.

        Without an earlier checkpoint that is step 0, the starting model. A run that only collects has its starting
        model at every step.

        Raises:
            RunError: updates must be repeated and the run had a critic, which its records do not hold.
        """
        if self.config.method == "collect":
            return step, None
        kept = {int(path.name.rpartition("_")[2]): path for path in list_checkpoints(self.folder.checkpoints)}
        start = max((number for number in kept if number <= step), default=0)
        if start < step and self.config.objective.advantage.estimator == "gae":
            raise RunError(
                f"the weights of {self.folder.path} before step {step} are not kept, and the updates from step {start} "
                "on cannot be repeated: they need the critic of that time. Steps with a checkpoint: "
                f"{', '.join(map(str, sorted(kept))) or 'none'}."
            )
        return start, kept.get(start)

    def weights_before(
        self, step: int, policy: Policy, reference: Reference | None, *, note: Callable[[str], None]
    ) -> Weights:
        """The weights that sampled ``step``: of its checkpoint, or of an earlier one and the run's own updates since.

        Repeating an update on the stored rollout gives the run's weights to the bit, on the machine of the run.

        Args:
            step: counted from 0.
            policy: the starting model; it is changed.
            reference: the starting model, for an objective that needs it.
            note: told how much is repeated.

        Raises:
            RunError: a rollout between is missing, or had a critic.
            NumericsError: the stored log-probs do not belong to the weights.
        """
        start, checkpoint = self.replay_from(step)
        where = "the starting model" if checkpoint is None else f"checkpoint {checkpoint.name}"
        if start == step and checkpoint is not None:
            return _weights(load_state(checkpoint)["learner"], where)
        settings = self.config.learner.model_copy(update={"watch_kl_completions": 0})
        objective = self.config.objective if start < step else ObjectiveSettings()
        learner = self.learner(policy, settings, objective, reference)
        if checkpoint is not None:
            learner.load_state_dict(load_state(checkpoint)["learner"])
        if start == step:
            return _weights(learner.state_dict() | {"coefficients": None}, where)
        note(f"step {step} has no checkpoint: {step - start} updates are repeated from {where}")
        for earlier in range(start, step):
            learner.update(self.groups(earlier)[0])
        return _weights(learner.state_dict(), f"{where} and {step - start} repeated updates")

    def _recorded_steps(self) -> str:
        steps = list(count_rollouts(self.folder.path))
        return f" Recorded: {steps[0]} to {steps[-1]}." if steps else " Nothing is recorded yet."

    def _group(self, records: list[Rollout]) -> Group:
        first = records[0]
        return Group(
            task=Task(id=first.task_id, prompt=first.prompt, gold=first.gold, kind=first.kind, verifier="recorded"),
            completions=tuple(self._completion(record) for record in records),
            verdicts=tuple(
                Verdict(
                    status=record.status,
                    reward=record.reward,
                    components=record.components,
                    evidence=record.evidence,
                    cause=record.cause,
                )
                for record in records
            ),
        )

    def _completion(self, record: Rollout) -> Completion:
        return Completion(
            task_id=record.task_id,
            index=record.index,
            prompt_ids=record.prompt_ids,
            token_ids=record.token_ids,
            old_logprobs=record.old_logprobs,
            policy_version=record.policy_version,
            finish_reason=record.finish_reason,
            sampling=self.config.rollout.sampling,
            text=record.text,
            inserted=record.inserted,
        )


def _weights(state: Mapping[str, Any], origin: str) -> Weights:
    """Of a learner's state, copied: what it holds goes on changing."""
    return Weights(
        masters={name: master.clone() for name, master in state["optimizer"]["masters"].items()},
        num_updates=int(state["num_updates"]),
        num_steps=int(state["num_steps"]),
        coefficients=state["coefficients"],
        origin=origin,
    )
