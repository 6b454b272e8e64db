"""How a transformers model runs packed rows: the attention it calls, the parts that run fused, and whether it can.

A packed micro-batch is one line [1, N] of tokens with their positions. Everything but attention works token by token
and does not notice; attention is taken over through transformers' registry and follows ``path_attention``.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from oncurve.learner.fused import Forwards, fuse
from oncurve.learner.mode import evaluating
from oncurve.learner.packing import MicroBatch, Row, pack, pack_flat
from oncurve.learner.path_attention import NAME, Paths, attend

_RUNNING: dict[int, Paths] = {}
"""By identity of a model's config, while that model runs."""

_WINDOWS: dict[int, list[int | None]] = {}
"""By the same identity, while a model is tried: the window that each layer has asked for, in their order."""


def interface(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_arguments: Any,
) -> tuple[Tensor, None]:
    """Attention as the layers of transformers call it: [1, H, N, D] in, [1, N, H, D] out.

    Raises:
        ValueError: the layer wants its scores capped.
    """
    if softcap is not None:
        raise ValueError("attention along paths has no soft-capping")
    config: Any = module.config
    _WINDOWS.get(id(config), []).append(sliding_window)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    queries, keys, values = (part[0].transpose(0, 1).to(value.dtype) for part in (query, key, value))
    found = attend(queries, keys, values, _RUNNING[id(config)], scale=scale, window=sliding_window)
    return found[None], None


ALL_ATTENTION_FUNCTIONS.register(NAME, interface)


class PackedModel:
    """What it takes to run packed rows through a model, without keeping that alive.

    Args:
        model: stays as it is outside ``running``.
        is_fused: replace what ``fuse`` finds; else attention alone.

    ``follows_windows`` says that rows may be longer than a sliding window: the model's own layers ask attention for the
    windows that their caches have, which a trial tells.
    """

    def __init__(self, model: PreTrainedModel, *, is_fused: bool) -> None:
        self._config: Any = model.config.get_text_config(decoder=True)
        self.is_fused = is_fused
        self.follows_windows = False
        self._forwards: Forwards = fuse(model, interface) if is_fused else []

    @contextmanager
    def running(self, batch: MicroBatch) -> Iterator[dict[str, Tensor]]:
        """Inside the block the model runs this micro-batch, forward and backward; yields the arguments."""
        if batch.paths is None or batch.position_ids is None:
            raise ValueError("this micro-batch is padded, not packed: use tree_attention.arguments")
        config = self._config
        before, config._attn_implementation = config._attn_implementation, NAME
        _RUNNING[id(config)] = batch.paths
        for module, forward in self._forwards:
            module.forward = forward
        try:
            everywhere = torch.ones_like(batch.input_ids)  # looked at by nobody, but without it transformers warns
            yield {"input_ids": batch.input_ids, "position_ids": batch.position_ids, "attention_mask": everywhere}
        finally:
            for module, _ in self._forwards:
                del module.forward
            del _RUNNING[id(config)]
            config._attn_implementation = before


def packed_model(model: PreTrainedModel) -> PackedModel | None:
    """The fastest way in which this model runs packed rows; None, and a warning with the reason, where it cannot.

    Decided by its cache (a recurrent state has another) and by trying it: hidden states of packed rows that share a
    beginning against those of separate ones.
    """
    config = model.config.get_text_config(decoder=True)
    layers = DynamicCache(config=model.config).layers
    name, faults = type(model).__name__, list[str]()
    if len(layers) == getattr(config, "num_hidden_layers", 0) and all(
        type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers
    ):
        windows = [getattr(layer, "sliding_window", None) for layer in layers]
        for is_fused in (True, False):
            found = PackedModel(model, is_fused=is_fused)
            fault, asked = _trial_of(model, found)
            if fault is None:
                if faults:
                    warnings.warn(f"{name} is trained without fused parts, which is slower: {faults[0]}", stacklevel=2)
                found.follows_windows = asked == windows and (
                    not any(windows) or _trial_of(model, PackedModel(model, is_fused=False)) == (None, windows)
                )
                return found
            faults.append(fault)
    reason = faults[-1] if faults else "its layers keep something else than keys and values"
    warnings.warn(f"{name} is trained on padded rows, which is slower: {reason}", stacklevel=2)
    return None


_PROBE = [Row((0, 1), (0, 2)), Row((0, 1), (1, 0, 2))]

_MAX_ERROR = {True: 0.2, False: 1e-3}
"""By whether the model is in bfloat16: error of the median hidden state over its length. Single states of a deep model
in bfloat16 are off by more, whichever code runs them, above all the first of a text."""


def _trial_of(model: PreTrainedModel, packed: PackedModel) -> tuple[str | None, list[int | None]]:
    """Why a model cannot run so, None when it can; and the windows that its layers ask for."""
    identity = id(model.config.get_text_config(decoder=True))
    asked = _WINDOWS[identity] = []
    try:
        return _fault_of(model, packed), asked
    finally:
        del _WINDOWS[identity]


def _fault_of(model: PreTrainedModel, packed: PackedModel) -> str | None:
    [batch] = pack(_PROBE, token_budget=16, device=model.device)
    [flat] = pack_flat(_PROBE, token_budget=16, device=model.device, is_shared=True)
    with torch.no_grad(), evaluating(model):
        mask = torch.ones_like(batch.input_ids)
        separate = model.base_model(input_ids=batch.input_ids, attention_mask=mask, use_cache=False)
        try:
            with packed.running(flat) as arguments:
                merged = model.base_model(**arguments, use_cache=False)
        except (
            RuntimeError,
            ValueError,
            TypeError,
            AttributeError,
            KeyError,
        ) as error:  # of code that nobody here knows
            return f"{type(error).__name__}: {error}"
    expected, found = _of_rows(separate, batch), _of_rows(merged, flat)
    error_of = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    is_same = error_of.median().item() <= _MAX_ERROR[model.dtype is torch.bfloat16]
    return None if is_same else f"packed, its hidden states are off by {error_of.median().item():.2g} of their length"


def _of_rows(output: Any, batch: MicroBatch) -> Tensor:
    """[tokens, d] float hidden states in front of the completions' tokens, row after row."""
    states = output.last_hidden_state.flatten(0, 1)[batch.predictors].float()
    parts: Sequence[Tensor] = torch.split(states, list(batch.lengths))
    return torch.cat([parts[batch.members.index(member)] for member in range(len(_PROBE))])
