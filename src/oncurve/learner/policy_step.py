"""The policy loss of one micro-batch, chunk by chunk, with a record of what it saw.

Shapes: N completion tokens of the micro-batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from oncurve.algo import (
    ObjectiveSettings,
    importance_ratio,
    policy_loss,
)
from oncurve.learner.forward import TokenForward
from oncurve.learner.minibatch import Member
from oncurve.learner.packing import MicroBatch
from oncurve.learner.token_statistics import token_statistics
from oncurve.types import NumericsError


@dataclass(frozen=True)
class Tokens:
    """What the loss needs of each completion token of a micro-batch. All are [N]."""

    old_logprobs: Tensor | None
    """None: the log-probs of this very pass, which is what recomputing them just before it would give."""
    ref_logprobs: Tensor | None
    sampler_logprobs: Tensor | None
    """As recorded; None unless the objective corrects for the sampler."""
    advantages: Tensor
    weights: Tensor


@dataclass(frozen=True)
class TokenRecord:
    """What a pass found, before the weights moved. Tensors are [N], without gradient."""

    logprobs: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    clip_ratio: Tensor
    """The ratio that a clip looks at: of the token, or of its completion."""
    entropy: Tensor
    total: float
    """Loss terms, with the denominators of the whole optimiser step: they add up over its micro-batches."""
    policy: float
    kl: float


@dataclass(frozen=True)
class StepLoss:
    """The loss of one optimiser step; its denominators belong to the whole step."""

    objective: ObjectiveSettings
    temperature: float
    num_tokens: int
    """Trained tokens of the step."""
    members: Sequence[Member]
    """The trained members, in the order in which they were packed."""
    where: str
    """Names the step in messages."""

    def tokens_of(
        self, batch: MicroBatch, old: Mapping[int, Tensor] | None, ref: Mapping[int, Tensor] | None, dtype: torch.dtype
    ) -> Tokens:
        """Line the members of a micro-batch up as tokens.

        Args:
            batch: packed from ``members``.
            old: log-probs by ``Member.index``; None takes those of the pass.
            ref: the same for the reference; None when there is no KL in the loss.
            dtype: of the arithmetic, float32 or float64.
        """
        members = [self.members[place] for place in batch.members]
        device = batch.targets.device
        lengths = torch.tensor(batch.lengths, device=device)

        def line_up(by_member: Mapping[int, Tensor] | None) -> Tensor | None:
            if by_member is None:
                return None
            return torch.cat([by_member[member.index] for member in members]).to(device, dtype)

        return Tokens(
            old_logprobs=line_up(old),
            ref_logprobs=line_up(ref),
            sampler_logprobs=line_up(self._recorded(members, dtype)) if self.objective.needs_sampler_logprobs else None,
            advantages=torch.cat([member.advantages for member in members]).to(device, dtype),
            weights=torch.tensor(
                [member.weight for member in members], dtype=torch.float64, device=device
            ).repeat_interleave(lengths),
        )

    @staticmethod
    def _recorded(members: Sequence[Member], dtype: torch.dtype) -> dict[int, Tensor]:
        return {member.index: torch.tensor(member.completion.old_logprobs, dtype=dtype) for member in members}

    def accumulate(
        self,
        forward: TokenForward,
        model: PreTrainedModel,
        batch: MicroBatch,
        tokens: Tokens,
        after_backward: Callable[[], None],
    ) -> TokenRecord:
        """Add the gradient of this micro-batch to the weights and return what was seen.

        Raises:
            NumericsError: a log-prob is NaN or inf; names the tasks.
        """
        parts: list[TokenRecord] = []

        def chunk_loss(logits: Tensor, span: slice) -> Tensor:
            total, record = self._chunk(logits, batch, tokens, span)
            parts.append(record)
            return total

        for _ in forward.accumulate(model, batch, chunk_loss):
            after_backward()
        return join(parts)

    def _chunk(self, logits: Tensor, batch: MicroBatch, tokens: Tokens, span: slice) -> tuple[Tensor, TokenRecord]:
        logprobs, entropy = token_statistics(logits, batch.targets[span], self.temperature)
        if self.objective.entropy_coef == 0:
            entropy = entropy.detach()
        old = logprobs.detach() if tokens.old_logprobs is None else tokens.old_logprobs[span]
        ref = None if tokens.ref_logprobs is None else tokens.ref_logprobs[span]
        self._refuse_non_finite(batch, span, {"policy": logprobs, "sampler": old, "reference": ref})
        terms = policy_loss(
            self.objective,
            logprobs=logprobs,
            old_logprobs=old,
            advantages=tokens.advantages[span],
            weights=tokens.weights[span],
            ref_logprobs=ref,
            sampler_logprobs=None if tokens.sampler_logprobs is None else tokens.sampler_logprobs[span],
            entropy=entropy,
            num_step_tokens=self.num_tokens,
        )
        return terms.total, TokenRecord(
            logprobs=logprobs.detach(),
            old_logprobs=old,
            advantages=tokens.advantages[span],
            clip_ratio=importance_ratio(logprobs.detach(), old),
            entropy=entropy.detach(),
            total=terms.total.item(),
            policy=terms.policy.item(),
            kl=terms.kl.item(),
        )

    def _refuse_non_finite(self, batch: MicroBatch, span: slice, found: Mapping[str, Tensor | None]) -> None:
        for whose, logprobs in found.items():
            if logprobs is None or bool(logprobs.isfinite().all()):
                continue
            owner = torch.tensor(batch.members).repeat_interleave(torch.tensor(batch.lengths))[span]
            bad = sorted(set(owner[~logprobs.isfinite().cpu()].tolist()))
            raise non_finite(self.where, whose, [self.members[i] for i in bad])


def non_finite(where: str, whose: str, members: Sequence[Member]) -> NumericsError:
    """The error that names the completions whose log-probs are NaN or inf."""
    names = [f"{member.completion.task_id}[{member.completion.index}]" for member in members[:3]]
    return NumericsError(
        f"{where}: log-probs of the {whose} are NaN or inf in {len(members)} completions, first "
        f"{', '.join(names)} (task[completion]). This step was not taken; the weights are those before it. "
        'Continue from the last checkpoint with a lower learner.lr, or with model.dtype = "float32".'
    )


def join(parts: Sequence[TokenRecord]) -> TokenRecord:
    """One record of several parts of the same optimiser step: tokens one after the other, loss terms added."""
    return TokenRecord(
        logprobs=torch.cat([part.logprobs for part in parts]),
        old_logprobs=torch.cat([part.old_logprobs for part in parts]),
        advantages=torch.cat([part.advantages for part in parts]),
        clip_ratio=torch.cat([part.clip_ratio for part in parts]),
        entropy=torch.cat([part.entropy for part in parts]),
        total=sum(part.total for part in parts),
        policy=sum(part.policy for part in parts),
        kl=sum(part.kl for part in parts),
    )
