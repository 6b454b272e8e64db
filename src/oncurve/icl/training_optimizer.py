"""The optimiser of the laboratory and its rate."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import Parameter

from oncurve.icl.network import Regressor
from oncurve.icl.settings import OptimizerSettings
from oncurve.types import ConfigError


def rate(settings: OptimizerSettings, step: int, num_steps: int) -> float:
    """Share of the peak learning rate at a step counted from 0.

    (t + 1) / warmup          while t < warmup
    1                         then
    (1 + cos(pi p)) / 2       after ``decay_from`` of the steps, p from 0 to 1 over the rest

    The smaller of rise and fall counts where they overlap.
    """
    rise = min(1.0, (step + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
    start = settings.decay_from * num_steps
    if step < start or start >= num_steps:
        return rise
    return min(rise, (1 + math.cos(math.pi * (step - start) / (num_steps - start))) / 2)


class Optimizer:
    """AdamW on every weight, or Muon on the matrices of the blocks and AdamW on the others.

    Args:
        regressor: the network whose weights that require a gradient are moved.
        settings: rates and constants.

    Raises:
        ConfigError: Muon is asked for and this torch has none.
    """

    def __init__(self, regressor: Regressor, settings: OptimizerSettings) -> None:
        if settings.name == "muon" and not hasattr(torch.optim, "Muon"):
            raise ConfigError(f"optimizer.name is muon, which torch has from 2.9 on; here is {torch.__version__}")
        self._settings = settings
        named = [(name, weight) for name, weight in regressor.named_parameters() if weight.requires_grad]
        self._weights = [weight for _, weight in named]
        by_muon = [weight for name, weight in named if settings.name == "muon" and _is_block_matrix(name, weight)]
        taken = {id(weight) for weight in by_muon}
        others = [weight for weight in self._weights if id(weight) not in taken]
        self._parts: list[tuple[torch.optim.Optimizer, float]] = [(_adamw(others, settings), settings.lr)]
        if by_muon:
            muon = torch.optim.Muon(
                by_muon, lr=settings.muon_lr, momentum=settings.muon_momentum, weight_decay=settings.weight_decay
            )
            self._parts.append((muon, settings.muon_lr))

    def step(self, share: float) -> torch.Tensor:
        """Clip the gradient, move the weights at ``share`` of the peak rates, forget the gradient.

        Returns:
            The length of the gradient before it was clipped, a scalar.
        """
        norm = torch.nn.utils.clip_grad_norm_(self._weights, self._settings.max_grad_norm)
        for part, peak in self._parts:
            for group in part.param_groups:
                group["lr"] = peak * share
            part.step()
            part.zero_grad()
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Moments and counters; the live tensors."""
        return {str(index): part.state_dict() for index, (part, _) in enumerate(self._parts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        for index, (part, _) in enumerate(self._parts):
            part.load_state_dict(state[str(index)])


def _adamw(weights: list[Parameter], settings: OptimizerSettings) -> torch.optim.AdamW:
    matrices = [weight for weight in weights if weight.ndim >= 2]
    vectors = [weight for weight in weights if weight.ndim < 2]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.lr, betas=(settings.beta1, settings.beta2), fused=True)


def _is_block_matrix(name: str, weight: Parameter) -> bool:
    return weight.ndim == 2 and (".h." in name or ".layers." in name)
