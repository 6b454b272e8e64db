"""The forward pass of the common families, built from a model's own weights instead of its modules.

Modules cost more than the arithmetic in a decode step: dozens of small calls a layer, masks, a cache object. Here a
layer is two norms, four products, a rotation and an attention that the caller brings.

T tokens, W width, H query heads, K key/value heads, D head width, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.models.gemma3.modeling_gemma3 import Gemma3ForCausalLM
from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.models.mistral.modeling_mistral import MistralAttention, MistralForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

from oncurve.rollout.products import Product, UnknownLayerError, refuse_hooks

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries [T, H, D], keys [T, K, D], values [T, K, D]) to [T, H * D]."""

_Map = Callable[[Tensor], Tensor]

_ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary embedding whose angles do not depend on how long a sequence is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What an attention needs to know of a model."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scales: tuple[float, ...]
    """Of the products of queries and keys, one a layer."""
    windows: tuple[int | None, ...]
    """Tokens that a query sees, itself included; None: all before it. One a layer."""

    @property
    def num_layers(self) -> int:
        return len(self.scales)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layer:
    before_attention: _Map
    qkv: Product
    norm_heads: _Map | None
    """Of queries and keys, [T, H + K, D]."""
    rotation: str
    out: Product
    after_attention: _Map | None
    before_mlp: _Map
    mlp: _Map
    after_mlp: _Map | None


class Network:
    """One causal language model, as its weights are now.

    Raises:
        UnknownLayerError: the model is of another family, or changed in a way this code does not know.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        build = _FAMILIES.get(type(model))
        if build is None:
            raise UnknownLayerError(f"the family of {type(model).__name__}")
        refuse_hooks(list(model.modules()))
        self.dtype = model.dtype
        self.shape: Shape
        self._embed: Callable[[Tensor, Tensor], Tensor]
        self._rotations: Callable[[Tensor], dict[str, tuple[Tensor, Tensor]]]
        self._layers: list[_Layer]
        self._norm: _Map
        self._head: Product
        build(self, model)

    def hidden(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """[T, W] the last hidden states, normalised, of tokens [T] at positions [T]."""
        x = self._embed(ids, positions)
        rotations = self._rotations(positions)
        num_q, num_kv = self.shape.num_heads, self.shape.num_kv_heads
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(layer.before_attention(x)).view(len(x), num_q + 2 * num_kv, -1)
            qk, values = qkv[:, : num_q + num_kv], qkv[:, num_q + num_kv :]
            if layer.norm_heads is not None:
                qk = layer.norm_heads(qk)
            if rotations:
                cos, sin = rotations[layer.rotation]
                qk = torch.addcmul(qk * cos, qk.roll(qk.shape[2] // 2, dims=2), sin).to(self.dtype)
            mixed = layer.out(attend(index, qk[:, :num_q], qk[:, num_q:], values).to(self.dtype))
            x = x + (mixed if layer.after_attention is None else layer.after_attention(mixed))
            changed = layer.mlp(layer.before_mlp(x))
            x = x + (changed if layer.after_mlp is None else layer.after_mlp(changed))
        return self._norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """[T, V]."""
        return self._head(hidden)


def _build_llama(network: Network, model: Any) -> None:
    """Llama, Mistral, Qwen2 and Qwen3, and Gemma 3 with its further norms."""
    body, config = model.model, model.config
    _check_llama(model)
    attentions = [layer.self_attn for layer in body.layers]
    head_dim = attentions[0].head_dim
    network.shape = Shape(
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        scales=tuple(attention.scaling for attention in attentions),
        windows=tuple(_window_of(attention, config) for attention in attentions),
    )
    kinds = [getattr(attention, "layer_type", None) for attention in attentions]
    is_gemma = type(model) is Gemma3ForCausalLM

    def rotations(positions: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        like = _wide(body.embed_tokens.weight[:1])
        found = {}
        for kind in set(kinds) if is_gemma else {None}:
            cos, sin = body.rotary_emb(like, positions[None], *([kind] if is_gemma else []))
            half = head_dim // 2
            found[kind or ""] = (cos[0, :, None], torch.cat([-sin[0, :, None, :half], sin[0, :, None, half:]], dim=-1))
        return found

    network._embed = lambda ids, _: _wide(body.embed_tokens(ids))  # sums of many layers are not rounded
    network._rotations = rotations
    network._layers = [
        _llama_layer(layer, config, rotation=kind or "" if is_gemma else "")
        for layer, kind in zip(body.layers, kinds, strict=True)
    ]
    network._norm = _rms_norm(body.norm)
    network._head = Product(model.lm_head)


def _check_llama(model: Any) -> None:
    body, config = model.model, model.config
    own = f"{type(model).__name__.removesuffix('ForCausalLM')}"
    for layer in body.layers:
        for part, names in (
            (layer.self_attn, (f"{own}Attention",)),
            (layer.mlp, (f"{own}MLP",)),
            (layer.input_layernorm, (f"{own}RMSNorm",)),
        ):
            if type(part).__name__ not in names:
                raise UnknownLayerError(f"a {type(part).__name__} in a layer of {type(model).__name__}")
    if any(getattr(config, name, None) for name in ("attn_logit_softcapping", "final_logit_softcapping")):
        raise UnknownLayerError("capped logits")
    if getattr(config, "use_bidirectional_attention", None):
        raise UnknownLayerError("attention in both directions")
    kinds = [getattr(body.rotary_emb, "rope_type", "default")]
    kinds = list(kinds[0].values()) if isinstance(kinds[0], dict) else kinds
    if any(kind not in _ROTATIONS for kind in kinds):
        raise UnknownLayerError(f"rotary embeddings of kind {kinds}")


def _window_of(attention: Any, config: Any) -> int | None:
    """Mistral looks into its config; Llama has no window, whatever a config says."""
    is_mistral = type(attention) is MistralAttention
    window: int | None = config.sliding_window if is_mistral else getattr(attention, "sliding_window", None)
    return window


def _llama_layer(layer: Any, config: Any, *, rotation: str) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    has_four_norms = hasattr(layer, "pre_feedforward_layernorm")
    return _Layer(
        before_attention=_rms_norm(layer.input_layernorm),
        qkv=Product(attention.q_proj, attention.k_proj, attention.v_proj),
        norm_heads=_head_norm(attention, config) if hasattr(attention, "q_norm") else None,
        rotation=rotation,
        out=Product(attention.o_proj),
        after_attention=_rms_norm(layer.post_attention_layernorm) if has_four_norms else None,
        before_mlp=_rms_norm(layer.pre_feedforward_layernorm if has_four_norms else layer.post_attention_layernorm),
        mlp=_gated_mlp(mlp),
        after_mlp=_rms_norm(layer.post_feedforward_layernorm) if has_four_norms else None,
    )


def _gated_mlp(mlp: Any) -> _Map:
    act, gate_up, down = mlp.act_fn, Product(mlp.gate_proj, mlp.up_proj), Product(mlp.down_proj)
    width = gate_up.num_outputs // 2

    def run(x: Tensor) -> Tensor:
        both = gate_up(x)
        return down(act(both[:, :width]) * both[:, width:])

    return run


def _rms_norm(norm: Any) -> _Map:
    """The norm over the last dimension, in float32; what comes out has the dtype of the weights."""
    dtype, size, weight = norm.weight.dtype, norm.weight.shape, norm.weight.float()
    is_gemma = type(norm).__name__.startswith("Gemma")
    weight, eps = (1.0 + weight, norm.eps) if is_gemma else (weight, norm.variance_epsilon)
    return lambda x: F.rms_norm(x.float(), size, weight, eps).to(dtype)


def _head_norm(attention: Any, config: Any) -> _Map:
    """The norms of queries and keys, [T, H + K, D] at once."""
    norms = [attention.q_norm] * config.num_attention_heads + [attention.k_norm] * config.num_key_value_heads
    weight, dtype = torch.stack([norm.weight for norm in norms]).float(), attention.q_norm.weight.dtype
    is_gemma = type(attention.q_norm).__name__.startswith("Gemma")
    weight, eps = (1.0 + weight, attention.q_norm.eps) if is_gemma else (weight, attention.q_norm.variance_epsilon)
    return lambda x: (F.rms_norm(x.float(), weight.shape[1:], None, eps) * weight).to(dtype)


def _build_gpt2(network: Network, model: Any) -> None:
    body, config = model.transformer, model.config
    if config.add_cross_attention or config.reorder_and_upcast_attn:
        raise UnknownLayerError("cross attention or reordered attention")
    network.shape = Shape(
        num_heads=config.n_head,
        num_kv_heads=config.n_head,
        head_dim=config.n_embd // config.n_head,
        scales=tuple(block.attn.scaling for block in body.h),
        windows=(None,) * len(body.h),
    )
    network._embed = lambda ids, positions: F.embedding(ids, body.wte.weight) + F.embedding(positions, body.wpe.weight)
    network._rotations = lambda _: {}
    network._layers = [
        _Layer(
            before_attention=_layer_norm(block.ln_1),
            qkv=Product(block.attn.c_attn),
            norm_heads=None,
            rotation="",
            out=Product(block.attn.c_proj),
            after_attention=None,
            before_mlp=_layer_norm(block.ln_2),
            mlp=_plain_mlp(block.mlp),
            after_mlp=None,
        )
        for block in body.h
    ]
    network._norm = _layer_norm(body.ln_f)
    network._head = Product(model.lm_head)


def _plain_mlp(mlp: Any) -> _Map:
    act, up, down = mlp.act, Product(mlp.c_fc), Product(mlp.c_proj)
    return lambda x: down(act(up(x)))


def _layer_norm(norm: Any) -> _Map:
    if type(norm) is not torch.nn.LayerNorm:
        raise UnknownLayerError(f"a {type(norm).__name__} in place of a layer norm")
    return lambda x: F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


_FAMILIES: dict[type, Callable[[Network, Any], None]] = {
    GPT2LMHeadModel: _build_gpt2,
    LlamaForCausalLM: _build_llama,
    MistralForCausalLM: _build_llama,
    Qwen2ForCausalLM: _build_llama,
    Qwen3ForCausalLM: _build_llama,
    Gemma3ForCausalLM: _build_llama,
}
