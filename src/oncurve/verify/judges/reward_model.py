"""Settings of a reward model. The model itself needs torch: ``oncurve.rollout.reward_model`` runs it."""

from pathlib import Path
from typing import Literal, NoReturn, Self

from pydantic import Field, model_validator

from oncurve.types import ConfigError, Settings

REWARD_MODEL = "reward_model"
"""Name of the verifier."""


class RewardModelSettings(Settings):
    """A Hugging Face sequence classifier and how its output becomes a reward. Fallible."""

    path: Path = Path()
    """Directory with config, weights and tokenizer. Nothing is downloaded."""

    scale: Literal["sigmoid", "logit"] = "sigmoid"
    """Of a model with one output: ``sigmoid`` of it, in [0, 1], or the output itself, refused outside ``low`` to
    ``high``. A model with several outputs gives the probability of ``label``."""

    label: str = ""
    """Of a model with several outputs: the good class, by its name or number."""

    low: float = Field(-10.0, ge=-1e6, le=1e6)
    """Smallest accepted output, for ``logit``."""

    high: float = Field(10.0, ge=-1e6, le=1e6)
    """Largest accepted output, for ``logit``."""

    correct_at: float = 0.5
    """The completion counts as correct when the reward reaches this."""

    max_tokens: int = Field(2048, ge=1, le=1_000_000)
    """Prompt and completion together; a longer one is wrong, with the lowest reward: nothing is cut off unseen."""

    batch_size: int = Field(16, ge=1, le=4096)
    """Most texts in one pass; only texts of equal length share one, so it does not change a reward."""

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the weights, as ``model.dtype``."""

    probe_rows: int = Field(4, ge=0, le=1000)
    """Tasks on which a run probes the model before its first step. 0: no probe."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low {self.low:g} must be below high {self.high:g}")
        return self


def needs_torch(_: RewardModelSettings) -> NoReturn:
    """Stand in for the model where nobody brought torch.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(
        f"the verifier {REWARD_MODEL!r} runs a network, and this command works without torch. Runs can use it "
        "(`oncurve train`, `oncurve eval`); here, leave the component out."
    )
