"""The embedded model: a small GPT-2-style decoder with a character tokenizer, built from a transformers config.

LayerNorm, GELU and learned positions have fused CPU kernels in torch; RMSNorm with rotary embeddings at the same
size is about 1.8 times slower. The tags are single tokens, so that a completion of the embedded task stays short.
"""

from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from oncurve.model.policy import Policy

END = "<end>"
UNKNOWN = "<unk>"
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
CHARACTERS = "0123456789+-*/=()., :;?!abcdefghijklmnopqrstuvwxyz\n"
CONTEXT_LENGTH = 128


def embedded_directory() -> Path:
    """Where the warm-started embedded model lies: package data that ``oncurve sft`` makes."""
    return Path(__file__).parent / "data" / "embedded"


def character_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character, one per tag. ``<end>`` ends a completion and pads."""
    words = [END, UNKNOWN, *TAGS, *CHARACTERS]
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = Split(Regex(r"</?(?:think|answer)>|."), behavior="isolated")
    tokenizer.decoder = Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=END,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT_LENGTH,
    )


def fresh_embedded_policy(seed: int, *, width: int = 128, num_layers: int = 3, num_heads: int = 4) -> Policy:
    """The embedded model with random weights drawn from ``seed``; the global random state is left as it was."""
    tokenizer = character_tokenizer()
    end = int(tokenizer.eos_token_id)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=CONTEXT_LENGTH,
        n_embd=width,
        n_layer=num_layers,
        n_head=num_heads,
        activation_function="gelu_pytorch_tanh",  # the same function as GPT-2's own, in one fused kernel
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT2LMHeadModel(config)
    model.train(False)
    return Policy(model=model, tokenizer=tokenizer, terminators=frozenset({end}), context_length=CONTEXT_LENGTH)
