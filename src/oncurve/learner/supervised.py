"""Supervised learning: the likelihood of given completions."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from oncurve.algo import token_logprobs_from_logits
from oncurve.learner.packing import MicroBatch, Row
from oncurve.learner.settings import LearnerSettings
from oncurve.learner.stepper import Stepper
from oncurve.model import Policy
from oncurve.types import NumericsError

Example = tuple[Sequence[int], Sequence[int]]
"""(prompt_ids, completion_ids); only the completion is learned, its terminator included."""


class SupervisedLearner:
    """Raises the log-likelihood of given completions, at temperature 1.

    Args:
        policy: trained in place.
        settings: optimiser, memory budgets.
    """

    def __init__(self, policy: Policy, settings: LearnerSettings) -> None:
        self._stepper = Stepper(policy, settings)

    @property
    def num_steps(self) -> int:
        """Optimiser steps taken."""
        return self._stepper.num_steps

    def update(self, examples: Sequence[Example]) -> dict[str, float]:
        """One optimiser step on the token-mean negative log-likelihood.

        Returns:
            ``loss/supervised`` before the step in nats a token, ``grad/norm``, ``learner/lr``, ``tokens/completion``.

        Raises:
            ValueError: no completion token at all.
            NumericsError: loss or gradient is NaN or inf; the step is not taken.
        """
        rows = [Row(prompt, completion) for prompt, completion in examples]
        num_tokens = sum(len(row.token_ids) for row in rows)
        if num_tokens == 0:
            raise ValueError("supervised examples without a completion token teach nothing: check the worked examples")
        losses: list[float] = []

        def chunk_loss(batch: MicroBatch, logits: Tensor, span: slice) -> Tensor:
            chunk = -token_logprobs_from_logits(logits, batch.targets[span], 1.0).sum() / num_tokens
            losses.append(chunk.item())
            return chunk

        stepper, where = self._stepper, f"supervised step {self.num_steps}"
        with stepper.training():
            for batch in stepper.forward.pack(rows):
                for _ in stepper.forward.accumulate(stepper.model, batch, partial(chunk_loss, batch)):
                    stepper.collect()
            _refuse_non_finite(sum(losses), where)
            grad_norm, lr = stepper.step(where)
        return {
            "loss/supervised": sum(losses),
            "grad/norm": grad_norm,
            "learner/lr": lr,
            "tokens/completion": float(num_tokens),
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on, exact to the bit."""
        return self._stepper.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken. Raises RunError when the state is another model's."""
        self._stepper.load_state_dict(state)


def _refuse_non_finite(loss: float, where: str) -> None:
    if not abs(loss) < float("inf"):
        raise NumericsError(
            f"{where}: the supervised loss is {loss}. This step was not taken; the weights are those before it. "
            'Lower learner.lr, or set model.dtype = "float32".'
        )
