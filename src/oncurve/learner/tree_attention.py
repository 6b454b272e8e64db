"""How a transformers model runs merged rows: which models can, what it is worth, and the arguments.

Shapes: B lines, T columns of a micro-batch, as in ``packing``.
"""

import inspect

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from oncurve.learner.mode import evaluating
from oncurve.learner.packing import MicroBatch, Row, pack

SCORE_OVERHEAD = 4.0
"""Time of an attention score over that of its multiplications: softmax, mask, memory. Measured on a CPU with the
embedded model: 1 to 4 are equally fast, 8 is slower."""
_WINDOWS = ("sliding_window", "attention_chunk_size", "window_size")


def arguments(model: PreTrainedModel, batch: MicroBatch) -> dict[str, Tensor]:
    """Keyword arguments of a forward pass over a micro-batch."""
    is_visible = batch.is_visible()
    if is_visible is None or batch.position_ids is None:
        return {"input_ids": batch.input_ids, "attention_mask": torch.ones_like(batch.input_ids)}
    if model.config.get_text_config(decoder=True)._attn_implementation == "eager":  # adds its mask to the scores
        scores = torch.zeros(is_visible.shape, dtype=model.dtype, device=is_visible.device)
        is_visible = scores.masked_fill_(~is_visible, torch.finfo(model.dtype).min)
    return {"input_ids": batch.input_ids, "position_ids": batch.position_ids, "attention_mask": is_visible}


def scores_per_token(model: PreTrainedModel) -> float:
    """Attention scores that take as long as running one token through the matrices of the model.

    2 * W / (4 * L * d * ``SCORE_OVERHEAD``), for W matrix weights without the embeddings, L layers, d heads times width
    of a head: a token takes 2 W operations, a score 4 d in each layer. 0 for a model that cannot run trees.
    """
    if not _can_run_trees(model):
        return 0.0
    config = model.config.get_text_config(decoder=True)
    width = config.num_attention_heads * (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    weights = sum(p.numel() for p in model.base_model.parameters() if p.ndim > 1 and id(p) not in embeddings)
    return float(2 * weights / (4 * config.num_hidden_layers * width * SCORE_OVERHEAD))


def longest_row(model: PreTrainedModel) -> float:
    """Tokens up to which every layer sees the whole row; beyond it a window would have to follow the tree."""
    config = model.config.get_text_config(decoder=True)
    return min((getattr(config, name, None) or float("inf") for name in _WINDOWS), default=float("inf"))


def _can_run_trees(model: PreTrainedModel) -> bool:
    """True when positions and a mask are all that a token takes from its row.

    Decided by the model's arguments and cache, and by trying it: hidden states of merged rows against separate ones.
    """
    parameters = inspect.signature(model.base_model.forward).parameters
    config = model.config.get_text_config(decoder=True)
    layers = DynamicCache(config=model.config).layers
    return (
        {"position_ids", "attention_mask"} <= parameters.keys()
        and config._attn_implementation in ("eager", "sdpa")
        and len(layers) == config.num_hidden_layers
        and all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)
        and longest_row(model) >= max(map(len, _PROBE))
        and _merged_equals_separate(model)
    )


_PROBE = [Row((0, 1), (0, 2)), Row((0, 1), (1, 0, 2))]


def _merged_equals_separate(model: PreTrainedModel) -> bool:
    found = []
    for worth in (0.0, float("inf")):
        [batch] = pack(_PROBE, token_budget=16, device=model.device, scores_per_token=worth)
        try:
            with torch.no_grad(), evaluating(model):
                hidden = model.base_model(**arguments(model, batch), use_cache=False).last_hidden_state
        except (RuntimeError, ValueError, TypeError):  # the mask is not of the shape this model wants
            return False
        parts = torch.split(hidden.flatten(0, 1)[batch.predictors], list(batch.lengths))
        found.append(torch.cat([parts[batch.members.index(member)] for member in range(len(_PROBE))]))
    separate, merged = found
    tolerance = 1e-3 if torch.finfo(model.dtype).bits >= 32 else 0.05
    return torch.allclose(merged, separate, rtol=0, atol=tolerance * separate.abs().max().item())
