"""Keys and values where the rows of a group share their prompt's, and the attention over both parts.

    softmax([q Kₚᵀ | q Kₒᵀ] · scale) [Vₚ ; Vₒ]        p: of the prompt, once a group    o: the row's own

K key/value heads, S prompts, R rows, M most rows of one prompt, P longest prompt, C columns for sampled tokens,
E = H / K query heads that share keys, D head width. Everything is float32: on a CPU small products in bfloat16 take
twice as long.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from oncurve.rollout.network import Shape

_MIN_COLUMNS = 32
"""Columns for sampled tokens that a cache begins with; it doubles when they are full."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompts:
    """Keys and values of prompts, one tensor a layer, left-aligned: what lies behind a prompt's end is 0."""

    keys: list[Tensor]
    """[K, S, P, D]."""
    values: list[Tensor]
    """[K, S, P, D]."""
    lengths: Tensor
    """[S] int64."""

    def __len__(self) -> int:
        return len(self.lengths)

    @staticmethod
    def empty(shape: Shape, lengths: Sequence[int]) -> "Prompts":
        """Room for prompts of these lengths."""
        size = (shape.num_kv_heads, len(lengths), max(lengths, default=0), shape.head_dim)
        keys, values = ([torch.zeros(size) for _ in range(shape.num_layers)] for _ in range(2))
        return Prompts(keys=keys, values=values, lengths=torch.tensor(lengths, dtype=torch.int64))

    def write(self, layer: int, prompt: int, first: int, keys: Tensor, values: Tensor) -> None:
        """Put keys and values [T, K, D] of tokens from position ``first`` on."""
        last = first + len(keys)
        self.keys[layer][:, prompt, first:last] = keys.transpose(0, 1)
        self.values[layer][:, prompt, first:last] = values.transpose(0, 1)

    @staticmethod
    def joined(old: "Prompts", kept: Sequence[int], new: "Prompts") -> "Prompts":
        """Some of the old prompts, then the new ones, as wide as the longest of them. Each layer of ``old`` is given
        up when it is copied."""
        rows = torch.tensor(kept, dtype=torch.int64)
        lengths = torch.cat([old.lengths[rows], new.lengths])
        width = int(lengths.max()) if len(lengths) else 0
        joined: list[list[Tensor]] = [[], []]
        for out, olds, news in zip(joined, (old.keys, old.values), (new.keys, new.values), strict=True):
            for layer, (before, added) in enumerate(zip(olds, news, strict=True)):
                whole = before.new_zeros((before.shape[0], len(lengths), width, before.shape[3]))
                columns = min(width, before.shape[2])
                whole[:, : len(kept), :columns] = before[:, :, :columns].index_select(1, rows)
                whole[:, len(kept) :, : added.shape[2]] = added
                olds[layer] = before.new_empty(0)
                out.append(whole)
        return Prompts(keys=joined[0], values=joined[1], lengths=lengths)


class SharedCache:
    """The rows of a batch, their prompts, and what they have sampled.

    Args:
        shape: of the model.
        prompts: that the rows continue.
        prompt_of: [R] int64 prompt of each row.
        max_columns: most tokens of a row.
    """

    def __init__(self, shape: Shape, prompts: Prompts, prompt_of: Tensor, *, max_columns: int) -> None:
        self._shape = shape
        self._max_columns = max_columns
        columns = min(_MIN_COLUMNS, max_columns)
        size = (shape.num_kv_heads, len(prompt_of), columns, shape.head_dim)
        self._keys, self._values = ([torch.zeros(size) for _ in range(shape.num_layers)] for _ in range(2))
        self.counts = torch.zeros(len(prompt_of), dtype=torch.int64)
        """[R] tokens of each row whose keys are here."""
        self._width = 0
        self._set_rows(prompts, prompt_of)
        self._masks: dict[int | None, Tensor | None] = {}

    def _set_rows(self, prompts: Prompts, prompt_of: Tensor) -> None:
        self.prompts, self.prompt_of = prompts, prompt_of
        num_rows, num_prompts = len(prompt_of), len(prompts)
        sizes = torch.bincount(prompt_of, minlength=num_prompts)
        self._members = int(sizes.max()) if num_rows else 0
        order = torch.argsort(prompt_of, stable=True)
        ends = sizes.cumsum(0)
        place = torch.empty_like(order)
        place[order] = torch.arange(num_rows) - (ends - sizes).repeat_interleave(sizes)
        self._cell_of = prompt_of * self._members + place
        grid = torch.zeros(num_prompts * self._members, dtype=torch.int64)
        grid[self._cell_of] = torch.arange(num_rows)
        self._row_of = grid
        is_straight = num_rows == len(grid) and bool((self._cell_of == torch.arange(num_rows)).all())
        self._is_straight = is_straight
        self._row_index = torch.arange(num_rows)

    @property
    def positions(self) -> Tensor:
        """[R] position of the next token of each row."""
        return self.prompts.lengths[self.prompt_of] + self.counts

    def change(self, kept: Tensor, prompts: Prompts, prompt_of: Tensor) -> None:
        """Keep some rows, which come first, and add empty ones.

        Args:
            kept: int64 rows of now.
            prompts: of the rows to be.
            prompt_of: [R] their prompts.
        """
        num_new = len(prompt_of) - len(kept)
        self._width = int(self.counts[kept].max()) if len(kept) else 0
        for states in (self._keys, self._values):
            for layer, old in enumerate(states):
                new = old.new_zeros((old.shape[0], len(prompt_of), old.shape[2], old.shape[3]))
                new[:, : len(kept), : self._width] = old[:, :, : self._width].index_select(1, kept)
                states[layer] = new
        self.counts = torch.cat([self.counts[kept], self.counts.new_zeros(num_new)])
        self._set_rows(prompts, prompt_of)

    def begin_step(self) -> None:
        """Make room for one more token of every row, and the masks of the step. A row that has used up its columns
        overwrites the last of them: it has ended, and nobody reads it."""
        self._columns = self.counts.clamp(max=self._max_columns - 1)
        self._width = min(self._width + 1, self._max_columns)
        if self._width > self._keys[0].shape[2]:
            grown = min(2 * self._keys[0].shape[2], self._max_columns)
            for states in (self._keys, self._values):
                for layer, old in enumerate(states):
                    states[layer] = F.pad(old, (0, 0, 0, grown - old.shape[2]))
        self._is_even = bool((self._columns == self._width - 1).all())
        self._masks = {window: self._mask(window) for window in set(self._shape.windows)}

    def end_step(self) -> None:
        """Count the token."""
        self.counts += 1

    def _mask(self, window: int | None) -> Tensor | None:
        """[1, R, 1, P + C] to be added to the scores; None where everything is seen."""
        lengths = self.prompts.lengths[self.prompt_of]
        width = self.prompts.keys[0].shape[2]
        positions = lengths + self._columns
        is_full = self._is_even and bool((lengths == width).all())
        if is_full and (window is None or int(positions.max()) < window):
            return None
        prompt, own = torch.arange(width), torch.arange(self._width)
        is_seen = torch.cat([prompt < lengths[:, None], own <= self._columns[:, None]], dim=1)
        if window is not None:
            at = torch.cat([prompt.expand(len(lengths), -1), lengths[:, None] + own], dim=1)
            is_seen &= positions[:, None] - at < window
        return torch.zeros(is_seen.shape).masked_fill_(~is_seen, -torch.inf)[None, :, None, :]

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Store the new token of every row and attend to everything the row has; see ``network.Attend``, T = R."""
        num_rows, heads, width = queries.shape
        own_keys, own_values = self._keys[layer], self._values[layer]
        if self._is_even:
            own_keys[:, :, self._width - 1] = keys.transpose(0, 1)
            own_values[:, :, self._width - 1] = values.transpose(0, 1)
        else:
            own_keys[:, self._row_index, self._columns] = keys.transpose(0, 1).float()
            own_values[:, self._row_index, self._columns] = values.transpose(0, 1).float()
        own_keys, own_values = own_keys[:, :, : self._width], own_values[:, :, : self._width]
        kv_heads = own_keys.shape[0]
        scaled = (queries * self._shape.scales[layer]).float()
        split = scaled.view(num_rows, kv_heads, heads // kv_heads, width).transpose(0, 1).contiguous()
        prompt_keys, prompt_values = self.prompts.keys[layer], self.prompts.values[layer]
        to_prompt = self._by_row(torch.matmul(self._by_prompt(split), prompt_keys.transpose(2, 3)), num_rows)
        weights = self._weights(layer, to_prompt, torch.matmul(split, own_keys.transpose(2, 3)), queries.dtype)
        num_prompt = prompt_keys.shape[2]
        mixed = self._by_row(torch.matmul(self._by_prompt(weights[..., :num_prompt]), prompt_values), num_rows)
        mixed = mixed + torch.matmul(weights[..., num_prompt:], own_values)
        return mixed.transpose(0, 1).reshape(num_rows, heads * width).to(queries.dtype)

    def _weights(self, layer: int, to_prompt: Tensor, to_own: Tensor, dtype: torch.dtype) -> Tensor:
        """[K, R, E, P + C] softmax of the products, rounded where the learner's attention rounds."""
        scores = torch.cat([to_prompt.to(dtype), to_own.to(dtype)], dim=3).float()
        mask = self._masks[self._shape.windows[layer]]
        if mask is not None:
            scores += mask
        return scores.softmax(dim=3).to(dtype).float()

    def _by_prompt(self, x: Tensor) -> Tensor:
        """[K, R, E, N] as [K, S, M * E, N]; what no row fills repeats row 0."""
        if not self._is_straight:
            x = x.index_select(1, self._row_of)
        return x.reshape(x.shape[0], len(self.prompts), -1, x.shape[3])

    def _by_row(self, x: Tensor, num_rows: int) -> Tensor:
        """[K, S, M * E, N] as [K, R, E, N]."""
        x = x.view(x.shape[0], len(self.prompts) * self._members, -1, x.shape[3])
        return x if self._is_straight else x.index_select(1, self._cell_of[:num_rows])


class PromptAttention:
    """Attention within each prompt of a packed run, which also fills the cache.

    Args:
        shape: of the model.
        prompts: written to. What lies before a span's position is there already.
        spans: (prompt, position of its first token here, number of its tokens here), in the order of the run.
        dtype: of the products.
    """

    def __init__(
        self, shape: Shape, prompts: Prompts, spans: Sequence[tuple[int, int, int]], dtype: torch.dtype
    ) -> None:
        self._shape = shape
        self._prompts = prompts
        self._spans = spans
        self._dtype = dtype

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See ``network.Attend``."""
        mixed, first, window = [], 0, self._shape.windows[layer]
        repeats = self._shape.num_heads // self._shape.num_kv_heads
        for prompt, position, count in self._spans:
            last, end = first + count, position + count
            self._prompts.write(layer, prompt, position, keys[first:last], values[first:last])
            seen_keys, seen_values = (
                states[layer][:, prompt, :end].to(self._dtype).repeat_interleave(repeats, dim=0)
                for states in (self._prompts.keys, self._prompts.values)
            )
            scaled = (queries[first:last] * self._shape.scales[layer]).transpose(0, 1)
            scores = torch.matmul(scaled, seen_keys.transpose(1, 2))
            scores = scores.masked_fill_(~_causal(position, end, window), -torch.inf)
            out = torch.matmul(scores.softmax(dim=-1), seen_values)
            mixed.append(out.transpose(0, 1).reshape(count, -1))
            first = last
        return torch.cat(mixed)


def _causal(first: int, end: int, window: int | None) -> Tensor:
    """[end - first, end] True where a query at positions first..end sees a key."""
    distance = torch.arange(first, end)[:, None] - torch.arange(end)
    is_seen = distance >= 0
    return is_seen if window is None else is_seen & (distance < window)
