"""Parts of a decoder with fewer passes over memory than transformers makes: norm, rotation, gated unit.

On a CPU a bfloat16 step spends more time on these than on matrix products. Each is a function with its own backward
pass, worked off in blocks of rows that stay in the cache, with float32 inside. ``fuse`` finds the modules of a model
that can run so; whether the whole then computes what it computed before is for the caller to try.

Shapes: n rows, d width.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

BLOCK_VALUES = 1 << 17
"""Values of a block: its float32 copies fit a second-level cache."""


def _spans(num_rows: int, width: int) -> Iterator[slice]:
    step = max(1, BLOCK_VALUES // width)
    return (slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step))


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


class _Norm(torch.autograd.Function):
    """y = x / sqrt(mean(x^2) + eps) * (w + offset); x [n, d], w [d].

    The division is in float32 in every model, as transformers has it; y has the dtype of w, whatever that of x is.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, offset: float, eps: float) -> Tensor:
        scale = _wide(weight) + offset
        inverse = torch.empty(len(x), 1, dtype=torch.float32, device=x.device)
        out = torch.empty_like(x, dtype=weight.dtype)
        for span in _spans(*x.shape):
            wide = x[span].float()
            inverse[span] = wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
            out[span] = (wide * inverse[span]).to(scale.dtype).mul_(scale)
        ctx.save_for_backward(x, weight, inverse)
        ctx.offset = offset
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weight, inverses = ctx.saved_tensors
        scale, out = _wide(weight) + ctx.offset, torch.empty_like(x)
        of_scale = torch.zeros_like(scale)
        for span in _spans(*x.shape):
            wide, inverse = x[span].to(torch.float32, copy=True), inverses[span]
            gradient = gradients[0][span].to(scale.dtype)
            of_scale += (gradient * (wide * inverse)).sum(0)
            of_unit = (gradient * scale).float()
            of_inverse = (of_unit * wide).sum(-1, keepdim=True)
            of_square = of_inverse * -0.5 * inverse**3 / x.shape[-1]
            out[span] = of_unit.mul_(inverse).add_(wide.mul_(2).mul_(of_square))
        return out, of_scale.to(weight.dtype), None, None


class _Gated(torch.autograd.Function):
    """silu(gate) * up; both [n, d]. Keeps its arguments only."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        out = torch.empty_like(gate)
        for span in _spans(*gate.shape):
            torch.mul(F.silu(gate[span]), up[span], out=out[span])
        ctx.save_for_backward(gate, up)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        of_gate, of_up = torch.empty_like(gate), torch.empty_like(up)
        for span in _spans(*gate.shape):
            gradient = gradients[0][span]
            torch.mul(F.silu(gate[span]), gradient, out=of_up[span])
            of_gate[span] = torch.ops.aten.silu_backward(gradient * up[span], gate[span])
        return of_gate, of_up


class _Rotate(torch.autograd.Function):
    """Rotary positions: halves (x1, x2) become (x1 cos - x2 sin, x2 cos + x1 sin); x [n, H, D], cos and sin [n, D]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(x, cos, sin, 1.0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotated(gradients[0], cos, sin, -1.0), None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    found: Tensor = _Rotate.apply(x, cos, sin)  # type: ignore[no-untyped-call]
    return found


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
    out, half = torch.empty_like(x), x.shape[-1] // 2
    for span in _spans(len(x), x[0].numel()):
        part, made = x[span].to(cos.dtype), out[span]
        left, right = part[..., :half], part[..., half:]
        c, s = cos[span, None, :half], sin[span, None, :half]
        made[..., :half] = (left * c).addcmul_(right, s, value=-sign)
        made[..., half:] = (right * c).addcmul_(left, s, value=sign)
    return out


Forwards = list[tuple[nn.Module, Callable[..., Any]]]
"""Modules and what they do instead of their ``forward``."""


def fuse(model: PreTrainedModel, interface: Callable[..., Any]) -> Forwards:
    """What can run fused in this model.

    Args:
        interface: of the attention, as transformers calls it.
    """
    found: Forwards = []
    are_norms_fused = True
    for module in model.base_model.modules():
        made = _fused_norm(module) or _fused_unit(module) or _fused_attention(module, interface)
        if made is not None and "forward" not in vars(module):
            found.append((module, made))
        elif type(module).__name__.endswith("Norm"):
            are_norms_fused = False
    embedding: Any = model.get_input_embeddings()
    if are_norms_fused and model.dtype is torch.bfloat16 and "forward" not in vars(embedding):
        found.append((embedding, partial(_wide_embedding, embedding)))
    return found


def _wide_embedding(module: Any, ids: Tensor) -> Tensor:
    """Embeddings in float32, and with them the stream that every layer adds to: sums of many layers are not rounded,
    what a norm makes of them is."""
    return _wide(type(module).forward(module, ids))


def _fused_norm(module: nn.Module) -> Callable[..., Any] | None:
    """A root-mean-square norm whose scale is its weight, or 1 + its weight: which one is tried."""
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not type(module).__name__.endswith("RMSNorm") or weight is None or weight.ndim != 1 or eps is None:
        return None
    probe = torch.linspace(-1, 2, len(weight), device=weight.device, dtype=weight.dtype)[None]
    for offset in (0.0, 1.0):
        made = partial(_norm, module, float(eps), offset)
        with torch.no_grad():
            if torch.allclose(made(probe), module(probe), rtol=0.02, atol=1e-6):
                return made
    return None


def _norm(module: Any, eps: float, offset: float, x: Tensor) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    found: Tensor = _Norm.apply(rows, module.weight, offset, eps)  # type: ignore[no-untyped-call]
    return found.view_as(x)


def _fused_unit(module: Any) -> Callable[..., Any] | None:
    has_parts = all(
        isinstance(getattr(module, name, None), nn.Module) for name in ("gate_proj", "up_proj", "down_proj")
    )
    is_silu = type(getattr(module, "act_fn", None)).__name__ in ("SiLU", "SiLUActivation")
    return partial(_gated, module) if has_parts and is_silu and len(list(module.children())) == 4 else None


def _gated(module: Any, x: Tensor) -> Any:
    gate, up = module.gate_proj(x), module.up_proj(x)
    made: Tensor = _Gated.apply(gate.flatten(0, -2), up.flatten(0, -2))  # type: ignore[no-untyped-call]
    return module.down_proj(made.view_as(gate))


def _fused_attention(module: Any, interface: Callable[..., Any]) -> Callable[..., Any] | None:
    projections = ("q_proj", "k_proj", "v_proj", "o_proj")
    children = {name for name, _ in module.named_children()}
    is_known = set(projections) <= children <= {*projections, "q_norm", "k_norm"}
    has_sizes = all(hasattr(module, name) for name in ("head_dim", "scaling", "config"))
    is_plain = getattr(module, "attn_logit_softcapping", None) is None and not list(module.parameters(recurse=False))
    return partial(_attention, module, interface) if is_known and has_sizes and is_plain else None


def _attention(
    module: Any,
    interface: Callable[..., Any],
    hidden_states: Tensor,
    position_embeddings: tuple[Tensor, Tensor],
    attention_mask: Tensor | None = None,
    **arguments: Any,
) -> tuple[Tensor, None]:
    shape = (*hidden_states.shape[:-1], -1, module.head_dim)
    query = module.q_proj(hidden_states).view(shape)
    key, value = module.k_proj(hidden_states).view(shape), module.v_proj(hidden_states).view(shape)
    if hasattr(module, "q_norm"):
        query, key = module.q_norm(query), module.k_norm(key)
    cos, sin = (part.flatten(0, 1) for part in position_embeddings)
    query, key = (_turned(part.flatten(0, 1), cos, sin)[None] for part in (query, key))
    window = getattr(module, "sliding_window", getattr(module.config, "sliding_window", None))
    parts = (part.transpose(1, 2) for part in (query, key, value))
    out, _ = interface(module, *parts, attention_mask, scaling=module.scaling, sliding_window=window, **arguments)
    return module.o_proj(out.reshape(*hidden_states.shape[:-1], -1)), None
