"""What can be wrong with a loaded model, found before the first token is sampled."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oncurve.model.border import quiet
from oncurve.types import ModelError

_NO_DERIVATIVE = 1e-6
"""Of the greatest one: what rounding may leave of a zero in an architecture that computes with Fourier transforms."""


def check_complete(report: Mapping[str, Any], source: Path) -> None:
    """Refuse a model that transformers had to complete with random weights.

    Args:
        report: the loading info of ``from_pretrained``.
        source: the model's directory, for the message.

    Raises:
        ModelError: a tensor is missing (a base model without its head, for instance) or has another shape.
    """
    missing = sorted(str(name) for name in report["missing_keys"])
    mismatched = sorted(str(entry[0]) for entry in report["mismatched_keys"])
    if missing:
        raise ModelError(
            f"The weights in {source} lack {_some(missing)}; these would be random numbers. "
            "A base model saved without its language-model head looks like this: save the ...ForCausalLM model."
        )
    if mismatched:
        raise ModelError(f"The weights in {source} do not have the shapes of its config.json: {_some(mismatched)}.")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def check_finite(model: torch.nn.Module, source: Path) -> None:
    """Refuse weights with NaN or inf.

    Raises:
        ModelError: names the first such tensor and how many of its values are not finite.
    """
    for name, tensor in model.named_parameters():
        bad = tensor.numel() - int(tensor.isfinite().sum())
        if bad:
            raise ModelError(
                f"{bad} of {tensor.numel()} values of {name} in {source} are NaN or inf. "
                "The model is damaged, as after a diverged training: use an earlier checkpoint."
            )


def check_causal(model: PreTrainedModel, source: Path) -> None:
    """Refuse a model whose log-prob of a token depends on what follows it.

    Such a model samples from another distribution than the one that is trained: when it samples, nothing follows yet.
    An encoder (BERT, RoBERTa) that transformers loads as a language model is one. Asked is the derivative, because it
    needs no tolerance for rounding: of the log-probs of tokens 1 to 3 after tokens 0 to 2, to the embedding of
    token 3, which is exactly 0 where attention is masked.

    Raises:
        ModelError: the derivative is not 0.
    """
    embedded: list[torch.Tensor] = []

    def keep(*call: Any) -> torch.Tensor:  # module, input, output
        embedded.append(call[2].detach().requires_grad_())
        return embedded[-1]

    ids = torch.arange(4, device=model.device).remainder(num_embeddings(model)).unsqueeze(0)
    hook = model.get_input_embeddings().register_forward_hook(keep)
    try:
        with quiet(), torch.enable_grad():  # it would warn of ids that mean padding elsewhere
            logprobs = model(ids, use_cache=False).logits.float().log_softmax(-1)
            told = logprobs[0, :-1].gather(-1, ids[0, 1:, None]).sum()
            by_token = torch.autograd.grad(told, embedded[0])[0][0].float().abs().amax(-1)
    finally:
        hook.remove()
    if by_token[-1] > _NO_DERIVATIVE * by_token[:-1].max():
        raise ModelError(
            f"The model in {source}, {type(model).__name__}, looks ahead: its log-prob of a token changes with the "
            "tokens after it, which are not there yet while it samples. An encoder cannot be trained here; "
            'if its weights are those of a decoder, add "is_decoder": true to its config.json.'
        )


def num_embeddings(model: PreTrainedModel) -> int:
    """Rows of the input embedding: ids from there on do not exist for the model."""
    return int(cast("torch.Tensor", model.get_input_embeddings().weight).shape[0])


def check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: Path) -> None:
    """Refuse a tokenizer with ids that the embedding does not have.

    Raises:
        ModelError: states both sizes.
    """
    rows = num_embeddings(model)
    highest = max(tokenizer.get_vocab().values())
    if highest >= rows:
        raise ModelError(
            f"The tokenizer in {source} has ids up to {highest}, but the model embeds only {rows} tokens (0 to "
            f"{rows - 1}). Tokenizer and weights do not belong together, or the embedding was not resized."
        )
