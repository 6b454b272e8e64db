"""RunConfig: the settings of every module, nested, plus the few that belong to the loop."""

from typing import Literal

from pydantic import Field, model_validator

from oncurve.algo import ObjectiveSettings
from oncurve.config.fit import refuse_unfit_objective
from oncurve.config.offline import DpoSettings, SupervisedSettings
from oncurve.evaluate import EvaluationSettings
from oncurve.learner import CriticSettings, LearnerSettings
from oncurve.model import ModelSettings
from oncurve.rollout import RolloutSettings
from oncurve.tasks import TaskSettings
from oncurve.types import Settings
from oncurve.verify import TASK, AnswerSettings, RewardSettings


class RunConfig(Settings):
    """Everything that decides what a run does."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the run folder."""

    method: Literal["online", "collect", "dpo", "sft"] = "online"
    """``online`` samples completions and learns from their rewards; ``collect`` samples and scores them and learns
    nothing; ``dpo`` learns from given pairs, ``sft`` imitates given examples. All of them are measured on the same
    held-out tasks."""

    seed: int = Field(0, ge=0)
    """Every random number of the run comes from a hash that starts with it."""

    steps: int = Field(200, ge=1)
    """Rollouts, each followed by its optimiser steps; of ``dpo`` and ``sft``, optimiser steps."""

    rollout_tokens: int = Field(0, ge=0)
    """The run ends, before its last step, once so many completion tokens were sampled; 0 sets no such limit."""

    threads: int = Field(0, ge=0)
    """CPU threads for tensor work; 0 takes one per core that this process may use."""

    output: str = "runs"
    """Folder in which run folders are made."""

    run_dir: str = ""
    """This run's folder; empty takes the next free one, such as runs/countdown-001."""

    checkpoint_every: int = Field(50, ge=1)
    """Steps between checkpoints; one more is written at the end and on Ctrl-C."""

    keep_checkpoints: int = Field(2, ge=1)
    """Newest checkpoints kept; older ones are removed after a newer one is safe."""

    max_no_verdict_frac: float = Field(0.5, ge=0, le=1)
    """Most of a rollout's completions that may be without a verdict; beyond it the run stops, with a checkpoint."""

    model: ModelSettings = ModelSettings()
    tasks: TaskSettings = TaskSettings()
    rollout: RolloutSettings = RolloutSettings()
    reward: RewardSettings = RewardSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    learner: LearnerSettings = LearnerSettings()
    critic: CriticSettings = CriticSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    dpo: DpoSettings = DpoSettings()
    sft: SupervisedSettings = SupervisedSettings()

    @model_validator(mode="after")
    def _objective_fits_the_run(self) -> "RunConfig":
        if self.method == "online":
            refuse_unfit_objective(self.objective, self.rollout, self.reward, self.learner)
            if self.objective.advantage.estimator != "gae" and self.critic != CriticSettings():
                raise ValueError(
                    "critic does nothing without a critic: it belongs to objective.advantage.estimator = "
                    '"gae" (preset ppo, vapo). Remove the table, or choose that estimator.'
                )
        return self

    @model_validator(mode="after")
    def _warmup_leaves_steps_for_the_policy(self) -> "RunConfig":
        waits = self.critic.warmup_rollouts
        if self.method == "online" and self.objective.advantage.estimator == "gae" and waits >= self.steps:
            raise ValueError(
                f"critic.warmup_rollouts = {waits} leaves none of steps = {self.steps} to the policy: it would end as "
                "it began. Lower critic.warmup_rollouts, or raise steps."
            )
        return self

    @model_validator(mode="after")
    def _data_belong_to_the_method(self) -> "RunConfig":
        unused = "dpo" if self.method != "dpo" and self.dpo != DpoSettings() else ""
        if self.method != "sft" and self.sft.examples is not None:
            unused = "sft.examples"
        if unused:
            wanted = unused.partition(".")[0]
            raise ValueError(
                f'{unused} does nothing with method = "{self.method}". Remove it, or set method = "{wanted}".'
            )
        return self

    @model_validator(mode="after")
    def _pairs_have_a_source(self) -> "RunConfig":
        if self.method == "dpo" and self.dpo.pairs is None and self.dpo.rollouts is None:
            raise ValueError(
                'method = "dpo" learns from pairs, and none are named. Set dpo.pairs to a file of prompt, chosen and '
                "rejected, or dpo.rollouts to the folder of a run whose completions make them."
            )
        return self

    @model_validator(mode="after")
    def _answer_is_read_where_it_is_asked_for(self) -> "RunConfig":
        component = self.reward.components[self.reward.primary_name]
        asked = self.tasks.answer_format
        if asked is None or component.verifier not in (TASK, "answer"):
            return self
        options = component.options.get("answer", {}) if component.verifier == TASK else component.options
        read = AnswerSettings.model_validate(options).carrier
        if read != asked:
            where = f"reward.components.{self.reward.primary_name}.options"
            raise ValueError(
                f'tasks.answer_format asks for the answer as "{asked}", but the verifier reads it as "{read}": none '
                f'would be found. Set carrier = "{asked}" in {where}{".answer" if component.verifier == TASK else ""}.'
            )
        return self

    @model_validator(mode="after")
    def _minibatches_fit(self) -> "RunConfig":
        if self.method == "online" and self.learner.updates_per_rollout > self.rollout.num_prompts:
            raise ValueError(
                f"learner.updates_per_rollout is {self.learner.updates_per_rollout} but a rollout has only "
                f"rollout.num_prompts = {self.rollout.num_prompts} groups, and a group is never split. Lower the first."
            )
        return self
