"""How much memory a run will need, before it allocates any.

The shapes come from the model built without memory behind it, so the parts that depend on them alone are exact. The
activations follow a count of what one decoder layer keeps for its backward pass, and are good to about a half.
"""

from dataclasses import dataclass, fields

from pydantic import Field
from transformers import PreTrainedModel

from oncurve.model.load import load_config, resolve_dtype, skeleton
from oncurve.model.lora import LINEAR, attach_adapter
from oncurve.model.precision import choose_attention
from oncurve.model.settings import ModelSettings
from oncurve.model.source import resolve_directory
from oncurve.types import Settings

_FLOAT32_BYTES = 4


class Workload(Settings):
    """What a step does with the model, as far as memory is concerned."""

    rows: int = Field(ge=1)
    """Completions decoded at once."""

    row_tokens: int = Field(ge=1)
    """Longest prompt and completion together."""

    micro_batch_tokens: int = Field(ge=1)
    """Tokens in one forward and backward pass of the learner."""

    logits_bytes: int = Field(ge=0)
    """Largest block of logits that is held at once."""

    has_reference: bool
    """True when the objective has a KL term."""

    has_critic: bool = False
    """True when a value model of the same size is trained beside the policy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryEstimate:
    """Bytes by part."""

    weights: int
    reference: int
    """A frozen copy of the weights; 0 with LoRA, where the reference is the model without its adapter."""
    gradients: int
    """Of all trained weights; for bfloat16 weights also the float32 sums over micro-batches."""
    optimizer: int
    """Two float32 moments of AdamW; for bfloat16 weights also their float32 masters."""
    critic: int
    """Weights, gradients and optimiser of the value model; 0 without one."""
    kv_cache: int
    """Keys and values while sampling."""
    activations: int
    """What the backward pass of one micro-batch needs."""
    logits: int

    @property
    def peak(self) -> int:
        """Sampling and updating take turns: the lasting parts plus the larger of the two."""
        lasting = self.weights + self.reference + self.gradients + self.optimizer + self.critic
        return lasting + max(self.kv_cache, self.activations + self.logits)

    def parts(self) -> dict[str, int]:
        """The parts by name, for a table."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def estimate_memory(settings: ModelSettings, workload: Workload) -> MemoryEstimate:
    """Estimate a run's memory from ``config.json`` alone; no weight is read.

    Raises:
        ModelError: as ``load_policy``, as far as the directory and its config are concerned.
    """
    directory = resolve_directory(settings.path)
    model = skeleton(load_config(directory), directory)
    dtype = resolve_dtype(settings, model)
    item = dtype.itemsize
    values_per_token = _activation_values_per_token(
        model,
        row_tokens=workload.row_tokens,
        eager=choose_attention(settings.attention, dtype) == "eager",
        checkpointing=settings.gradient_checkpointing,
    )
    base = sum(parameter.numel() for parameter in model.parameters())
    if settings.lora is None:
        trained, trained_item = base, item
    else:  # peft holds the adapter in float32
        attach_adapter(model, settings.lora, seed=0)
        trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        trained_item = _FLOAT32_BYTES
    own_master = 0 if item == _FLOAT32_BYTES else _FLOAT32_BYTES
    critic = base * (2 * item + 2 * own_master + 2 * _FLOAT32_BYTES)
    master = 0 if trained_item == _FLOAT32_BYTES else _FLOAT32_BYTES
    return MemoryEstimate(
        weights=base * item + (trained * trained_item if settings.lora else 0),
        reference=base * item if workload.has_reference and settings.lora is None else 0,
        gradients=trained * (trained_item + master),
        optimizer=trained * (2 * _FLOAT32_BYTES + master),
        critic=critic if workload.has_critic else 0,
        kv_cache=_kv_values_per_token(model) * item * workload.rows * workload.row_tokens,
        activations=values_per_token * item * workload.micro_batch_tokens,
        logits=workload.logits_bytes,
    )


def _kv_values_per_token(model: PreTrainedModel) -> int:
    config = model.config.get_text_config()
    query_heads = getattr(config, "num_attention_heads", 0)
    if not query_heads:  # a state-space model keeps no keys and values
        return 0
    heads = getattr(config, "num_key_value_heads", None) or query_heads
    head_width = getattr(config, "head_dim", None) or config.hidden_size // query_heads
    return int(2 * config.num_hidden_layers * heads * head_width)


def _activation_values_per_token(model: PreTrainedModel, *, row_tokens: int, eager: bool, checkpointing: bool) -> int:
    """Values kept for the backward pass, a token.

    1.6 · (inputs + outputs of the linear layers), measured between 1.1 and 2.2 over GPT-2, Llama, Qwen and Gemma; and
    2 · row_tokens a head and layer where attention weights are materialised. With checkpointing the input of each layer
    stays, and one layer at a time is computed again.
    """
    config = model.config.get_text_config()
    layers = int(config.num_hidden_layers)
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    linears = [module for module in model.modules() if isinstance(module, LINEAR) and module is not head]
    values = 1.6 * sum(sum(module.weight.shape) for module in linears)  # a weight is [out, in] or [in, out]
    if eager:
        values += 2 * layers * getattr(config, "num_attention_heads", 0) * row_tokens
    return round(layers * config.hidden_size + values / layers if checkpointing else values)
