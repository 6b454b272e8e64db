"""What a rollout is made of."""

from pydantic import Field, field_validator

from oncurve.types import Sampling, Settings


class RolloutSettings(Settings):
    """How many completions a step samples, of how many tasks, and how."""

    num_prompts: int = Field(32, ge=1)
    """P, tasks per rollout."""

    group_size: int = 16
    """G, completions per task, at least 2. A rollout has num_prompts * group_size completions."""

    sampling: Sampling = Sampling()
    """How tokens are drawn. The learner divides by the same temperature."""

    max_rows: int = Field(512, ge=1)
    """Most completions that grow at once; the rest wait. Lower it when memory is short: samples stay the same."""

    @field_validator("group_size")
    @classmethod
    def _has_a_baseline(cls, group_size: int) -> int:
        if group_size < 2:
            raise ValueError(
                f"group_size must be at least 2, got {group_size}. A completion is graded against the others of its "
                "group, and a group of one has no others: its advantage would always be 0."
            )
        return group_size

    @field_validator("sampling")
    @classmethod
    def _is_random(cls, sampling: Sampling) -> Sampling:
        if sampling.temperature == 0.0:
            raise ValueError(
                "temperature must be above 0 in a rollout: greedy decoding gives every completion of a group the same "
                "text, so no group carries a signal. Greedy is for evaluation."
            )
        return sampling
