"""How alike two predictors are: in their errors, and in the weights they behave as if they had.

B prompts, K points, d dimensions, Q fresh queries. A predictor maps inputs [B, K, d] and targets [B, K] to predictions
[B, K], number n from the n examples before it.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Predict = Callable[[Tensor, Tensor], Tensor]
"""Inputs [B, K, d] and targets [B, K] to predictions [B, K]."""


def error_similarity(first: Tensor, second: Tensor, targets: Tensor, *, start: int = 1) -> float:
    """Return SimE: the cosine between the errors of two predictors along a prompt, averaged over prompts.

    Args:
        first: [B, K] predictions.
        second: [B, K] predictions.
        targets: [B, K] what was to be predicted.
        start: fewest examples that count; without any example all predictors err alike.

    Returns:
        In [-1, 1]. A prompt on which one of the two makes no error at all counts 0, unless both make none: 1.

    Source:
        Fu et al., arXiv:2310.17086, section 4.
    """
    mine, theirs = (first - targets)[:, start:].double(), (second - targets)[:, start:].double()
    return float(_cosine(mine, theirs).mean())


def weight_similarity(first: Tensor, second: Tensor) -> float:
    """Return SimW: the mean cosine between induced weights, [..., d] each, as ``error_similarity`` treats zeros.

    Source:
        Fu et al., arXiv:2310.17086, section 4.
    """
    return float(_cosine(first.double(), second.double()).mean())


def induced_weights(predict: Predict, inputs: Tensor, targets: Tensor, count: int, queries: Tensor) -> Tensor:
    """Return the weights of the linear function nearest to predictors, given the first ``count`` examples.

    A predictor answers every query after the same examples; least squares through the origin fits its answers.

    Args:
        predict: one predictor, or several at once: [B, K, d], [B, K] -> [..., B, K].
        inputs: [B, K, d], K >= count.
        targets: [B, K]
        count: examples in the prompt.
        queries: [Q, d] with Q at least d, better many times d.

    Returns:
        [..., B, d] float64.

    Raises:
        ValueError: fewer queries than dimensions, or fewer points than ``count``.
    """
    (num_prompts, num_points, dim), num_queries = inputs.shape, len(queries)
    if num_queries < dim or num_points < count:
        raise ValueError(
            f"induced weights need at least d = {dim} queries and {count} points, got {num_queries} and {num_points}"
        )
    prompts = inputs[:, :count].repeat_interleave(num_queries, 0)
    values = targets[:, :count].repeat_interleave(num_queries, 0)
    asked = queries.to(inputs).repeat(num_prompts, 1)[:, None]
    answers = predict(torch.cat([prompts, asked], 1), F.pad(values, (0, 1)))[..., count]
    table = answers.detach().reshape(*answers.shape[:-1], num_prompts, num_queries).double()
    fitted: Tensor = table @ torch.linalg.pinv(queries.double().to(table.device)).mT
    return fitted


def _cosine(first: Tensor, second: Tensor) -> Tensor:
    product = first.norm(dim=-1) * second.norm(dim=-1)
    is_same = (first == 0).all(-1) & (second == 0).all(-1)
    cosine = torch.where(product > 0, (first * second).sum(-1) / product.clamp(min=1e-300), 0.0)
    return torch.where(is_same, 1.0, cosine)
