"""Settings of a model: where it comes from, in which precision it runs, what of it is trained."""

from typing import Annotated, Literal

from pydantic import Field

from oncurve.types import Settings


class LoraSettings(Settings):
    """Train small low-rank matrices beside frozen weights: W + (alpha / rank) · B A."""

    rank: int = Field(16, ge=1, le=1024)
    """Inner width of A and B."""

    alpha: float = Field(32.0, gt=0)
    """Scale of the learned difference; what matters is alpha / rank."""

    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout before A while training. Above 0 the ratio of the first update is no longer 1."""

    target_modules: Literal["all-linear"] | Annotated[tuple[str, ...], Field(min_length=1)] = "all-linear"
    """Every linear layer except the output head, or the names of the layers to adapt, such as ["q_proj", "v_proj"]."""


class ModelSettings(Settings):
    """Which language model is trained, and how its weights are held."""

    path: str = Field("embedded", min_length=1)
    """``embedded``, ``smollm2``, or a directory that transformers can load. Nothing is ever downloaded."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the weights lie and everything is computed. auto: the GPU where torch can use one, else the processor."""

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the weights. auto: float32 for small models and for devices without bfloat16 arithmetic."""

    lora: LoraSettings | None = None
    """Train LoRA matrices only; without it every weight is trained."""

    freeze_embeddings: bool = False
    """Leave the embedding of tokens as it is. Where the output head is tied to it, as in most small models, the head is
    the same matrix and stays too; an untied head is trained. With a large vocabulary this saves much of the optimiser's
    memory and, tied, the gradient of the head. LoRA trains neither, with or without this."""

    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""

    attention: Literal["auto", "sdpa", "eager"] = "auto"
    """Attention code of transformers. auto: eager in bfloat16 on a processor, where fused is slow, else sdpa."""
