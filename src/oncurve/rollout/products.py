"""Linear layers as products of prepared weights: several layers on one input fused, LoRA inside, bfloat16 packed.

T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor
from torch.nn import functional as F
from transformers.pytorch_utils import Conv1D


class UnknownLayerError(Exception):
    """This part of a model is not one that can be rebuilt from its weights; its own code has to run."""


@dataclass(frozen=True, slots=True)
class _LowRank:
    """The part of an adapter that stays apart: columns of the output, A, B, alpha / rank."""

    columns: slice
    inner: Tensor
    outer: Tensor
    scale: float


class Product:
    """x ↦ x Wᵀ + b of one layer, or of several on the same input, their outputs side by side.

    In float32 a LoRA adapter is merged into W. In bfloat16 it stays apart and runs as peft runs it: merged, a young
    adapter would be rounded away, and the sampler would not see what the learner trains.

    Args:
        modules: ``torch.nn.Linear`` or ``Conv1D``, bare or with a LoRA adapter.

    Raises:
        UnknownLayerError: something else.
    """

    def __init__(self, *modules: torch.nn.Module) -> None:
        weights, biases, adapters = zip(*(_parts_of(module) for module in modules), strict=True)
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        self.bias: Tensor | None = None
        if any(bias is not None for bias in biases):
            filled = [w.new_zeros(len(w)) if b is None else b for w, b in zip(weights, biases, strict=True)]
            self.bias = torch.cat(filled)
        first = 0
        self.low_ranks: list[_LowRank] = []
        for part, low_ranks in zip(weights, adapters, strict=True):
            columns = slice(first, first + len(part))
            self.low_ranks += [_LowRank(columns, *low_rank) for low_rank in low_ranks]
            first += len(part)
        self.num_outputs = first
        self._is_packed = weight.dtype is torch.bfloat16 and weight.device.type == "cpu" and can_pack()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, 64) if self._is_packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] to [T, out]."""
        if self._is_packed:
            out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self.bias, "none", [], "")
        else:
            out = F.linear(x, self._weight, self.bias)
        for low in self.low_ranks:
            added = F.linear(F.linear(x.to(low.inner.dtype), low.inner), low.outer)
            out[:, low.columns] = out[:, low.columns] + added * low.scale
        return out


@cache
def can_pack() -> bool:
    """True when torch has oneDNN's packed bfloat16 product here, and it multiplies.

    The operation is one that torch.compile uses and nobody promises; it saves the packing of the weights at every
    call, a third of the time at 64 rows. Without it the plain product runs.
    """
    weight = torch.arange(64.0).reshape(32, 2).to(torch.bfloat16)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, 64)
        out = torch.ops.mkldnn._linear_pointwise(torch.ones(3, 2, dtype=weight.dtype), packed, None, "none", [], "")
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return torch.equal(out, weight.sum(dim=1).expand(3, -1))


_Parts = tuple[Tensor, Tensor | None, list[tuple[Tensor, Tensor, float]]]


def _parts_of(module: torch.nn.Module) -> _Parts:
    """Weight [out, in], bias, and what of an adapter stays apart."""
    if type(module) is LoraLinear:
        return _adapted_parts_of(module)
    if type(module) is torch.nn.Linear:
        return module.weight, module.bias, []
    if type(module) is Conv1D:
        return module.weight.t(), module.bias, []
    raise UnknownLayerError(f"a {type(module).__name__} in place of a linear layer")


def _adapted_parts_of(module: Any) -> _Parts:
    weight, bias, _ = _parts_of(module.base_layer)
    is_off = module.disable_adapters or module.merged
    active = [] if is_off else [name for name in module.active_adapters if name in module.lora_A]
    if any(module.use_dora.get(name) or module.lora_bias.get(name) for name in active):
        raise UnknownLayerError("an adapter of another kind than LoRA")
    if weight.dtype is torch.bfloat16:
        return weight, bias, [(_of(module.lora_A, n), _of(module.lora_B, n), module.scaling[n]) for n in active]
    for name in active:
        delta = _of(module.lora_B, name) @ _of(module.lora_A, name)
        weight = weight + delta.to(weight.dtype) * module.scaling[name]
    return weight, bias, []


def _of(layers: Any, name: str) -> Tensor:
    weight: Tensor = layers[name].weight
    return weight


def refuse_hooks(modules: Sequence[torch.nn.Module]) -> None:
    """Raise UnknownLayerError where someone listens to or changes what a module computes."""
    for module in modules:
        if module._forward_hooks or module._forward_pre_hooks:
            raise UnknownLayerError(f"a hook on {type(module).__name__}")
