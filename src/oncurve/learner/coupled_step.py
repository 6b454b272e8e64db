"""The policy loss of an objective that couples tokens: ratios of whole completions, filters over the whole step.

The log-probs of all tokens of the step are needed before the gradient of any: one pass without gradient finds them, the
loss is differentiated by each log-prob on a small [B, T] tensor, and a second pass adds up these numbers times the
gradient of each log-prob. That is the gradient of the loss, whatever the micro-batches.

Shapes: B trained completions of the step, T tokens of the longest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from oncurve.algo import (
    LossTerms,
    ObjectiveSettings,
    completion_ratio,
    importance_ratio,
    policy_loss,
)
from oncurve.learner.minibatch import Member
from oncurve.learner.packing import MicroBatch, Row, row_of
from oncurve.learner.policy_step import TokenRecord, non_finite
from oncurve.learner.stepper import Stepper
from oncurve.learner.token_statistics import token_statistics

ByIndex = Mapping[int, Tensor]


@dataclass(frozen=True)
class CoupledLoss:
    """The loss of one optimiser step whose tokens depend on each other."""

    objective: ObjectiveSettings
    temperature: float
    members: Sequence[Member]
    """The trained members."""
    where: str
    """Names the step in messages."""
    seed: int
    """Of the choice of ``clip_cov``."""
    num_tokens: int | None = None
    """Trained tokens of the whole step; None when these members are all of it."""

    def accumulate(
        self, stepper: Stepper, old: ByIndex | None, ref: ByIndex | None
    ) -> tuple[TokenRecord, dict[int, Tensor]]:
        """Add the gradient of the step to the weights; call inside ``stepper.training``.

        Args:
            stepper: holds the model.
            old: log-probs by ``Member.index``; None takes those of the policy as it is.
            ref: the same for the reference; None when there is no KL in the loss.

        Returns:
            What was seen, and the log-probs by ``Member.index``.

        Raises:
            NumericsError: a log-prob is NaN or inf; names the tasks.
        """
        logprobs, entropy = self._look(stepper)
        known = logprobs if old is None else old
        for whose, found in {"policy": logprobs, "sampler": known, "reference": ref or {}}.items():
            self._refuse_non_finite(whose, found)
        mask = self._mask()
        terms, coefficients = self._differentiate(mask, logprobs, known, ref, entropy)
        self._backward(stepper, torch.split(coefficients[mask], self._lengths()))
        return self._record(mask, logprobs, known, entropy, terms), logprobs

    def coefficients(self, logprobs: ByIndex, old: ByIndex, entropy: ByIndex | None = None) -> tuple[Tensor, ...]:
        """Differentiate the loss by the log-prob of each token; also right for an objective that couples none.

        Args:
            logprobs: of the policy, by ``Member.index``.
            old: the same for the denominators of the ratio.
            entropy: the same, where the objective filters tokens by it.

        Returns:
            [L] float64 a member, without the KL to the reference and the entropy bonus.
        """
        alone = self.objective.model_copy(update={"kl_coef": 0.0, "entropy_coef": 0.0})
        mask = self._mask()
        _, found = replace(self, objective=alone)._differentiate(mask, logprobs, old, None, entropy)
        return torch.split(found[mask], self._lengths())

    def _look(self, stepper: Stepper) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        """Log-probs and entropies of all tokens, without gradient."""

        def read(logits: Tensor, targets: Tensor) -> Tensor:
            return torch.stack(token_statistics(logits, targets, self.temperature), dim=-1)

        stepper.model.train(False)
        with stepper.clock.running("recompute"):
            found = stepper.forward.per_token(stepper.model, self._rows(), read)
        stepper.model.train()
        both = {self.members[place].index: pair.cpu() for place, pair in found.items()}
        return {i: pair[:, 0] for i, pair in both.items()}, {i: pair[:, 1] for i, pair in both.items()}

    def _differentiate(
        self, mask: Tensor, logprobs: ByIndex, old: ByIndex, ref: ByIndex | None, entropy: ByIndex | None
    ) -> tuple[LossTerms, Tensor]:
        """The loss terms, and d loss / d log-prob of every token; the entropy bonus is left to the second pass."""
        leaf = self._table(mask, logprobs).requires_grad_()
        sampler = {m.index: torch.tensor(m.completion.old_logprobs, dtype=torch.float64) for m in self.members}
        weights = torch.tensor([member.weight for member in self.members], dtype=torch.float64)
        generator = torch.Generator().manual_seed(self.seed)
        terms = policy_loss(
            self.objective,
            logprobs=leaf,
            old_logprobs=self._table(mask, old),
            advantages=self._table(mask, {member.index: member.advantages for member in self.members}),
            weights=torch.where(mask, weights[:, None], 0.0),
            ref_logprobs=None if ref is None else self._table(mask, ref),
            sampler_logprobs=self._table(mask, sampler),
            entropy=None if entropy is None else self._table(mask, entropy),
            num_step_tokens=self._num_step_tokens(),
            uniforms=torch.rand(mask.shape, generator=generator, dtype=torch.float64),
        )
        (coefficients,) = torch.autograd.grad(terms.total, leaf)
        return terms, coefficients

    def _backward(self, stepper: Stepper, coefficients: Sequence[Tensor]) -> None:
        num_tokens = self._num_step_tokens()

        def loss_of(batch: MicroBatch) -> Callable[[Tensor, slice], Tensor]:
            mine = torch.cat([coefficients[place] for place in batch.members]).to(batch.targets.device)

            def chunk_loss(logits: Tensor, span: slice) -> Tensor:
                logprobs, entropy = token_statistics(logits, batch.targets[span], self.temperature)
                loss = (mine[span].to(logprobs.dtype) * logprobs).sum()
                if self.objective.entropy_coef > 0:
                    loss = loss - self.objective.entropy_coef * entropy.sum() / num_tokens
                return loss

            return chunk_loss

        for batch in stepper.forward.pack(self._rows()):
            for _ in stepper.forward.accumulate(stepper.model, batch, loss_of(batch)):
                stepper.collect()

    def _record(self, mask: Tensor, logprobs: ByIndex, old: ByIndex, entropy: ByIndex, terms: LossTerms) -> TokenRecord:
        def flat(by_index: ByIndex) -> Tensor:
            return torch.cat([by_index[member.index] for member in self.members])

        current, before = self._table(mask, logprobs), self._table(mask, old)
        is_of_completion = self.objective.loss.startswith(("gspo", "luspo"))
        ratio = completion_ratio(current, before, mask) if is_of_completion else importance_ratio(current, before)
        return TokenRecord(
            logprobs=flat(logprobs),
            old_logprobs=flat(old),
            advantages=torch.cat([member.advantages for member in self.members]),
            clip_ratio=ratio[mask],
            entropy=flat(entropy),
            total=terms.total.item(),
            policy=terms.policy.item(),
            kl=terms.kl.item(),
        )

    def _rows(self) -> list[Row]:
        return [row_of(member.completion) for member in self.members]

    def _num_step_tokens(self) -> int:
        return sum(self._lengths()) if self.num_tokens is None else self.num_tokens

    def _lengths(self) -> list[int]:
        return [len(member.completion.token_ids) for member in self.members]

    def _mask(self) -> Tensor:
        lengths = torch.tensor(self._lengths())
        return torch.arange(int(lengths.max())) < lengths[:, None]

    def _table(self, mask: Tensor, by_index: ByIndex) -> Tensor:
        table = torch.zeros(mask.shape, dtype=torch.float64)
        table[mask] = torch.cat([by_index[member.index].detach().cpu().double() for member in self.members])
        return table

    def _refuse_non_finite(self, whose: str, by_index: ByIndex) -> None:
        bad = [m for m in self.members if m.index in by_index and not bool(by_index[m.index].isfinite().all())]
        if bad:
            raise non_finite(self.where, whose, bad)
