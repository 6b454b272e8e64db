"""What a rollout is made of."""

from pydantic import Field, field_validator

from oncurve.rollout.judging import Overlap
from oncurve.rollout.multi_turn import ToolSettings
from oncurve.types import Sampling, Settings


class RolloutSettings(Settings):
    """How many completions a step samples, of how many tasks, and how."""

    num_prompts: int = Field(32, ge=1)
    """P, tasks per rollout."""

    group_size: int = Field(16, ge=1)
    """G, completions per task. A rollout has num_prompts * group_size completions. At least 2 where a completion is
    graded against the others of its group."""

    sampling: Sampling = Sampling()
    """How tokens are drawn. The learner divides by the same temperature."""

    max_rows: int = Field(512, ge=1)
    """Most completions that grow at once; the rest wait. Lower it when memory is short: samples stay the same."""

    overlap: Overlap = "auto"
    """What is verified while others are still sampled: each ``completion``, whole ``group`` s, or ``never`` anything.
    auto: groups for reward functions, never for networks, completions otherwise. Verdicts are the same, except those of
    a reward function that compares completions of different tasks: ``never`` gives it the rollout, ``max_batch`` at a
    time."""

    max_cache_tokens: int = Field(1_000_000, ge=1)
    """Most tokens whose keys and values are held at once: prompts, each counted once for its group, and what their
    completions may still sample. Requests beyond it wait. Lower it when memory is short: samples stay the same."""

    tools: ToolSettings = ToolSettings()
    """Episodes of tool tasks; other tasks have none."""

    @field_validator("sampling")
    @classmethod
    def _is_random(cls, sampling: Sampling) -> Sampling:
        if sampling.temperature == 0.0:
            raise ValueError(
                "temperature must be above 0 in a rollout: greedy decoding gives every completion of a group the same "
                "text, so no group carries a signal. Greedy is for evaluation."
            )
        return sampling
