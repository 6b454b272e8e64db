"""A policy: a causal language model, its tokenizer, and what ends a completion."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oncurve.types import ModelError, Prompt


@dataclass(kw_only=True, slots=True)
class Policy:
    """A model and the tokenizer that belongs to it.

    The model is the live one: whoever holds the policy sees the weights of the last optimiser step.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    terminators: frozenset[int]
    """Every id that ends a completion: of the tokenizer, the generation config and the chat template."""
    context_length: int
    """Most positions the model can attend to, prompt and completion together."""
    adapter: PeftModel | None = None
    """The LoRA adapter whose matrices sit inside ``model``; None when every weight is trained."""

    def encode_prompt(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids of a prompt. Chat messages go through the chat template, with the assistant's turn opened.

        Raises:
            ModelError: the prompt is chat messages and the tokenizer has no chat template.
        """
        if isinstance(prompt, str):
            return tuple(self.tokenizer.encode(prompt, add_special_tokens=True))
        if not self.tokenizer.chat_template:
            raise ModelError(
                "This prompt is a list of chat messages, but the model's tokenizer has no chat template. "
                "Give the prompt as plain text, or use an instruction-tuned model."
            )
        messages = [{"role": message.role, "content": message.content} for message in prompt]
        ids = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        return tuple(cast("list[int]", ids))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of sampled ids without special tokens, for verifiers and people. Never encoded again."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def spell(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Text of token ids with special tokens written out: what a tool call is read from. Never encoded again."""
        return [str(text) for text in self.tokenizer.batch_decode([list(row) for row in rows])]

    def encode_foreign(self, text: str) -> tuple[int, ...]:
        """Token ids of text that the policy did not write. What looks like a special token in it becomes plain text, so
        that it can neither end a turn nor begin one."""
        ids = self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        return tuple(cast("list[int]", ids))
