"""Supervised learning: the likelihood of given completions."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from oncurve.learner.likelihood import TEMPERATURE, ByIndex, add_gradient, drift_metrics
from oncurve.learner.packing import Row
from oncurve.learner.settings import LearnerSettings
from oncurve.learner.stepper import Stepper
from oncurve.model import Policy, Reference
from oncurve.types import Inserted, NumericsError

Example = tuple[Sequence[int], Sequence[int]] | tuple[Sequence[int], Sequence[int], Sequence[Inserted]]
"""(prompt_ids, completion_ids); only the completion is learned, its terminator included. A third part holds what an
environment answered between: read and not learned."""


class SupervisedLearner:
    """Raises the log-likelihood of given completions, at temperature 1.

    Args:
        policy: trained in place.
        settings: optimiser, memory budgets.
        reference: the frozen starting policy, to measure the drift from it on ``watch_kl_completions`` examples a step;
            nothing pulls back to it. None measures nothing.
    """

    def __init__(self, policy: Policy, settings: LearnerSettings, *, reference: Reference | None = None) -> None:
        self._stepper = Stepper(policy, settings)
        self._reference = reference
        self._clock = self._stepper.clock

    @property
    def num_steps(self) -> int:
        """Optimiser steps taken."""
        return self._stepper.num_steps

    def update(self, examples: Sequence[Example]) -> dict[str, float]:
        """One optimiser step on the token-mean negative log-likelihood.

        Returns:
            All before the step: ``loss/supervised`` in nats a token, ``drift/kl`` from the reference, where there is
            one, ``grad/norm``, ``learner/lr``, ``tokens/completion``.

        Raises:
            ValueError: no completion token at all.
            NumericsError: loss or gradient is NaN or inf; the step is not taken.
        """
        rows = [Row(*example) for example in examples]
        num_tokens = sum(len(row.token_ids) for row in rows)
        if num_tokens == 0:
            raise ValueError("supervised examples without a completion token teach nothing: check the worked examples")
        self._clock.reset()
        ref_logprobs = self._watched(rows)
        stepper, where = self._stepper, f"supervised step {self.num_steps}"
        with stepper.training():
            logprobs = add_gradient(stepper, rows, [-1 / num_tokens] * len(rows))
            loss = -torch.cat([logprobs[index] for index in sorted(logprobs)]).double().sum().item() / num_tokens
            _refuse_non_finite(loss, where)
            grad_norm, lr = stepper.step(where)
        return {
            "loss/supervised": loss,
            **drift_metrics(logprobs, ref_logprobs),
            "grad/norm": grad_norm,
            "learner/lr": lr,
            "tokens/completion": float(num_tokens),
        }

    def seconds(self) -> dict[str, float]:
        """Wall seconds of the parts of the latest update, by name, see ``stopwatch.PARTS``."""
        return self._clock.seconds()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on, exact to the bit."""
        return self._stepper.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken. Raises RunError when the state is another model's."""
        self._stepper.load_state_dict(state)

    def _watched(self, rows: Sequence[Row]) -> ByIndex:
        """Log-probs under the reference of some rows, evenly spread over the step."""
        count = min(self._stepper.settings.watch_kl_completions, len(rows))
        if self._reference is None or count == 0:
            return {}
        chosen = [place * len(rows) // count for place in range(count)]
        with self._clock.running("reference"), self._reference.weights() as model:
            found = self._stepper.forward.logprobs(model, [rows[index] for index in chosen], TEMPERATURE)
        return {chosen[place]: logprobs for place, logprobs in found.items()}


def _refuse_non_finite(loss: float, where: str) -> None:
    if not abs(loss) < float("inf"):
        raise NumericsError(
            f"{where}: the supervised loss is {loss}. This step was not taken; the weights are those before it. "
            'Lower learner.lr, or set model.dtype = "float32".'
        )
