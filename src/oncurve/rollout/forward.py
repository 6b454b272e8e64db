"""How this engine calls a transformers model: argument names, masks and positions, and which cache it can carry.

R rows, W columns in use, V vocabulary.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from oncurve.rollout.attention import GROUPED_EAGER, has_llama_attention
from oncurve.rollout.kv_cache import Block, empty_buffers, empty_dynamic, gather_buffers, reorder_dynamic, spread_row
from oncurve.rollout.network import Network
from oncurve.rollout.products import UnknownLayerError


@dataclass(frozen=True, kw_only=True, slots=True)
class Prefill:
    """Prompts that have gone through the model once."""

    logits: Tensor
    """[R, V] logits of the token after each prompt."""
    cache: Cache


@dataclass(frozen=True, kw_only=True, slots=True)
class Prefix:
    """Tokens that many prompts begin with, and their keys and values."""

    num_tokens: int
    cache: Cache
    """One row."""


class Forward:
    """The forward pass of one causal language model.

    ``has_standard_cache`` says whether rows of different lengths can share a batch and leave or enter it at any step:
    the model takes positions and a mask, and keeps nothing but keys and values per token. Other models (recurrent or
    convolutional states, no position argument) run through the cache of transformers, in batches of equal length.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        unwrap = getattr(model, "get_base_model", None)  # a PEFT wrapper: its layers sit inside the base model
        self._model: PreTrainedModel = unwrap() if unwrap is not None else model
        self._arguments = frozenset(inspect.signature(self._model.forward).parameters)
        self._cache_argument = next((name for name in ("cache", "past_key_values") if name in self._arguments), None)
        self.config = self._model.config.get_text_config(decoder=True)
        layers = _layers_of(self._model)
        self._num_layers = len(layers)
        self.has_standard_cache = bool(layers) and (
            {"position_ids", "attention_mask"} <= self._arguments
            and self._num_layers == self.config.num_hidden_layers
            and all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)
        )
        is_full_attention = all(type(layer) is DynamicLayer for layer in layers)
        # A ready additive mask spares the model building one per step. With sliding windows it builds its own.
        self._takes_additive_mask = is_full_attention and self.config._attn_implementation in ("sdpa", "eager")
        num_heads = getattr(self.config, "num_attention_heads", None)  # a state-space model has none
        self._has_grouped_heads = getattr(self.config, "num_key_value_heads", num_heads) != num_heads

    @property
    def model(self) -> PreTrainedModel:
        return self._model

    @cached_property
    def fault(self) -> str:
        """Why the model cannot be decoded token by token with a cache that is handed to it; empty if it can.

        Tried out once, with rows that are repeated and reordered: what a signature promises, a recurrent state or a
        compressed cache may not keep.
        """
        name = type(self._model).__name__
        if self._cache_argument is None:
            return f"{name} takes no key/value cache"
        ids = torch.tensor([[3, 4, 5], [1, 2, 5], [3, 4, 6]], device=self.device) % self.vocab_size
        first, second = (tuple(ids[row, :2].tolist()) for row in (1, 0))
        try:
            block = Block(cache=self.prefill([first, second]).cache, rows=torch.tensor([1, 0, 1], device=self.device))
            cache, starts = self.gather([block], width=2, capacity=3), torch.zeros_like(ids[:, 0])
            last = self.step(ids[:, 2], starts + 2, self.decode_mask(starts, 3), cache)
            whole = self.whole(ids)[:, -1]
        except Exception as error:  # noqa: BLE001  # foreign code, any of whose failures means the same
            return f"{name} fails with a cache from outside ({type(error).__name__})"
        gap = (last.float().log_softmax(-1) - whole.float().log_softmax(-1)).abs().max()
        is_far = bool(gap > (0.5 if self._model.dtype is torch.bfloat16 else 1e-2))
        return f"{name} gives other logits with a cache from outside" if is_far else ""

    @property
    def device(self) -> torch.device:
        return self._model.device

    @property
    def vocab_size(self) -> int:
        return int(self.config.vocab_size)

    def network(self) -> Network:
        """The model rebuilt from its weights as they are now. It takes a moment: weights are fused and packed.

        Raises:
            UnknownLayerError: this model has to run its own code.
        """
        if self._model.device.type != "cpu":
            raise UnknownLayerError(f"weights on {self._model.device.type}")
        return Network(self._model)

    @contextmanager
    def for_sampling(self) -> Iterator[None]:
        """Without dropout, and where heads share keys with the eager attention that does not copy them."""
        was_training, attention = self._model.training, self._model.config._attn_implementation
        self._model.train(False)
        if attention == "eager" and self._has_grouped_heads and has_llama_attention(self._model):
            self._model.set_attn_implementation(GROUPED_EAGER)
        try:
            yield
        finally:
            self._model.train(was_training)
            if self._model.config._attn_implementation != attention:
                self._model.set_attn_implementation(attention)

    def prefill(self, prompts: Sequence[tuple[int, ...]], prefix: Prefix | None = None) -> Prefill:
        """Run prompts through the model once, padded on the left with a token that nothing attends to.

        Args:
            prompts: R prompts of at least one token.
            prefix: what all prompts begin with, each longer than it. The longest prompt skips it, and the others skip
                as many columns: where a prompt is shorter by some tokens, so many of the prefix run again.
        """
        width = max(map(len, prompts))
        skipped = 0 if prefix is None else prefix.num_tokens
        starts = torch.tensor([width - len(prompt) for prompt in prompts])
        ids = torch.tensor([((0,) * (width - len(prompt)) + prompt)[skipped:] for prompt in prompts])
        arguments: dict[str, Any] = {"input_ids": ids.to(self.device)}
        if bool(starts.any()):
            columns = torch.arange(width)
            arguments["attention_mask"] = (columns >= starts[:, None]).to(self.device)
            arguments["position_ids"] = (columns[skipped:] - starts[:, None]).clamp(min=0).to(self.device)
        if prefix is not None:
            cache = spread_row(prefix.cache, starts.to(self.device), width=skipped, capacity=width)
        elif self.has_standard_cache:
            cache = empty_buffers(self._num_layers, width)
        else:
            cache = empty_dynamic(self._model.config)
        return Prefill(logits=self._call(arguments, cache), cache=cache)

    def whole(self, ids: Tensor) -> Tensor:
        """[R, T, V] logits of sequences [R, T], without a cache."""
        options = {"use_cache": False} if "use_cache" in self._arguments else {}
        logits: Tensor = self._model(input_ids=ids, **options).logits
        return logits

    def step(self, ids: Tensor, positions: Tensor, mask: Tensor | None, cache: Cache) -> Tensor:
        """One more token per row.

        Args:
            ids: [R] int64.
            positions: [R] int64, 0 for the first token of a prompt.
            mask: [R, W] from ``decode_mask``, the new column included; None when no row is padded.
            cache: gains one column.

        Returns:
            [R, V] logits of the next token.
        """
        arguments: dict[str, Any] = {"input_ids": ids[:, None]}
        if "position_ids" in self._arguments:
            arguments["position_ids"] = positions[:, None]
        if mask is not None:
            arguments["attention_mask"] = mask[:, None, None, :] if self._takes_additive_mask else mask
        return self._call(arguments, cache)

    def decode_mask(self, starts: Tensor, capacity: int) -> Tensor | None:
        """[R, capacity] mask whose first W columns serve the step that ends at column W; None where it is not needed.

        Heads that share keys get one although no row is padded: fused attention then takes them as one query.
        """
        if not bool(starts.any()) and not (self._takes_additive_mask and self._has_grouped_heads):
            return None
        is_token = torch.arange(capacity, device=starts.device) >= starts[:, None]
        if not self._takes_additive_mask:
            return is_token
        additive = torch.zeros(is_token.shape, dtype=self._model.dtype, device=starts.device)
        return additive.masked_fill_(~is_token, torch.finfo(additive.dtype).min)

    def gather(self, blocks: Sequence[Block], *, width: int, capacity: int) -> Cache:
        """One cache from rows of several. Without a standard cache there is only ever one block, of the same width."""
        if self.has_standard_cache:
            return gather_buffers(blocks, width=width, capacity=capacity)
        return reorder_dynamic(blocks[0])

    def _call(self, arguments: dict[str, Any], cache: Cache) -> Tensor:
        arguments[str(self._cache_argument)] = cache
        if "logits_to_keep" in self._arguments:
            arguments["logits_to_keep"] = 1
        logits: Tensor = self._model(**arguments, use_cache=True).logits
        return logits[:, -1]


def _layers_of(model: PreTrainedModel) -> list[Any]:
    """The layers of the cache that transformers makes for a model; none for a model it makes no such cache for."""
    try:
        return list(DynamicCache(config=model.config).layers)
    except (AttributeError, KeyError, ValueError):
        return []
