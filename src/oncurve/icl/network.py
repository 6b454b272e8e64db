"""A causal transformer that regresses in its context.

tokens [B, 2K, width] ► linear read-in ► GPT-2 or Llama ► linear read-out at the query positions ► [B, K]

Shapes: B prompts, K points, d coordinates, c width of the network, L layers.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model, LlamaConfig, LlamaModel, PreTrainedModel

from oncurve.icl.layout import Layout, encode, token_width
from oncurve.model.precision import choose_attention, has_fast_bfloat16
from oncurve.types import Settings

BFLOAT16_WIDTH = 128
"""From this width on, the faster multiplications of bfloat16 gain more than the conversions cost."""
_CPU = torch.device("cpu")


class NetworkSettings(Settings):
    """Shape and arithmetic of the transformer."""

    architecture: Literal["gpt2", "llama"] = "gpt2"
    """gpt2: LayerNorm, learned positions. llama: RMSNorm, rotary positions, gated units."""

    layout: Layout = "paired"
    """How a prompt becomes tokens; alternating is that of Garg et al., and learns far more slowly."""

    width: int = Field(64, ge=4)
    """c, numbers in a hidden state."""

    layers: int = Field(4, ge=1)
    """Transformer blocks."""

    heads: int = Field(4, ge=1)
    """Attention heads; they divide the width."""

    activation: Literal["auto", "gelu", "relu", "silu"] = "auto"
    """Between the two matrices of a block. auto: gelu for gpt2, silu for llama. relu is the cheapest on a CPU."""

    positions: bool = True
    """gpt2: learn position embeddings. False leaves them 0: what is seen of a prompt is then only its order."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the blocks. auto: bfloat16 from width 128 on, where it is fast: on a GPU that has it, and on a
    processor that is measured to gain by it; float32 otherwise. A run's config.toml holds what auto came to."""

    attention: Literal["auto", "eager", "sdpa"] = "auto"
    """auto: eager on a CPU in bfloat16, whose fused attention has a slow backward pass; sdpa otherwise."""

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.width % self.heads or (self.architecture == "llama" and self.width // self.heads % 2):
            raise ValueError(
                f"width {self.width} does not split into {self.heads} heads"
                f"{' of even size' if self.architecture == 'llama' else ''}: change network.width or network.heads"
            )
        if self.architecture == "llama" and not self.positions:
            raise ValueError("llama has rotary positions: positions = false belongs to architecture gpt2")
        return self


def settle_precision(settings: NetworkSettings, device: torch.device) -> NetworkSettings:
    """The same settings with the precision that ``auto`` means on a device written out: it rests on a measurement, and
    whoever continues or examines a run must not measure again."""
    if settings.precision != "auto":
        return settings
    is_rounded = settings.width >= BFLOAT16_WIDTH and has_fast_bfloat16(device)
    return settings.model_copy(update={"precision": "bfloat16" if is_rounded else "float32"})


class Regressor(nn.Module):
    """Predicts y_n from the n points before it and x_n, for every n of a prompt at once.

    Args:
        settings: shape and arithmetic.
        dimension: d.
        max_points: most points of a prompt.
        device: where it computes. ``auto`` is settled for it; the weights are drawn on the CPU and then moved.

    Weights are drawn from torch's global generator: seed it for a repeatable network.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        dimension: int,
        max_points: int,
        device: torch.device = _CPU,
    ) -> None:
        super().__init__()
        settings = settle_precision(settings, device)
        self.settings, self.dimension, self.max_points = settings, dimension, max_points
        width = token_width(settings.layout, dimension)
        self.read_in = nn.Linear(width, settings.width)
        nn.init.normal_(self.read_in.weight, std=1 / math.sqrt(dimension))
        nn.init.zeros_(self.read_in.bias)
        self.backbone = _backbone(settings, max_tokens=2 * max_points, device=device)
        self.read_out = nn.Linear(settings.width, 1)
        self.to(device)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.read_in.weight.device

    def predict(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Predict every target of a prompt from what stands before it.

        Args:
            inputs: [B, K, d] with K up to ``max_points``.
            targets: [B, K]; y_n is seen by the predictions after the n-th only.

        Returns:
            [B, K] float32 predictions of y_0 (from no example), ..., y_{K-1} (from K - 1).

        Raises:
            ValueError: the shapes are not those, or K is too large.
        """
        last: Tensor = self._run(inputs, targets).last_hidden_state
        return self._read(last[:, ::2])

    def hidden_states(self, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        """The L + 1 hidden states, [B, K, c] float32 each, at the query positions: what was read in, then each layer.

        The last one is after the final norm, the others are before any.
        """
        states = self._run(inputs, targets, output_hidden_states=True).hidden_states
        return [state[:, ::2].float() for state in states]

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """``predict``."""
        return self.predict(inputs, targets)

    def _read(self, hidden: Tensor) -> Tensor:
        return self.read_out(hidden.float()).squeeze(-1)  # type: ignore[no-any-return]

    def _run(self, inputs: Tensor, targets: Tensor, **options: bool) -> Any:
        self._check(inputs, targets)
        tokens = encode(self.settings.layout, inputs, targets)[:, :-1]  # no prediction stands after the last target
        embedded = self.read_in(tokens)
        with self._arithmetic():
            return self.backbone(inputs_embeds=embedded, use_cache=False, **options)

    def _arithmetic(self) -> AbstractContextManager[Any]:
        if self.settings.precision == "bfloat16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()

    def _check(self, inputs: Tensor, targets: Tensor) -> None:
        if inputs.ndim != 3 or inputs.shape[-1] != self.dimension or targets.shape != inputs.shape[:2]:
            raise ValueError(
                f"inputs must be [B, K, {self.dimension}] with targets [B, K], got {list(inputs.shape)} "
                f"and {list(targets.shape)}"
            )
        if inputs.shape[1] > self.max_points:
            raise ValueError(
                f"a prompt of {inputs.shape[1]} points is longer than this network has positions for: "
                f"{self.max_points}, the points of its training"
            )


def _backbone(settings: NetworkSettings, *, max_tokens: int, device: torch.device) -> PreTrainedModel:
    dtype = torch.bfloat16 if settings.precision == "bfloat16" else torch.float32
    common: dict[str, Any] = {  # nothing is looked up in a vocabulary: tokens are vectors already
        "vocab_size": 1,
        "bos_token_id": None,
        "eos_token_id": None,
        "attn_implementation": choose_attention(settings.attention, dtype, device),
    }
    if settings.architecture == "llama":
        backbone: PreTrainedModel = LlamaModel(
            LlamaConfig(
                hidden_size=settings.width,
                intermediate_size=4 * settings.width,
                num_hidden_layers=settings.layers,
                num_attention_heads=settings.heads,
                max_position_embeddings=max_tokens,
                hidden_act=_activation(settings),
                **common,
            )
        )
    else:
        gpt2 = GPT2Model(
            GPT2Config(
                n_positions=max_tokens,
                n_embd=settings.width,
                n_layer=settings.layers,
                n_head=settings.heads,
                activation_function=_activation(settings),
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                **common,
            )
        )
        if not settings.positions:
            nn.init.zeros_(gpt2.wpe.weight)
            gpt2.wpe.requires_grad_(False)
        backbone = gpt2
    backbone.get_input_embeddings().requires_grad_(False)
    return backbone


def _activation(settings: NetworkSettings) -> str:
    """The name transformers has for it. Its ``gelu_new`` takes seven operations where the one here takes one."""
    chosen = settings.activation
    if chosen == "auto":
        chosen = "gelu" if settings.architecture == "gpt2" else "silu"
    return "gelu_pytorch_tanh" if chosen == "gelu" else chosen
