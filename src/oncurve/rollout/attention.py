"""Eager attention of the Llama family without copies of the keys and values that several heads share.

R rows, H query heads, K key/value heads, Q queries, W columns, D head width.
"""

import sys
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask
from transformers.models.llama.modeling_llama import eager_attention_forward

GROUPED_EAGER = "oncurve_grouped_eager"
"""Its name in transformers."""


def grouped_eager_attention(
    _module: torch.nn.Module | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """softmax(query key^T * scaling + mask) value, rounded where eager attention rounds.

    The queries of the H / K heads that share keys are taken as more queries of one head. In bfloat16 fused attention
    rounds elsewhere, and its log-probs are 0.02 off those of a learner with eager attention.

    Args:
        _module: not used; transformers passes it.
        query: [R, H, Q, D].
        key: [R, K, W, D]; head h of the query uses head h // (H / K).
        value: [R, K, W, D].
        attention_mask: [R, 1, Q, W] to be added, or None.
        scaling: of the products.
        dropout: has to be 0, as it is outside training.

    Returns:
        [R, Q, H, D], and None for the weights.

    Raises:
        ValueError: dropout is not 0.
    """
    if dropout:
        raise ValueError(f"dropout is {dropout}, but this attention is for sampling only: switch the model to eval")
    rows, heads, queries, width = query.shape
    groups = heads // key.shape[1]
    weights = torch.matmul(query.reshape(rows, -1, groups * queries, width), key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        weights = weights.view(rows, -1, groups, queries, key.shape[2]) + attention_mask[:, :, None]
    weights = weights.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
    mixed = torch.matmul(weights.view(rows, -1, groups * queries, key.shape[2]), value)
    return mixed.view(rows, heads, queries, -1).transpose(1, 2).contiguous(), None


def has_llama_attention(model: PreTrainedModel) -> bool:
    """True when the eager attention of this model's family is, instruction by instruction, that of Llama."""
    own = getattr(sys.modules[type(model).__module__], "eager_attention_forward", None)
    ours, llama = getattr(own, "__code__", None), eager_attention_forward.__code__
    return ours is not None and all(
        getattr(ours, part) == getattr(llama, part) for part in ("co_code", "co_consts", "co_names")
    )


AttentionInterface.register(GROUPED_EAGER, grouped_eager_attention)
AttentionMaskInterface.register(GROUPED_EAGER, eager_mask)
