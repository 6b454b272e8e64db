"""Keys and values of the rows that are being decoded, in storage that is allocated once and written in place.

R rows, H key/value heads, C columns of storage (the capacity), D head width. A row's tokens fill the columns from its
own start to the write position that all rows share, so that the distance of two columns is the distance of two
tokens: what sliding windows need.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer


class BufferLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, [R, H, C, D]; only the first ``length`` columns are in use."""

    keys: Tensor
    values: Tensor

    def __init__(self, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate for the rows, heads, width, dtype and device of these states."""
        self.device = key_states.device
        self.keys, self.values = (
            states.new_empty((*states.shape[:2], self.capacity, states.shape[3]))
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the new columns and return views of everything in use: what transformers asks of a cache layer."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        """The number of columns in use, from which transformers derives masks and positions."""
        return self.length


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Rows to carry over into a new cache."""

    cache: Cache
    rows: Tensor
    """[R] int64 row of ``cache`` for each row taken; a row may be taken many times."""
    is_consumed: bool = False
    """Nobody needs ``cache`` afterwards: its storage is given up layer by layer, so that copying takes the memory of
    one more layer instead of one more cache."""


def empty_buffers(num_layers: int, capacity: int) -> Cache:
    """A cache for ``capacity`` columns, allocated by the first forward pass, which decides R, H and D."""
    return Cache(layers=[BufferLayer(capacity) for _ in range(num_layers)])


def gather_buffers(blocks: Sequence[Block], *, width: int, capacity: int) -> Cache:
    """Copy rows of several caches below one another, so that all of them end at column ``width``.

    A source that is wider loses columns on its left, which are padding of every row taken. A source that is narrower
    gets zeros there: columns that nobody attends to must still hold numbers, because 0 probability times NaN is NaN.
    """
    layers: list[Any] = []
    for index in range(len(blocks[0].cache.layers)):
        layers.append(_gather_layer(index, blocks, width, capacity))
        for block in blocks:
            if block.is_consumed:
                block.cache.layers[index] = BufferLayer(0)
    return Cache(layers=layers)


def spread_row(cache: Cache, starts: Tensor, *, width: int, capacity: int) -> Cache:
    """The only row of a cache repeated, row r moved ``starts[r]`` columns to the right and cut off at column ``width``.

    What is left of a row's start is padding and holds the row's first token.
    """
    columns = (torch.arange(width, device=starts.device) - starts[:, None]).clamp(min=0)
    sources: list[Any] = cache.layers
    layers: list[Any] = []
    for source in sources:
        layer = BufferLayer(capacity)
        layer.lazy_initialization(*(states.expand(len(starts), -1, -1, -1) for states in (source.keys, source.values)))
        layer.keys[:, :, :width] = source.keys[0][:, columns].transpose(0, 1)
        layer.values[:, :, :width] = source.values[0][:, columns].transpose(0, 1)
        layer.length = width
        layers.append(layer)
    return Cache(layers=layers)


def _gather_layer(index: int, blocks: Sequence[Block], width: int, capacity: int) -> BufferLayer:
    sources: list[Any] = [block.cache.layers[index] for block in blocks]
    num_rows = sum(len(block.rows) for block in blocks)
    layer = BufferLayer(capacity)
    layer.lazy_initialization(
        *(states[:1].expand(num_rows, -1, -1, -1) for states in (sources[0].keys, sources[0].values))
    )
    layer.length = width
    first = 0
    for source, block in zip(sources, blocks, strict=True):
        last = first + len(block.rows)
        _paste(layer.keys[first:last, :, :width], source.keys[:, :, : source.length], block.rows)
        _paste(layer.values[first:last, :, :width], source.values[:, :, : source.length], block.rows)
        first = last
    return layer


def _paste(into: Tensor, source: Tensor, rows: Tensor) -> None:
    num_columns = min(into.shape[2], source.shape[2])
    pad = into.shape[2] - num_columns
    into[:, :, :pad] = 0
    torch.index_select(source[:, :, source.shape[2] - num_columns :], 0, rows, out=into[:, :, pad:])


def empty_dynamic(config: PretrainedConfig) -> Cache:
    """The cache that transformers itself would make, for models that keep more than keys and values."""
    return DynamicCache(config=config)


def reorder_dynamic(block: Block) -> Cache:
    """Rows of a cache from ``empty_dynamic``; the source stays as it was unless it is consumed."""
    cache = block.cache if block.is_consumed else copy.deepcopy(block.cache)
    cache.reorder_cache(block.rows)  # type: ignore[arg-type]
    return cache
