"""The base of every settings object."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Frozen, keyword-only, refuses unknown keys and values outside their range.

    The settings of a thing live beside the thing; ``oncurve.config.RunConfig`` only nests them. The line under a
    field is its documentation: ``oncurve explain`` prints it.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        validate_default=True,
        protected_namespaces=(),
    )
