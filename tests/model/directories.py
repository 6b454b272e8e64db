"""Small model directories, whole ones and broken ones."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from oncurve.model.embedded import character_tokenizer

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chat_tokenizer() -> PreTrainedTokenizerFast:
    """The character tokenizer with two chat tokens (its last two ids) and a chat template."""
    tokenizer = character_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def llama(vocab_size: int, **changes: Any) -> LlamaForCausalLM:
    """A two-layer Llama with grouped keys, drawn from seed 0."""
    options: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        "eos_token_id": 0,
        "bos_token_id": None,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(**{**options, **changes}))


def save_llama(directory: Path, **changes: Any) -> Path:
    """A complete directory: Llama, chat tokenizer, template."""
    tokenizer = chat_tokenizer()
    llama(len(tokenizer), **changes).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def edit_json(file: Path, **changes: Any) -> None:
    """Set keys of a JSON file; None removes a key."""
    content = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
