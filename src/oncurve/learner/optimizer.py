"""AdamW with float32 master weights, clipping and decay of matrices only."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from oncurve.learner.settings import LearnerSettings
from oncurve.types import NumericsError, RunError


class MasterAdamW:
    """AdamW whose arithmetic is at least float32, whatever the precision of the weights.

    A bfloat16 weight holds 8 bits: at a learning rate of 1e-5 most steps would round to nothing. So each
    half-precision weight gets a float32 master; gradients are summed into the master's gradient, the master is
    stepped, and the weight becomes the master, rounded. Float32 weights are their own masters.

    Args:
        named: the trainable parameters with their names.
        settings: AdamW's constants, clipping.
    """

    def __init__(self, named: Iterable[tuple[str, Parameter]], settings: LearnerSettings) -> None:
        self._weights = dict(named)
        if not self._weights:
            raise ValueError("no parameter requires a gradient: there is nothing to train")
        self.masters: dict[str, Tensor] = {name: _master_of(weight) for name, weight in self._weights.items()}
        self._max_grad_norm = settings.max_grad_norm
        decayed = [master for master in self.masters.values() if master.ndim >= 2]
        plain = [master for master in self.masters.values() if master.ndim < 2]
        groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        self._adamw = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
            eps=settings.adam_eps,
            fused=True,
        )

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for name, weight in self._weights.items():
            weight.grad = None
            self.masters[name].grad = None

    def collect(self) -> None:
        """Move the gradients of half-precision weights into float32, so that sums of many passes do not round."""
        for name, weight in self._weights.items():
            master = self.masters[name]
            if master is weight or weight.grad is None:
                continue
            master.grad = weight.grad.to(master.dtype) if master.grad is None else master.grad.add_(weight.grad)
            weight.grad = None

    def grad_norm(self) -> float:
        """Length of the whole gradient, before clipping.

        Raises:
            NumericsError: it is NaN or inf; names the weights.
        """
        gradients = [master.grad for master in self.masters.values() if master.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients).item() if gradients else 0.0
        if not norm < float("inf"):
            bad = [n for n, m in self.masters.items() if m.grad is not None and not bool(m.grad.isfinite().all())]
            raise NumericsError(
                f"the gradient is not finite (norm {norm}) in {', '.join(bad[:3]) or 'the sum over all weights'}"
                f"{f' and {len(bad) - 3} more' if len(bad) > 3 else ''}."
            )
        return norm

    def step(self, lr: float, grad_norm: float) -> None:
        """Clip by the norm just measured, step the masters, round them into the weights, forget the gradients."""
        torch.nn.utils.clip_grads_with_norm_(
            self.masters.values(), self._max_grad_norm, torch.tensor(grad_norm, dtype=torch.float64)
        )
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()
        self._round_into_weights()
        self.zero_grad()

    def _round_into_weights(self) -> None:
        with torch.no_grad():
            for name, weight in self._weights.items():
                if self.masters[name] is not weight:
                    weight.copy_(self.masters[name])

    def state_dict(self) -> dict[str, Any]:
        """Masters and moments. These are the live tensors: write them before the next step."""
        masters = {name: master.detach() for name, master in self.masters.items()}
        return {"masters": masters, "adamw": self._adamw.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; the weights become those of that moment, to the bit.

        Raises:
            RunError: the state belongs to other weights.
        """
        _require_same_weights(self.masters, state["masters"])
        with torch.no_grad():
            for name, master in self.masters.items():
                master.copy_(state["masters"][name])
        self._adamw.load_state_dict(copy.deepcopy(state["adamw"]))
        self._round_into_weights()
        self.zero_grad()


def _master_of(weight: Parameter) -> Tensor:
    if weight.dtype in (torch.float32, torch.float64):
        return weight
    return weight.detach().to(torch.float32, copy=True).requires_grad_()


def _require_same_weights(mine: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    for name in sorted(mine.keys() | saved.keys()):
        here, there = mine.get(name), saved.get(name)
        if here is None or there is None or here.shape != there.shape or here.dtype != there.dtype:
            raise RunError(
                f"the saved optimiser state does not fit this model at {name}: saved {_shape_of(there)}, "
                f"here {_shape_of(here)}. Resume with the model settings of the run: path, dtype and lora."
            )


def _shape_of(tensor: Tensor | None) -> str:
    return "nothing" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
