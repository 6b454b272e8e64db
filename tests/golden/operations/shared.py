"""What the adapters share: tensors in float64, groups from flat lists, losses with their gradient."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from oncurve import algo

Inputs = Mapping[str, Any]
Outputs = dict[str, Any]
Operation = Callable[[Inputs], Outputs]


def real(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def flags(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


def rectangular(inputs: Inputs) -> Inputs:
    """Pad the rows of everything that goes with a [B, T] mask to one width."""
    if not is_table(inputs.get("mask")):
        return inputs
    width = max(len(row) for value in inputs.values() if is_table(value) for row in value)
    return {name: padded(value, width) if is_table(value) else value for name, value in inputs.items()}


def is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, list) for row in value)


def padded(rows: Sequence[Sequence[float]], width: int) -> list[list[float]]:
    return [[*row, *[0] * (width - len(row))] for row in rows]


class Groups:
    """A flat batch arranged as [P, G] by group ids in any order; short groups are filled up with unscored members."""

    def __init__(self, group: Sequence[int]) -> None:
        ids = list(dict.fromkeys(group))
        used = dict.fromkeys(ids, 0)
        self.places = []
        for name in group:
            self.places.append((ids.index(name), used[name]))
            used[name] += 1
        self.shape = (len(ids), max(2, *used.values()))
        self.scored = self.table([True] * len(group), filler=False, dtype=torch.bool)

    def table(self, values: Sequence[Any], *, filler: Any = torch.nan, dtype: torch.dtype = torch.float64) -> Tensor:
        cells = torch.tensor(values, dtype=dtype)
        table = torch.full((*self.shape, *cells.shape[1:]), filler, dtype=dtype)
        rows, columns = zip(*self.places, strict=True)
        table[list(rows), list(columns)] = cells
        return table

    def flat(self, table: Tensor) -> list[float]:
        return [table[place].item() for place in self.places]


def std_choice(inputs: Inputs) -> dict[str, Any]:
    return {"ddof": inputs["ddof"], "std_eps": inputs["eps"]}


def value_and_gradient(function: Callable[[Tensor], Tensor], at: Any) -> tuple[Tensor, list[Any]]:
    """Return what the function gives, and the gradient of its sum."""
    point = real(at).requires_grad_()
    value = function(point)
    return value.detach(), torch.autograd.grad(value.sum(), point)[0].tolist()


def step_weights(inputs: Inputs, aggregation: algo.Aggregation) -> Tensor:
    mask = flags(inputs["mask"])
    groups = torch.tensor(inputs.get("group", list(range(len(mask)))))
    weights = algo.sequence_weights(mask.sum(dim=1), groups, aggregation, max_tokens=inputs.get("l_max", 1))
    return algo.token_weights(weights, mask)
