"""RunConfig: the settings of every module, nested, plus the few that belong to the loop."""

from pydantic import Field, model_validator

from oncurve.algo import ObjectiveSettings
from oncurve.evaluate import EvaluationSettings
from oncurve.learner import LearnerSettings
from oncurve.model import ModelSettings
from oncurve.rollout import RolloutSettings
from oncurve.tasks import TaskSettings
from oncurve.types import Settings
from oncurve.verify import TASK, AnswerSettings, RewardSettings


class SupervisedSettings(Settings):
    """Supervised warm start on worked examples (``oncurve sft``)."""

    steps: int = Field(300, ge=1)
    """Optimiser steps."""

    batch_size: int = Field(128, ge=1)
    """Worked examples a step."""

    guess_frac: float = Field(0.0, ge=0, lt=1)
    """Share of the examples that guess instead of working the answer out. A model warm-started so has a bad habit
    beside a good one, as after pretraining on text of mixed quality; which of the two pays is for GRPO to find out."""

    lr: float = Field(3e-3, gt=0)
    """Peak learning rate, reached after a twentieth of the steps; from there it falls linearly to zero."""

    def learner_changes(self) -> dict[str, float | int]:
        """The learner's settings for this phase, where they differ from those of the run."""
        return {"lr": self.lr, "warmup_steps": max(1, self.steps // 20), "decay_steps": self.steps, "beta2": 0.95}


class RunConfig(Settings):
    """Everything that decides what a run does."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the run folder."""

    seed: int = Field(0, ge=0)
    """Every random number of the run comes from a hash that starts with it."""

    steps: int = Field(200, ge=1)
    """Rollouts, each followed by its optimiser steps."""

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
    evaluation: EvaluationSettings = EvaluationSettings()
    sft: SupervisedSettings = SupervisedSettings()

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
        if self.learner.updates_per_rollout > self.rollout.num_prompts:
            raise ValueError(
                f"learner.updates_per_rollout is {self.learner.updates_per_rollout} but a rollout has only "
                f"rollout.num_prompts = {self.rollout.num_prompts} groups, and a group is never split. Lower the first."
            )
        return self
