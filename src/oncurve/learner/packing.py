"""Completions to padded micro-batches.

Shapes: B rows of a micro-batch, T its longest row, N its completion tokens, row by row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """One completion behind its prompt."""

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    """Tokens whose log-probs are wanted, the terminator included."""

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.token_ids)


@dataclass(frozen=True)
class MicroBatch:
    """Rows of similar length, padded on the right.

    Causal attention never looks to the right, so padding cannot reach a real token: every position is declared real,
    which lets attention take its fast causal path, and positions count from 0 in every row.
    """

    input_ids: Tensor
    """[B, T]"""
    attention_mask: Tensor
    """[B, T] ones."""
    predictors: Tensor
    """[N] index into the flattened [B * T] positions: the one whose logits predict each completion token."""
    targets: Tensor
    """[N] completion tokens."""
    members: tuple[int, ...]
    """Which of the packed rows these are, in order."""
    lengths: tuple[int, ...]
    """Completion tokens of each of them; they sum to N."""
    first_predictor: int
    """Smallest position within a row that predicts anything."""


def pack(rows: Sequence[Row], *, token_budget: int, device: torch.device) -> list[MicroBatch]:
    """Sort rows by length and cut them into micro-batches of at most ``token_budget`` padded tokens.

    Args:
        rows: the completions; a row without completion tokens is left out.
        token_budget: most B * T of a micro-batch; a row longer than it goes alone.
        device: where the tensors are wanted.

    Raises:
        ValueError: a prompt is empty: nothing could predict its first completion token.
    """
    for index, row in enumerate(rows):
        if not row.prompt_ids:
            raise ValueError(
                f"row {index} has an empty prompt: nothing predicts its first token. Start prompts with the "
                "tokenizer's beginning-of-sequence or end-of-sequence token."
            )
    longest_first = sorted((i for i, row in enumerate(rows) if row.token_ids), key=lambda i: -len(rows[i]))
    batches: list[MicroBatch] = []
    while longest_first:
        width = len(rows[longest_first[0]])
        height = max(1, token_budget // width)
        members, longest_first = longest_first[:height], longest_first[height:]
        batches.append(_micro_batch(rows, members, width, device))
    return batches


def _micro_batch(rows: Sequence[Row], members: Sequence[int], width: int, device: torch.device) -> MicroBatch:
    chosen = [rows[i] for i in members]
    ids = [[*row.prompt_ids, *row.token_ids] + [0] * (width - len(row)) for row in chosen]
    predictors = [
        line * width + len(row.prompt_ids) - 1 + offset
        for line, row in enumerate(chosen)
        for offset in range(len(row.token_ids))
    ]
    input_ids = torch.tensor(ids, device=device)
    return MicroBatch(
        input_ids=input_ids,
        attention_mask=torch.ones_like(input_ids),
        predictors=torch.tensor(predictors, device=device),
        targets=torch.tensor([token for row in chosen for token in row.token_ids], device=device),
        members=tuple(members),
        lengths=tuple(len(row.token_ids) for row in chosen),
        first_predictor=min(len(row.prompt_ids) for row in chosen) - 1,
    )
