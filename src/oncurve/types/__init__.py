"""The words of the domain. Everything here is frozen, and nothing here needs torch or touches a file."""

from oncurve.types.domain import (
    Completion,
    Episode,
    FinishReason,
    Group,
    Inserted,
    Message,
    Prompt,
    Sampling,
    Status,
    Task,
    Verdict,
    Woven,
    transcript,
    weave,
)
from oncurve.types.errors import (
    ConfigError,
    DataError,
    ModelError,
    NumericsError,
    OncurveError,
    RunError,
    StorageError,
)
from oncurve.types.hints import did_you_mean
from oncurve.types.seeds import derive_seed, unit_interval
from oncurve.types.settings import Settings

__all__ = [
    "Completion",
    "ConfigError",
    "DataError",
    "Episode",
    "FinishReason",
    "Group",
    "Inserted",
    "Message",
    "ModelError",
    "NumericsError",
    "OncurveError",
    "Prompt",
    "RunError",
    "Sampling",
    "Settings",
    "Status",
    "StorageError",
    "Task",
    "Verdict",
    "Woven",
    "derive_seed",
    "did_you_mean",
    "transcript",
    "unit_interval",
    "weave",
]
