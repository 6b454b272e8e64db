"""From a causal language model to the log-probs of completion tokens, without ever holding [B, T, V] logits.

Shapes: B rows, T positions, N completion tokens of a micro-batch, V vocabulary, d hidden width.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from oncurve.learner import tree_attention
from oncurve.learner.mode import evaluating
from oncurve.learner.packed import PackedModel, packed_model
from oncurve.learner.packing import MicroBatch, Row, pack, pack_flat
from oncurve.learner.token_statistics import token_statistics
from oncurve.types.stopwatch import Stopwatch

ChunkLoss = Callable[[Tensor, slice], Tensor]
"""Takes logits [n, V] and which of the N tokens they predict; returns a scalar to call ``backward`` on."""


class TokenForward:
    """Runs a model over micro-batches and hands out logits of completion tokens, chunk by chunk.

    The body runs once; the output head runs on the hidden states of completion positions only. In training each chunk
    is differentiated at once and its logits are freed, then the sum of the chunks goes back through the body:
    no logits are kept, and none are computed twice.

    A model that does more than its head after the body (soft-capping, scaling) runs whole instead, with
    ``logits_to_keep``, in micro-batches small enough for the same budget.

    Tokens with which rows begin alike run once a micro-batch, see ``prefix_tree``.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        micro_batch_tokens: int,
        logits_chunk_bytes: int,
        use_bfloat16: bool,
        share_prompts: bool = False,
        clock: Stopwatch | None = None,
    ) -> None:
        self._clock = clock or Stopwatch()
        self._is_plain_head = ends_with_its_head(model)
        self._chunk = max(1, logits_chunk_bytes // (4 * _head_of(model).weight.shape[0]))
        self._budget = micro_batch_tokens if self._is_plain_head else min(micro_batch_tokens, self._chunk)
        self._use_bfloat16 = use_bfloat16
        self._device = model.device
        self._shares = share_prompts
        packed = packed_model(model)
        follows_windows = packed is not None and packed.follows_windows
        self._longest = float("inf") if follows_windows else tree_attention.longest_row(model)
        self._is_packed = packed is not None
        self._packed: WeakKeyDictionary[PreTrainedModel, PackedModel] = WeakKeyDictionary()
        self._is_fused = packed is not None and packed.is_fused
        pads_trees = share_prompts and not self._is_packed
        self._scores_per_token = tree_attention.scores_per_token(model) if pads_trees else 0.0

    def pack(self, rows: Sequence[Row]) -> list[MicroBatch]:
        """Micro-batches of these rows, within the token budget; rows that begin alike are merged where that pays."""
        with self._clock.running("pack"):
            is_short = max(map(len, rows), default=0) <= self._longest
            if self._is_packed and is_short:
                return pack_flat(rows, token_budget=self._budget, device=self._device, is_shared=self._shares)
            worth = self._scores_per_token if is_short else 0.0
            return pack(rows, token_budget=self._budget, device=self._device, scores_per_token=worth)

    def logprobs(self, model: PreTrainedModel, rows: Sequence[Row], temperature: float) -> dict[int, Tensor]:
        """Log-probs of the completion tokens of each row, by index of the row. No gradient.

        Args:
            model: of the architecture that this object was made for.
            rows: prompts and completions.
            temperature: logits are divided by it.

        Returns:
            One [L] tensor a row, float32 or better, nats. A row without completion tokens is left out.
        """
        return self.per_token(model, rows, lambda logits, ids: token_statistics(logits, ids, temperature)[0])

    def per_token(
        self, model: PreTrainedModel, rows: Sequence[Row], read: Callable[[Tensor, Tensor], Tensor]
    ) -> dict[int, Tensor]:
        """One number for each completion token of each row, by index of the row. No gradient.

        Args:
            model: of the architecture that this object was made for.
            rows: prompts and completions.
            read: makes [n] numbers of the head's output [n, V] and the [n] tokens that it predicts.

        Returns:
            One [L] tensor a row. A row without completion tokens is left out.
        """
        result: dict[int, Tensor] = {}
        with torch.no_grad():
            for batch in self.pack(rows):
                parts = [read(logits, batch.targets[span]) for logits, span in self._logits(model, batch)]
                result |= zip(batch.members, torch.split(torch.cat(parts), list(batch.lengths)), strict=True)
        return result

    def _logits(self, model: PreTrainedModel, batch: MicroBatch) -> Iterator[tuple[Tensor, slice]]:
        if not self._is_plain_head:
            yield self._whole_logits(model, batch), slice(0, len(batch.targets))
            return
        hidden = self._hidden(model, batch)
        for span in self._spans(len(hidden)):
            yield self._head(model, hidden[span]), span

    def accumulate(self, model: PreTrainedModel, batch: MicroBatch, chunk_loss: ChunkLoss) -> Iterator[None]:
        """Add the gradient of the sum of the chunk losses to ``.grad`` of the weights.

        Yields after each of its backward passes, so that the caller may move half-precision gradients elsewhere.
        """
        if not self._is_plain_head:
            self._accumulate_whole(model, batch, chunk_loss)
            yield
            return
        with self._clock.running("forward"):
            hidden = self._hidden(model, batch)
        is_body_trained = hidden.requires_grad
        gradients = []
        for span in self._spans(len(hidden)):
            with self._clock.running("head"):
                leaf = hidden[span].detach().requires_grad_(is_body_trained)
                torch.autograd.backward(chunk_loss(self._head(model, leaf), span))
                gradients.append(leaf.grad)
            yield
        if is_body_trained:
            with self._clock.running("backward"), self._running(model, batch):  # checkpointing runs layers again
                torch.autograd.backward(hidden, torch.cat([gradient for gradient in gradients if gradient is not None]))
            yield

    def _accumulate_whole(self, model: PreTrainedModel, batch: MicroBatch, chunk_loss: ChunkLoss) -> None:
        with self._clock.running("forward"):
            logits = self._whole_logits(model, batch)
        with self._clock.running("head"):
            loss = chunk_loss(logits, slice(0, len(batch.targets)))
        with self._clock.running("backward"), self._running(model, batch):
            torch.autograd.backward(loss)

    def _spans(self, num_tokens: int) -> Iterator[slice]:
        for start in range(0, num_tokens, self._chunk):
            yield slice(start, min(start + self._chunk, num_tokens))

    def _hidden(self, model: PreTrainedModel, batch: MicroBatch) -> Tensor:
        with self._precision(), self._running(model, batch) as arguments:
            output = model.base_model(**arguments, use_cache=False)
        flat: Tensor = output.last_hidden_state.flatten(0, 1)
        return flat.index_select(0, batch.predictors)

    def _head(self, model: PreTrainedModel, hidden: Tensor) -> Tensor:
        with self._precision():
            logits: Tensor = _head_of(model)(hidden)
        return logits

    def _whole_logits(self, model: PreTrainedModel, batch: MicroBatch) -> Tensor:
        width = batch.input_ids.shape[1]
        kept = width - batch.first_predictor
        with self._precision(), self._running(model, batch) as arguments:
            output = model(**arguments, use_cache=False, logits_to_keep=kept)
        row, position = batch.predictors // width, batch.predictors % width
        flat: Tensor = output.logits.flatten(0, 1)
        return flat.index_select(0, row * kept + position - batch.first_predictor)

    def _running(self, model: PreTrainedModel, batch: MicroBatch) -> AbstractContextManager[dict[str, Tensor]]:
        """The arguments of a forward pass; its backward pass belongs into such a block too."""
        if batch.paths is None:
            return nullcontext(tree_attention.arguments(model, batch))
        if model not in self._packed:
            self._packed[model] = PackedModel(model, is_fused=self._is_fused)
        return self._packed[model].running(batch)

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self._use_bfloat16)


def ends_with_its_head(model: PreTrainedModel) -> bool:
    """True when the model's logits are its output head applied to its last hidden states, and nothing after that.

    Decided by trying it: the hidden states are made large on the way to the head, so that soft-capping shows.
    """
    head = _head_of(model)
    seen: list[Tensor] = []

    def enlarge(_module: torch.nn.Module, _args: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state * 1000
        seen.append(output.last_hidden_state)
        return output

    handle = model.base_model.register_forward_hook(enlarge)
    try:
        with torch.no_grad(), evaluating(model):
            ids = torch.arange(min(3, head.weight.shape[0]), device=model.device)[None]
            logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
            expected = head(seen[0]) if seen else None
    finally:
        handle.remove()
    if expected is None:  # the base model was never called as a module
        return False
    return torch.allclose(logits, expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item())


def _head_of(model: PreTrainedModel) -> Any:
    return model.get_output_embeddings()  # type: ignore[no-untyped-call]
