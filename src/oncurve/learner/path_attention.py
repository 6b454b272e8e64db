"""Attention of packed rows: each token to the path that leads to it, and to nothing else.

Rows lie one after the other without padding, and what they share lies there once (``prefix_tree``). Only attention sees
that structure. It works on pieces of rows: the tokens of a piece are queries, the path to its last token are the keys,
and since keys stand in the order of their depth, a query of depth d sees keys 0 to d.

    piece      queries        keys                 scores: 8 * 16 here, where one matrix of all tokens has 24 * 24
    a          0 .. 15        0 .. 15
    b          16 .. 23       0 .. 7, 16 .. 23     shares its first 8 tokens with a

Pieces of similar size are one batch of matrix products with a softmax between them: on a CPU the fused attention has a
slow backward pass in bfloat16 and none for structures like this.

Shapes: N tokens, H heads, H' heads of keys and values, R = H / H', D width of a head; S pieces of a block, L queries
and K keys of its largest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oncurve.learner.prefix_tree import Tree

MAX_QUERIES = 64
"""Tokens of a piece: half of the scores of a piece with itself are masked, so a long row is cut."""
PADDED_SCORES = 1.4
"""Scores of a block over those of its pieces, at most; fewer blocks are fewer calls."""
SMALL_BLOCK = 1 << 18
"""A block grows to this many padded scores a head whatever it holds."""
LARGE_SCORES = 4
"""Probabilities are kept up to this many times the numbers they come from, else made again."""
NAME = "oncurve_paths"
"""Of this attention among those of transformers."""


@dataclass(frozen=True, slots=True)
class Block:
    """Pieces of similar size."""

    queries: Tensor
    """[S, L] tokens; 0 where a piece is shorter."""
    keys: Tensor
    """[S, K] tokens, by depth; 0 beyond the end of the path."""
    depths: Tensor
    """[S, L] of the queries; 0 where there is none, which lets it see one key and be ignored."""
    is_empty: Tensor
    """[S, L] True where a piece has no such query."""
    is_key: Tensor
    """[S, K] True where the path has such a key."""
    has_empty: bool

    def is_hidden(self, window: int | None) -> Tensor:
        """[S, L, K] True where a query does not see a key: it lies after the query, or ``window`` or more before it."""
        behind = self.depths[:, :, None] - torch.arange(self.keys.shape[1], device=self.depths.device)
        return behind < 0 if window is None else (behind < 0) | (behind >= window)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the rows of one head [D] lie, for numbers of heads H and H'."""

    queries: tuple[Tensor, ...]
    """A block: [S * H' * R * L] rows of the queries [N * H]."""
    keys: tuple[Tensor, ...]
    """A block: [S * H' * K] rows of keys or values [N * H']."""
    places: Tensor
    """[N * H] rows of the blocks' outputs, one after the other."""
    readers: Tensor
    """[H' * M] rows of the blocks' keys, head by head and token by token."""
    first_readers: Tensor
    """[H' * N] where those of each token begin."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Who attends to whom in a packed micro-batch."""

    blocks: tuple[Block, ...]
    num_tokens: int
    _hidden: dict[tuple[int, int | None], Tensor] = field(default_factory=dict)
    _layouts: dict[tuple[int, int], Layout] = field(default_factory=dict)

    def is_hidden(self, block: int, window: int | None) -> Tensor:
        """``Block.is_hidden``, kept for the next layer."""
        found = self._hidden.get((block, window))
        if found is None:
            found = self._hidden[block, window] = self.blocks[block].is_hidden(window)
        return found

    def layout(self, heads: int, key_heads: int) -> Layout:
        """The rows for so many heads, kept for the next layer."""
        found = self._layouts.get((heads, key_heads))
        if found is None:
            found = self._layouts[heads, key_heads] = _layout(self, heads, key_heads)
        return found


def _layout(paths: Paths, heads: int, key_heads: int) -> Layout:
    device = paths.blocks[0].queries.device
    head, key_head = torch.arange(heads, device=device), torch.arange(key_heads, device=device)
    queries, keys, read, readers = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
    places = torch.empty(paths.num_tokens, heads, dtype=torch.long, device=device)
    first_query = first_key = 0
    for block in paths.blocks:
        query, key = block.queries[:, None, :], block.keys[:, None, :]
        queries.append((query * heads + head[:, None]).reshape(-1))
        keys.append((key * key_heads + key_head[:, None]).reshape(-1))
        outputs = torch.arange(queries[-1].numel(), device=device).view(len(query), heads, -1) + first_query
        is_query = ~block.is_empty
        places[block.queries[is_query]] = outputs.transpose(1, 2)[is_query]
        rows = torch.arange(keys[-1].numel(), device=device).view(len(key), key_heads, -1) + first_key
        read.append(block.keys[block.is_key])
        readers.append(rows.transpose(1, 2)[block.is_key])
        first_query, first_key = first_query + queries[-1].numel(), first_key + keys[-1].numel()
    tokens, order = torch.cat(read).sort(stable=True)
    counts = torch.bincount(tokens, minlength=paths.num_tokens)
    firsts = (counts.cumsum(0) - counts) + key_head[:, None] * len(tokens)
    by_head = torch.cat(readers)[order].t().reshape(-1)
    return Layout(tuple(queries), tuple(keys), places.reshape(-1), by_head, firsts.reshape(-1))


def paths_of(trees: Sequence[Tree], device: torch.device) -> Paths:
    """The pieces of these trees, whose tokens lie one after the other."""
    pieces = sorted(_pieces(trees), key=lambda piece: (-len(piece[1]), -len(piece[0])))
    blocks = tuple(_block(members, device) for members in _similar(pieces))
    return Paths(blocks=blocks, num_tokens=sum(map(len, trees)))


Piece = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Queries and keys."""


def _pieces(trees: Sequence[Tree]) -> Iterable[Piece]:
    for tree, first in zip(trees, accumulate(map(len, trees), initial=0), strict=False):
        num_seen = 0
        for path in tree.paths:
            nodes = np.fromiter(path, dtype=np.int64, count=len(path))
            num_shared = int(np.searchsorted(nodes, num_seen))  # nodes are numbered as they are added
            num_seen = max(num_seen, int(nodes[-1]) + 1)
            for start in range(num_shared, len(nodes), MAX_QUERIES):
                end = min(start + MAX_QUERIES, len(nodes))
                yield nodes[start:end] + first, nodes[:end] + first


def _similar(pieces: Sequence[Piece]) -> Iterable[list[Piece]]:
    block, longest, scores = list[Piece](), 0, 0
    for piece in pieces:
        queries, keys = piece
        widest = max(longest, len(queries))
        padded = (len(block) + 1) * widest * len(block[0][1] if block else keys)
        if block and padded > max(SMALL_BLOCK, PADDED_SCORES * (scores + len(queries) * len(keys))):
            yield block
            block, widest, scores = [], len(queries), 0
        block.append(piece)
        longest, scores = widest, scores + len(queries) * len(keys)
    yield block


def _block(pieces: Sequence[Piece], device: torch.device) -> Block:
    rows = np.full((len(pieces), max(len(queries) for queries, _ in pieces)), -1, dtype=np.int64)
    columns = np.full((len(pieces), len(pieces[0][1])), -1, dtype=np.int64)
    depths = np.zeros(rows.shape, dtype=np.int64)
    for place, (queries, keys) in enumerate(pieces):
        rows[place, : len(queries)] = queries
        columns[place, : len(keys)] = keys
        depths[place, : len(queries)] = np.arange(len(keys) - len(queries), len(keys))

    def made(values: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(values).to(device)

    return Block(
        queries=made(rows.clip(min=0)),
        keys=made(columns.clip(min=0)),
        depths=made(depths),
        is_empty=made(rows < 0),
        is_key=made(columns >= 0),
        has_empty=bool((rows < 0).any()),
    )


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, paths: Paths, *, scale: float = 1.0, window: int | None = None
) -> Tensor:
    """Softmax attention along the paths.

    out[i] = sum_j softmax_j(scale q_i · k_j) v_j over the j on the path to i, i included; ``window`` keeps the last of
    them.

    Args:
        queries: [N, H, D].
        keys: [N, H', D], values alike.

    Returns:
        [N, H, D].
    """
    found: Tensor = _Attend.apply(queries, keys, values, paths, scale, window)  # type: ignore[no-untyped-call]
    return found


class _Attend(torch.autograd.Function):
    """Keeps its arguments, and probabilities unless they are many; gathers again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, paths: Paths, scale: float, window: int | None
    ) -> Tensor:
        layout = paths.layout(queries.shape[1], keys.shape[1])
        ctx.paths, ctx.scale, ctx.window = paths, scale, window
        outputs, weights = [], []
        for number in range(len(paths.blocks)):
            key, value = (_rows(part, layout.keys[number], paths.blocks[number].keys) for part in (keys, values))
            weights.append(_weights(ctx, queries, key, number, layout))
            outputs.append(torch.bmm(weights[-1], value).flatten(0, 1))
        are_kept = sum(part.numel() for part in weights) <= LARGE_SCORES * (queries.numel() + 2 * keys.numel())
        ctx.save_for_backward(queries, keys, values, *(weights if are_kept else ()))
        return torch.cat(outputs).index_select(0, layout.places).view_as(queries)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        queries, keys, values, *kept = ctx.saved_tensors
        paths: Paths = ctx.paths
        layout = paths.layout(queries.shape[1], keys.shape[1])
        of_queries, of_keys, of_values = [], [], []
        for number, block in enumerate(paths.blocks):
            key, value = (_rows(part, layout.keys[number], block.keys) for part in (keys, values))
            weights = kept[number] if kept else _weights(ctx, queries, key, number, layout)
            gradient = _query_rows(gradients[0], keys, layout.queries[number], block)
            if block.has_empty:
                heads = gradient.view(len(block.queries), -1, *block.queries.shape[1:], gradient.shape[-1])
                heads.masked_fill_(block.is_empty[:, None, :, None], 0.0)
            of_values.append(torch.bmm(weights.transpose(1, 2), gradient).flatten(0, 1))
            of_weights = torch.bmm(gradient, value.transpose(1, 2))
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            of_queries.append(torch.bmm(of_scores, key).flatten(0, 1))
            query = _query_rows(queries, keys, layout.queries[number], block)
            of_keys.append(torch.bmm(of_scores.transpose(1, 2), query).flatten(0, 1))
        of_query = torch.cat(of_queries).index_select(0, layout.places).mul_(ctx.scale).view_as(queries)
        return of_query, _summed(of_keys, keys, layout, ctx.scale), _summed(of_values, keys, layout), None, None, None


def _weights(ctx: Any, queries: Tensor, key: Tensor, number: int, layout: Layout) -> Tensor:
    """[S * H', R * L, K] probabilities."""
    block = ctx.paths.blocks[number]
    query = layout.queries[number]
    rows = queries.reshape(-1, queries.shape[-1]).index_select(0, query).mul_(ctx.scale)
    scores = torch.bmm(rows.view(len(key), -1, queries.shape[-1]), key.transpose(1, 2))
    hidden = ctx.paths.is_hidden(number, ctx.window)[:, None]
    scores.view(len(block.queries), -1, *hidden.shape[-2:]).masked_fill_(hidden, float("-inf"))
    return torch.softmax(scores, dim=-1)


def _query_rows(tokens: Tensor, keys: Tensor, rows: Tensor, block: Block) -> Tensor:
    """[N, H, D] to [S * H', R * L, D]."""
    found = tokens.reshape(-1, tokens.shape[-1]).index_select(0, rows)
    return found.view(len(block.queries) * keys.shape[1], -1, tokens.shape[-1])


def _rows(tokens: Tensor, rows: Tensor, keys: Tensor) -> Tensor:
    """[N, H', D] to [S * H', K, D]."""
    return tokens.reshape(-1, tokens.shape[-1]).index_select(0, rows).view(-1, keys.shape[1], tokens.shape[-1])


def _summed(parts: list[Tensor], like: Tensor, layout: Layout, scale: float = 1.0) -> Tensor:
    """Rows of the blocks' keys, added up by token: [N, H', D]."""
    rows = torch.cat(parts)
    found = torch.nn.functional.embedding_bag(layout.readers, rows, layout.first_readers, mode="sum")
    found = found if scale == 1.0 else found.mul_(scale)
    return found.view(like.shape[1], like.shape[0], -1).transpose(0, 1)
