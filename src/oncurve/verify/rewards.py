"""The settings of a reward: named components with weights, one of which is the task metric."""

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from oncurve.types import Settings, did_you_mean
from oncurve.verify.length_shaping import LENGTH, LengthShapingSettings
from oncurve.verify.registry import read_options, read_settings
from oncurve.verify.reward_function import RewardFunctionSettings, is_function_name

TASK = "task"
"""The verifier name that stands for "the one that each task names"."""


class ComponentSettings(Settings):
    """One part of the reward."""

    verifier: str = TASK
    """``task`` (the verifier that each task names), a built-in verifier, or ``path/to/file.py:function``."""

    weight: float = Field(1.0, ge=-1e6, le=1e6)
    """Factor of this part in the reward. Negative for a penalty, 0 to record it only."""

    role: Literal["sum", "gate"] = "sum"
    """``sum``: added up with its weight. ``gate``: added to nothing; a completion that is not correct by it gets
    ``reward.gated_reward`` whatever the other parts say."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the verifier. For ``task``: a table of options for each verifier name."""

    @model_validator(mode="after")
    def _a_gate_has_no_weight(self) -> Self:
        if self.role == "gate" and self.weight != 1.0:
            raise ValueError(f"a gate is added to nothing, so its weight {self.weight:g} would do nothing: remove it")
        return self

    @model_validator(mode="after")
    def _options_are_known(self) -> Self:
        if self.verifier == TASK:
            for name, options in self.options.items():
                if not isinstance(options, dict):
                    raise ValueError(
                        f"options of the task's verifier stand under its name, got {name} = {options!r}. "
                        f"Write options.answer.{name} or options.countdown.{name}."
                    )
                read_options(name, options)
        elif is_function_name(self.verifier):
            read_settings(RewardFunctionSettings, self.options, f"reward function {self.verifier!r}")
        else:
            read_options(self.verifier, self.options)
        return self


class RewardSettings(Settings):
    """What a completion is rewarded for."""

    components: dict[str, ComponentSettings] = Field(
        default_factory=lambda: {"correct": ComponentSettings()}, min_length=1
    )
    """The parts by name; each is recorded on its own."""

    primary: str = ""
    """The component that is the task metric: it decides right or wrong. Empty: the first."""

    gated_reward: float = Field(0.0, ge=-1e6, le=1e6)
    """The reward of a completion that does not pass a gate: no other part, length or truncation changes it."""

    length: LengthShapingSettings | None = None
    """A reward for length, recorded as the component ``length``. None: none."""

    truncated_factor: float = Field(1.0, ge=0, le=1)
    """The reward of a truncated completion is multiplied by this: below 1 it pays to stop properly."""

    timeout_s: float = Field(10.0, gt=0, le=3600)
    """Wall seconds for one call of a reward function; then its process is killed and the call has no verdict."""

    @field_validator("components")
    @classmethod
    def _names_are_path_parts(cls, components: dict[str, ComponentSettings]) -> dict[str, ComponentSettings]:
        for name in components:
            if not name or "/" in name or not name.isprintable():
                raise ValueError(f"a component name becomes part of a metric name: not empty, no '/', got {name!r}")
        return components

    @model_validator(mode="after")
    def _primary_exists(self) -> Self:
        if self.primary and self.primary not in self.components:
            hint = did_you_mean(self.primary, self.components)
            raise ValueError(f"primary {self.primary!r} is not a component.{hint} Known: {', '.join(self.components)}.")
        if self.length is not None and LENGTH in self.components:
            raise ValueError(f"reward.length is recorded as the component {LENGTH!r}: give the other one another name")
        if not any(self.weights.values()):
            gates = f" ({', '.join(self.gates)} only open the way)" if self.gates else ""
            raise ValueError(
                f"every component has weight 0{gates}: every reward would be 0. Give one of them a weight."
            )
        return self

    @model_validator(mode="after")
    def _gated_reward_acts(self) -> Self:
        if self.gated_reward and not self.gates:
            raise ValueError('gated_reward does nothing without a component of role = "gate"')
        return self

    @property
    def primary_name(self) -> str:
        """Name of the component that is the task metric."""
        return self.primary or next(iter(self.components))

    @property
    def gates(self) -> tuple[str, ...]:
        """Names of the components that are gates."""
        return tuple(name for name, component in self.components.items() if component.role == "gate")

    @property
    def weights(self) -> dict[str, float]:
        """Weight of every component in the sum by name, that of the length included; 0 for a gate."""
        weights = {name: 0.0 if name in self.gates else part.weight for name, part in self.components.items()}
        return weights if self.length is None else weights | {LENGTH: self.length.weight}
