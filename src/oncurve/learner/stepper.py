"""What every way of learning shares: the weights, their optimiser, the forward pass, one optimiser step at a time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from oncurve.learner.forward import TokenForward
from oncurve.learner.optimizer import MasterAdamW
from oncurve.learner.settings import LearnerSettings
from oncurve.model import Policy
from oncurve.types import NumericsError, RunError, derive_seed
from oncurve.types.stopwatch import Stopwatch


class Stepper:
    """Trains a policy in place. Whoever holds it brings the loss.

    Args:
        policy: its trainable parameters are stepped.
        settings: optimiser, memory budgets.
        lr_key: which setting the learning rate comes from, for messages.

    Raises:
        ValueError: nothing in the policy can be trained.
    """

    def __init__(self, policy: Policy, settings: LearnerSettings, *, lr_key: str = "learner.lr") -> None:
        self.policy = policy
        self.model = policy.model
        self.settings = settings
        self._lr_key = lr_key
        self.num_steps = 0
        """Optimiser steps taken."""
        self.dtype = torch.promote_types(policy.model.dtype, torch.float32)
        """Of log-probs and losses: float32, or float64 for float64 weights."""
        trainable = ((n, p) for n, p in policy.model.named_parameters() if p.requires_grad)
        self._optimizer = MasterAdamW(trainable, settings)
        self.clock = Stopwatch()
        """Times packing, passes and the optimiser; whoever holds this adds what is its own."""
        self.forward = TokenForward(
            policy.model,
            micro_batch_tokens=settings.micro_batch_tokens,
            logits_chunk_bytes=settings.logits_chunk_bytes,
            use_bfloat16=settings.compute_dtype == "bfloat16",
            share_prompts=settings.share_prompts == "auto",
            clock=self.clock,
        )

    def collect(self) -> None:
        """Call after each backward pass: sums gradients of half-precision weights in float32."""
        with self.clock.running("optimizer"):
            self._optimizer.collect()

    @contextmanager
    def training(self) -> Iterator[None]:
        """Train mode with a random state of this step's own (LoRA dropout); no gradient survives a failure."""
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(derive_seed("learner", self.num_steps))
                self.model.train()
                yield
        finally:
            self.model.train(False)
            self._optimizer.zero_grad()

    def step(self, where: str) -> tuple[float, float]:
        """Take one optimiser step on the summed gradient.

        Args:
            where: names the step in messages.

        Returns:
            Gradient norm before clipping, and the learning rate.

        Raises:
            NumericsError: the gradient is NaN or inf; the step is not taken.
        """
        with self.clock.running("optimizer"):
            grad_norm = self._grad_norm(where)
            lr = self.settings.lr_at(self.num_steps)
            self._optimizer.step(lr, grad_norm)
        self.num_steps += 1
        return grad_norm, lr

    def _grad_norm(self, where: str) -> float:
        try:
            return self._optimizer.grad_norm()
        except NumericsError as error:
            raise NumericsError(
                f"{where}: {error} This step was not taken; the weights are those before it. "
                f'Continue from the last checkpoint with a lower {self._lr_key}, or with model.dtype = "float32".'
            ) from error

    def gradient(self) -> dict[str, torch.Tensor]:
        """The gradient summed so far, by name of the weight, float32 or better; for looking, inside ``training``."""
        return {name: master.grad for name, master in self._optimizer.masters.items() if master.grad is not None}

    def state_dict(self) -> dict[str, Any]:
        """Trained weights, moments, counter, exact to the bit. The tensors are the live ones."""
        return {"num_steps": self.num_steps, "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken.

        Raises:
            RunError: the state belongs to another model or is incomplete.
        """
        require_keys(state, "num_steps", "optimizer")
        self._optimizer.load_state_dict(state["optimizer"])
        self.num_steps = int(state["num_steps"])


def require_keys(state: Mapping[str, Any], *keys: str) -> None:
    """Refuse a state that another kind of run has written.

    Raises:
        RunError: a key is missing.
    """
    missing = set(keys) - state.keys()
    if missing:
        raise RunError(
            f"the learner state lacks {', '.join(sorted(missing))}: it was not written by this kind of learner. "
            "Resume from another checkpoint."
        )
