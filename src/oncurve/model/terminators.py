"""What ends a completion, and how long it may get.

A tokenizer names one end-of-sequence token, a generation config often several, and a chat template closes a turn
with whatever it likes. A sampler that knows only one of them runs on past the answer.
"""

from pathlib import Path

from jinja2 import TemplateError
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedTokenizerBase

from oncurve.types import ModelError

_PROBE = "ANSWER"
_UNLIMITED = 10**9
"""Tokenizers write 1e30 where they state no limit."""


def find_terminators(
    tokenizer: PreTrainedTokenizerBase, generation: GenerationConfig | None, *, num_embeddings: int, source: Path
) -> frozenset[int]:
    """Every id that ends a completion: of the tokenizer, of the generation config, of the chat template.

    Args:
        tokenizer: must name an end-of-sequence token.
        generation: its ``eos_token_id`` may be absent, one id or several.
        num_embeddings: ids at or above it cannot be sampled and are left out.
        source: the model's directory, for the message.

    Raises:
        ModelError: the tokenizer has no end-of-sequence token, or its chat template fails.
    """
    if not isinstance(tokenizer.eos_token_id, int):
        raise ModelError(
            f"The tokenizer in {source} has no end-of-sequence token, so no completion could ever end. "
            'Name one in its tokenizer_config.json, for example "eos_token": "<|endoftext|>".'
        )
    ids = {tokenizer.eos_token_id, *_generation_eos(generation), *_end_of_turn(tokenizer, source)}
    return frozenset(token for token in ids if token < num_embeddings)


def _generation_eos(generation: GenerationConfig | None) -> list[int]:
    eos = None if generation is None else generation.eos_token_id
    if eos is None:
        return []
    return [eos] if isinstance(eos, int) else [int(token) for token in eos]


def _end_of_turn(tokenizer: PreTrainedTokenizerBase, source: Path) -> list[int]:
    """The token that the chat template puts right behind an assistant's words: <|im_end|>, <end_of_turn>, ..."""
    if not tokenizer.chat_template:
        return []
    turns = [{"role": "user", "content": "QUESTION"}, {"role": "assistant", "content": _PROBE}]
    try:
        rendered = str(tokenizer.apply_chat_template(turns, tokenize=False))
    except (TemplateError, ValueError) as error:
        raise ModelError(f"The chat template in {source} cannot render a question and an answer: {error}") from error
    rest = rendered.rpartition(_PROBE)[2].lstrip()
    special = {str(tokenizer.convert_ids_to_tokens(token)): token for token in tokenizer.all_special_ids}
    closing = [word for word in {**tokenizer.get_added_vocab(), **special} if rest.startswith(word)]
    return [int(tokenizer.convert_tokens_to_ids(max(closing, key=len)))] if closing else []  # type: ignore[arg-type]


def find_context_length(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, *, source: Path) -> int:
    """Most positions the model can attend to, from its config, else from its tokenizer.

    Raises:
        ModelError: neither states a limit.
    """
    text = config.get_text_config()
    for key in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        value = getattr(text, key, None)
        if isinstance(value, int) and value > 0:
            return value
    if tokenizer.model_max_length < _UNLIMITED:
        return int(tokenizer.model_max_length)
    raise ModelError(
        f"{source / 'config.json'} states no context length. Add the longest sequence it was trained for as "
        '"max_position_embeddings".'
    )
