"""The critic of PPO: a value model of its own, what it says about completions, and how it learns.

Shapes: L completion tokens of a completion, N those of a micro-batch.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from oncurve.algo import clipped_value_loss, explained_variance, value_clip_fraction
from oncurve.learner.packing import MicroBatch, Row, row_of
from oncurve.learner.settings import LearnerSettings
from oncurve.learner.stepper import Stepper
from oncurve.model import Policy, value_model_of
from oncurve.types import Completion, NumericsError, Settings

ByIndex = Mapping[int, Tensor]
"""[L] one number a completion token, by the completion's place in the rollout."""


class CriticSettings(Settings):
    """How the critic learns. It takes one optimiser step beside each of the policy's, on the same completions; memory
    budgets, precision, AdamW's betas and weight decay are those of the learner."""

    lr: float = Field(1e-5, gt=0, le=1)
    """Learning rate of the critic's AdamW, constant; recipes take up to ten times that of the policy."""

    warmup_rollouts: int = Field(5, ge=0)
    """Rollouts at the start on which only the critic is trained, while the policy stays as it is."""

    value_clip: float | None = Field(0.2, gt=0)
    """How far a value may move for one rollout, in units of reward, before it gets no more gradient; None does not
    clip."""

    max_grad_norm: float = Field(1.0, gt=0)
    """A gradient of the critic longer than this is scaled down to it."""

    def is_warmup(self, rollout: int) -> bool:
        """True when the policy waits for the critic on this rollout, counted from 0."""
        return rollout < self.warmup_rollouts


class Critic:
    """Says what reward is to be expected before each token, and learns from what came.

    The value of a token is read at the position that predicts it, so that of the first token judges the prompt alone.

    Args:
        policy: copied, see ``value_model_of``; stays as it is.
        settings: learning rate, clip, warm-up.
        learner_settings: the optimiser's other constants, memory budgets.
        seed: draws the value head.
    """

    def __init__(
        self, policy: Policy, settings: CriticSettings, learner_settings: LearnerSettings, *, seed: int
    ) -> None:
        self.settings = settings
        own = {"lr": settings.lr, "max_grad_norm": settings.max_grad_norm, "warmup_steps": 0, "decay_steps": 0}
        value_policy = replace(policy, model=value_model_of(policy, seed=seed), adapter=None)
        self._stepper = Stepper(value_policy, learner_settings.model_copy(update=own), lr_key="critic.lr")

    @property
    def num_steps(self) -> int:
        """Optimiser steps taken."""
        return self._stepper.num_steps

    def values(self, completions: Mapping[int, Completion]) -> dict[int, Tensor]:
        """What the critic expects before each token. No gradient.

        Args:
            completions: by any index, usually their place in the rollout.

        Returns:
            One [L] tensor a completion, in units of reward, float32 or better. One without tokens is left out.

        Raises:
            NumericsError: a value is NaN or inf; names the completions.
        """
        found = self._stepper.forward.per_token(self._stepper.model, _rows(completions), _only_output)
        places = list(completions)
        values = {places[place]: said for place, said in found.items()}
        self._refuse_non_finite("values", values, completions)
        return values

    def update(self, completions: Mapping[int, Completion], returns: ByIndex, old_values: ByIndex) -> dict[str, float]:
        """One optimiser step on the token mean of ``clipped_value_loss``.

        Args:
            completions: of one optimiser step; one without tokens is passed over.
            returns: [L] targets of each, see ``generalized_advantages``.
            old_values: [L] what ``values`` said before the first step on this rollout.

        Returns:
            As found before the step: ``critic/loss``, ``critic/clip_frac``, ``critic/explained_variance`` (left out
            where all returns are equal), ``critic/grad_norm`` before clipping; and ``critic/lr``.

        Raises:
            ValueError: there is no token at all, or a completion has not one return and one old value a token.
            NumericsError: a value, a return or the gradient is NaN or inf. The step is not taken.
        """
        trained = {index: completion for index, completion in completions.items() if completion.token_ids}
        if not trained:
            raise ValueError("completions without a single token teach a critic nothing: leave this step out")
        for name, given in (("returns", returns), ("old values", old_values)):
            _require_one_a_token(name, given, trained)
            self._refuse_non_finite(name, {index: given[index] for index in trained}, trained)
        stepper = self._stepper
        num_tokens = sum(len(completion.token_ids) for completion in trained.values())
        values: dict[int, Tensor] = {}
        with stepper.training():
            for batch in stepper.forward.pack(_rows(trained)):
                members = [list(trained)[place] for place in batch.members]
                said = self._accumulate(
                    batch, self._join(returns, members), self._join(old_values, members), num_tokens
                )
                values |= zip(members, torch.split(said, list(batch.lengths)), strict=True)
            self._refuse_non_finite("values", values, trained)
            grad_norm, lr = stepper.step(self._where())
        order = list(values)
        joined = (self._join(part, order) for part in (values, old_values, returns))
        return {**self._quality(*joined), "critic/grad_norm": grad_norm, "critic/lr": lr}

    def state_dict(self) -> dict[str, Any]:
        """Weights, moments, counter, exact to the bit: with the starting model, all that continuing needs.

        The tensors are the live ones: write them before the next update.
        """
        return self._stepper.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken.

        Raises:
            RunError: the state belongs to another model or is incomplete.
        """
        self._stepper.load_state_dict(state)

    def _accumulate(self, batch: MicroBatch, returns: Tensor, old_values: Tensor, num_tokens: int) -> Tensor:
        """Add the gradient of a micro-batch to the weights; returns its values [N]. ``num_tokens`` is of the step."""
        parts: list[Tensor] = []

        def chunk_loss(outputs: Tensor, span: slice) -> Tensor:
            said = _only_output(outputs)
            parts.append(said.detach())
            losses = clipped_value_loss(said, old_values[span], returns[span], clip=self.settings.value_clip)
            return losses.sum() / num_tokens

        for _ in self._stepper.forward.accumulate(self._stepper.model, batch, chunk_loss):
            self._stepper.collect()
        return torch.cat(parts)

    def _join(self, by_index: ByIndex, members: list[int]) -> Tensor:
        """The tokens of these completions one after the other, where the model is: [N]."""
        return torch.cat([by_index[index] for index in members]).to(self._stepper.model.device, self._stepper.dtype)

    def _quality(self, values: Tensor, old_values: Tensor, returns: Tensor) -> dict[str, float]:
        clip, everywhere = self.settings.value_clip, torch.ones_like(values, dtype=torch.bool)
        explained = explained_variance(values, returns, everywhere)
        return {
            "critic/loss": clipped_value_loss(values, old_values, returns, clip=clip).double().mean().item(),
            "critic/clip_frac": value_clip_fraction(values, old_values, returns, everywhere, clip=clip),
            **({} if explained is None else {"critic/explained_variance": explained}),
        }

    def _where(self) -> str:
        return f"critic step {self.num_steps}"

    def _refuse_non_finite(self, name: str, by_index: ByIndex, completions: Mapping[int, Completion]) -> None:
        bad = [completions[index] for index, numbers in by_index.items() if not bool(numbers.isfinite().all())]
        if bad:
            names = ", ".join(f"{completion.task_id}[{completion.index}]" for completion in bad[:3])
            raise NumericsError(
                f"{self._where()}: {name} of the critic are NaN or inf in {len(bad)} completions, first {names} "
                "(task[completion]). No step was taken; the weights are those before it. Continue from the last "
                'checkpoint with a lower critic.lr, or with model.dtype = "float32".'
            )


def _rows(completions: Mapping[int, Completion]) -> list[Row]:
    return [row_of(completion) for completion in completions.values()]


def _only_output(outputs: Tensor, _targets: Tensor | None = None) -> Tensor:
    """[n, 1] of the value head to [n]."""
    return outputs.squeeze(-1)


def _require_one_a_token(name: str, given: ByIndex, completions: Mapping[int, Completion]) -> None:
    for index, completion in completions.items():
        found = list(given[index].shape) if index in given else "nothing"
        if found != [len(completion.token_ids)]:
            raise ValueError(
                f"{name} of completion {completion.index} of task {completion.task_id} must be "
                f"[{len(completion.token_ids)}], one a token, got {found}"
            )
