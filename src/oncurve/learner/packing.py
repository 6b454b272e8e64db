"""Completions to padded micro-batches.

Shapes: B lines of a micro-batch (a line is a row, or a tree of rows that begin alike), T its longest line, N its
completion tokens, row by row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from oncurve.learner.path_attention import Paths, paths_of
from oncurve.learner.prefix_tree import Sharing, Tree, grow
from oncurve.types import Completion, Inserted, weave


@dataclass(frozen=True, slots=True)
class Row:
    """One completion behind its prompt."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    """Tokens whose log-probs are wanted, the terminator included."""
    inserted: Sequence[Inserted] = ()
    """Tokens of an environment between them: attended to, and nothing else."""

    def __len__(self) -> int:
        inserted = sum(len(part.token_ids) for part in self.inserted)
        return len(self.prompt_ids) + max(0, len(self.token_ids) + inserted - 1)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The tokens that predict something, or precede one that does: all but the last."""
        if not self.inserted:
            return (*self.prompt_ids, *self.token_ids[:-1])
        return (*self.prompt_ids, *weave(self.token_ids, self.inserted).token_ids[:-1])

    @property
    def predictors(self) -> Sequence[int]:
        """[L] place among ``inputs`` of the token that predicts each of ``token_ids``: the one right before it."""
        first = len(self.prompt_ids) - 1
        if not self.inserted:
            return range(first, first + len(self.token_ids))
        woven = weave(self.token_ids, self.inserted)
        return [first + place for place, is_sampled in enumerate(woven.is_sampled) if is_sampled]


def row_of(completion: Completion) -> Row:
    """A completion as a row."""
    return Row(completion.prompt_ids, completion.token_ids, completion.inserted)


@dataclass(frozen=True)
class MicroBatch:
    """Lines of similar length, padded on the right.

    Causal attention never looks to the right, so padding cannot reach a real token. Without trees every position is
    therefore declared real, which lets attention take its fast causal path, and positions count from 0 in every row.
    """

    input_ids: Tensor
    """[B, T]"""
    position_ids: Tensor | None
    """[B, T] depth in the tree; None without trees: it is the column."""
    subtree_ends: Tensor | None
    """[B, T] column i sees column j exactly if j <= i < subtree_ends[j]; None without trees: all to its left."""
    predictors: Tensor
    """[N] index into the flattened [B * T] positions: the one whose logits predict each completion token."""
    targets: Tensor
    """[N] completion tokens."""
    members: tuple[int, ...]
    """Which of the packed rows these are, in order."""
    lengths: tuple[int, ...]
    """Completion tokens of each of them; they sum to N."""
    first_predictor: int
    """Smallest column that predicts anything."""
    paths: Paths | None = None
    """Who attends to whom where the lines are packed into one, [1, N'] without padding; None for padded lines."""

    def is_visible(self) -> Tensor | None:
        """[B, 1, T, T] True where the column of the second index is attended to; None without trees."""
        if self.subtree_ends is None:
            return None
        columns = torch.arange(self.input_ids.shape[1], device=self.input_ids.device)
        is_below = columns[:, None] < self.subtree_ends[:, None, None, :]
        return is_below & (columns <= columns[:, None])


def pack(
    rows: Sequence[Row], *, token_budget: int, device: torch.device, scores_per_token: float = 0.0
) -> list[MicroBatch]:
    """Merge rows that begin alike, sort by length and cut into micro-batches of at most ``token_budget`` padded tokens.

    Merging makes longer lines. So that they take no more memory than separate rows, a micro-batch also holds at most
    ``token_budget`` * (longest row) attention scores, which is what it could hold without merging.

    Args:
        rows: the completions; a row without completion tokens is left out.
        token_budget: most B * T of a micro-batch; a row longer than it goes alone.
        device: where the tensors are wanted.
        scores_per_token: what a token is worth, see ``Sharing``; 0 merges nothing.

    Raises:
        ValueError: a prompt is empty: nothing could predict its first completion token.
    """
    inputs = _inputs(rows)
    max_scores = token_budget * max((len(tokens) for _, tokens in inputs), default=0)
    sharing = Sharing(scores_per_token=scores_per_token, max_nodes=token_budget, max_scores=max_scores)
    longest_first = sorted(grow(inputs, sharing if scores_per_token else None), key=lambda tree: -len(tree))
    batches: list[MicroBatch] = []
    while longest_first:
        width = len(longest_first[0])
        height = max(1, min(token_budget // width, max_scores // width**2))
        lines, longest_first = longest_first[:height], longest_first[height:]
        batches.append(_micro_batch(rows, lines, width, device))
    return batches


def pack_flat(rows: Sequence[Row], *, token_budget: int, device: torch.device, is_shared: bool) -> list[MicroBatch]:
    """Lay rows one after the other, without padding, and cut into micro-batches of at most ``token_budget`` tokens.

    Args:
        rows: the completions; a row without completion tokens is left out.
        token_budget: most tokens of a micro-batch; a row longer than it goes alone.
        device: where the tensors are wanted.
        is_shared: what rows of a micro-batch begin with alike lies there once.

    Raises:
        ValueError: a prompt is empty: nothing could predict its first completion token.
    """
    always = Sharing(scores_per_token=float("inf"), max_nodes=token_budget, max_scores=token_budget**2)
    batches, trees, num_tokens = [], list[Tree](), 0
    for tree in grow(_inputs(rows), always if is_shared else None):
        if trees and num_tokens + len(tree) > token_budget:
            batches.append(_flat_batch(rows, trees, device))
            trees, num_tokens = [], 0
        trees.append(tree)
        num_tokens += len(tree)
    return [*batches, _flat_batch(rows, trees, device)] if trees else batches


def _inputs(rows: Sequence[Row]) -> list[tuple[int, tuple[int, ...]]]:
    for index, row in enumerate(rows):
        if not row.prompt_ids:
            raise ValueError(
                f"row {index} has an empty prompt: nothing predicts its first token. Start prompts with the "
                "tokenizer's beginning-of-sequence or end-of-sequence token."
            )
    return [(index, row.inputs) for index, row in enumerate(rows) if row.token_ids]


def _flat_batch(rows: Sequence[Row], trees: Sequence[Tree], device: torch.device) -> MicroBatch:
    members = tuple(member for tree in trees for member in tree.members)
    firsts = accumulate(map(len, trees), initial=0)
    predictors = [
        first + path[step]
        for first, tree in zip(firsts, trees, strict=False)
        for member, path in zip(tree.members, tree.paths, strict=True)
        for step in rows[member].predictors
    ]
    return MicroBatch(
        input_ids=torch.tensor([[token for tree in trees for token in tree.token_ids]], device=device),
        position_ids=torch.tensor([[depth for tree in trees for depth in tree.depths]], device=device),
        subtree_ends=None,
        predictors=torch.tensor(predictors, device=device),
        targets=torch.tensor([token for member in members for token in rows[member].token_ids], device=device),
        members=members,
        lengths=tuple(len(rows[member].token_ids) for member in members),
        first_predictor=min(predictors),
        paths=paths_of(trees, device),
    )


def _micro_batch(rows: Sequence[Row], lines: Sequence[Tree], width: int, device: torch.device) -> MicroBatch:
    def padded(values: Sequence[list[int]], padding: int) -> Tensor:
        return torch.tensor([line + [padding] * (width - len(line)) for line in values], device=device)

    is_plain = all(tree.is_chain for tree in lines)
    members = tuple(member for tree in lines for member in tree.members)
    predictors = [
        place * width + node
        for place, tree in enumerate(lines)
        for member, path in zip(tree.members, tree.paths, strict=True)
        for node in (path[step] for step in rows[member].predictors)
    ]
    return MicroBatch(
        input_ids=padded([tree.token_ids for tree in lines], 0),
        position_ids=None if is_plain else padded([tree.depths for tree in lines], 0),
        subtree_ends=None if is_plain else padded([tree.ends() for tree in lines], width),
        predictors=torch.tensor(predictors, device=device),
        targets=torch.tensor([token for member in members for token in rows[member].token_ids], device=device),
        members=members,
        lengths=tuple(len(rows[member].token_ids) for member in members),
        first_predictor=min(predictor % width for predictor in predictors),
    )
