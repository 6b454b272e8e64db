"""Which functions a prompt can hold."""

from typing import Literal, Self

from pydantic import Field, model_validator

from oncurve.types import Settings

Kind = Literal["linear", "sparse", "tree", "relu"]


class FunctionSettings(Settings):
    """A class of functions from R^d to R, and the noise on what is seen of them."""

    kind: Kind = "linear"
    """linear: w.x. sparse: w has few non-zero coordinates. tree: a decision tree on signs of x. relu: two layers."""

    dimension: int = Field(5, ge=1, le=4096)
    """d, the length of an input."""

    noise_std: float = Field(0.0, ge=0)
    """Standard deviation of the noise on the targets that stand in a prompt."""

    weight_std: float = Field(1.0, gt=0)
    """Standard deviation of a function's weights: of w, of a tree's leaves, of a network's second layer."""

    sparsity: int = Field(3, ge=1)
    """sparse: coordinates of w that are not 0."""

    tree_depth: int = Field(4, ge=1, le=12)
    """tree: questions between the root and a leaf."""

    hidden_width: int = Field(100, ge=1)
    """relu: hidden units."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.kind == "sparse" and self.sparsity > self.dimension:
            raise ValueError(
                f"sparsity is {self.sparsity} but inputs have only {self.dimension} coordinates: "
                "lower functions.sparsity or raise functions.dimension"
            )
        return self


def normaliser(settings: FunctionSettings) -> float:
    """Divide a squared error by this and answering 0 everywhere costs ``weight_std**2``, so 1 by default.

    It is E[f(x)^2] for standard normal inputs and ``weight_std`` 1: d for linear functions and two-layer networks, s
    for s-sparse ones, 1 for trees.

    Source:
        Garg et al. 2022, arXiv:2208.01066, section 4.
    """
    return {"linear": float(settings.dimension), "relu": float(settings.dimension), "tree": 1.0}.get(
        settings.kind, float(settings.sparsity)
    )


def require_linear(settings: FunctionSettings, measured: str) -> None:
    """Raise ValueError unless the functions have weights w with f(x) = w.x; ``measured`` begins the sentence."""
    if settings.kind not in ("linear", "sparse"):
        raise ValueError(
            f"{measured} linear functions; this run learnt {settings.kind!r}. Train one with --functions.kind linear."
        )
