"""How much memory a run will need, before it allocates any.

The shapes come from the model built without memory behind it, so the parts that depend on them alone are exact. The
activations follow a count of what one decoder layer keeps for its backward pass. A test runs the learner in a process
of its own and finds the peak within 25 % of what is said here.
"""

from dataclasses import dataclass, fields

from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel

from oncurve.model.load import freeze_embeddings, load_config, resolve_dtype, skeleton
from oncurve.model.lora import LINEAR, attach_adapter
from oncurve.model.precision import choose_device
from oncurve.model.settings import ModelSettings
from oncurve.model.source import resolve_directory
from oncurve.types import Settings

_FLOAT32_BYTES = 4
_PROCESS_BYTES = 400 * 1024**2
"""Resident memory of Python with torch and transformers loaded, measured."""
_LARGE_SCORES = 4
"""Probabilities are kept up to this many times the values they come from, else made again (``path_attention``)."""


class Workload(Settings):
    """What a step does with the model, as far as memory is concerned."""

    rows: int = Field(ge=1)
    """Completions decoded at once."""

    row_tokens: int = Field(ge=1)
    """Longest prompt and completion together."""

    max_cache_tokens: int = Field(ge=1)
    """Most tokens whose keys and values are held at once; a single row may take more."""

    micro_batch_tokens: int = Field(ge=1)
    """Tokens in one forward and backward pass of the learner."""

    head_tokens: int = Field(ge=0)
    """Completion tokens among them, whose logits are needed."""

    logits_chunk_bytes: int = Field(ge=1)
    """Most float32 logits that are made at once."""

    has_reference: bool
    """True when the objective has a KL term."""

    has_critic: bool = False
    """True when a value model of the same size is trained beside the policy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryEstimate:
    """Bytes by part."""

    process: int
    """Interpreter and libraries, before there is a model."""
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
    """A chunk of them and of their gradient."""

    @property
    def peak(self) -> int:
        """Sampling and updating take turns: the lasting parts plus the larger of the two."""
        lasting = self.process + self.weights + self.reference + self.gradients + self.optimizer + self.critic
        return lasting + max(self.kv_cache, self.activations + self.logits)

    @property
    def still_needed(self) -> int:
        """What a process that has loaded the libraries and nothing else has yet to take."""
        return self.peak - self.process

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
        checkpointing=settings.gradient_checkpointing,
    )
    base = sum(parameter.numel() for parameter in model.parameters())
    head: Tensor = model.get_output_embeddings().weight  # type: ignore[no-untyped-call]
    vocabulary = head.shape[0]
    if settings.lora is None:
        if settings.freeze_embeddings:
            freeze_embeddings(model)
        trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        trained_item = item
    else:  # peft holds the adapter in float32
        attach_adapter(model, settings.lora, seed=0)
        trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        trained_item = _FLOAT32_BYTES
    own_master = 0 if item == _FLOAT32_BYTES else _FLOAT32_BYTES
    critic = base * (2 * item + 2 * own_master + 2 * _FLOAT32_BYTES)
    master = 0 if trained_item == _FLOAT32_BYTES else _FLOAT32_BYTES
    frozen = base - trained if settings.lora is None else 0
    return MemoryEstimate(
        process=_PROCESS_BYTES,
        weights=base * item + (trained * trained_item if settings.lora else 0),
        reference=(base - frozen) * item if workload.has_reference and settings.lora is None else 0,
        gradients=trained * (trained_item + master),
        optimizer=trained * (2 * _FLOAT32_BYTES + master),
        critic=critic if workload.has_critic else 0,
        kv_cache=_kv_values_per_token(model) * _cache_item(settings, item) * _cache_tokens(workload),
        activations=values_per_token * item * workload.micro_batch_tokens,
        logits=2 * min(workload.logits_chunk_bytes * item // _FLOAT32_BYTES, workload.head_tokens * vocabulary * item),
    )


def _cache_item(settings: ModelSettings, item: int) -> int:
    """Bytes of a key: a processor holds them in float32 (``shared_cache``)."""
    return _FLOAT32_BYTES if choose_device(settings.device).type == "cpu" else item


def _cache_tokens(workload: Workload) -> int:
    return min(workload.rows * workload.row_tokens, max(workload.max_cache_tokens, workload.row_tokens))


def _kv_values_per_token(model: PreTrainedModel) -> int:
    config = model.config.get_text_config()
    query_heads = getattr(config, "num_attention_heads", 0)
    if not query_heads:  # a state-space model keeps no keys and values
        return 0
    heads = getattr(config, "num_key_value_heads", None) or query_heads
    head_width = getattr(config, "head_dim", None) or config.hidden_size // query_heads
    return int(2 * config.num_hidden_layers * heads * head_width)


def _activation_values_per_token(model: PreTrainedModel, *, row_tokens: int, checkpointing: bool) -> int:
    """Values kept for the backward pass, a token.

    As many as go in and out of the linear layers of a decoder layer: their arguments are kept, what lies between is
    mostly made again. Attention adds its probabilities, ``row_tokens`` a head, unless they are too many to keep. One
    layer's worth more is being worked on. With checkpointing the input of each layer stays, and one layer at a time is
    computed again.
    """
    config = model.config.get_text_config()
    layers = int(config.num_hidden_layers)
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    linears = [module for module in model.modules() if isinstance(module, LINEAR) and module is not head]
    layer = sum(sum(module.weight.shape) for module in linears) / layers  # a weight is [out, in] or [in, out]
    scores = getattr(config, "num_attention_heads", 0) * row_tokens
    around = _kv_values_per_token(model) / layers + config.hidden_size
    layer += scores if scores <= _LARGE_SCORES * around else 0
    return round((layers * config.hidden_size if checkpointing else layers * layer) + layer)
