"""Text that somebody wrote to the token ids that are learned. Sampled completions never come here."""

from collections.abc import Sequence

from oncurve.model import Policy
from oncurve.tasks import prompt_text
from oncurve.types import DataError, Prompt


def canonical(prompt: Prompt) -> str:
    """A prompt with white space normalised: equal for two that ask the same."""
    return " ".join(prompt_text(prompt).split())


def encode_completion(policy: Policy, prompt: Prompt, text: str, *, where: str) -> tuple[int, ...]:
    """Token ids of a completion, its terminator last: those that the policy itself would have to sample.

    After a chat prompt the chat template says how a turn is written and what ends it; after text, or where the template
    does not continue the prompt, the tokens of the text and the end-of-sequence token.

    Args:
        policy: whose tokenizer and template are used.
        prompt: what stands before.
        text: the completion.
        where: names it in messages.

    Raises:
        DataError: the model has no token for a part of the text, or the text spells a token that ends a completion.
    """
    plain = [int(token) for token in policy.tokenizer.encode(text, add_special_tokens=False)]
    _refuse_unreadable(policy, plain, text, where)
    return _turn(policy, prompt, text) or (*plain, _end_of(policy))


def unknown_characters(policy: Policy, text: str) -> set[str]:
    """Characters of a text for which the model's tokenizer has no token, so that the model reads all of them alike."""
    unknown = policy.tokenizer.unk_token_id

    def is_unknown(part: str) -> bool:
        return unknown in policy.tokenizer.encode(part, add_special_tokens=False)

    if unknown is None or not is_unknown(text):
        return set()
    return {letter for letter in text if is_unknown(letter)}


def _turn(policy: Policy, prompt: Prompt, text: str) -> tuple[int, ...] | None:
    """The completion as the chat template writes it; None without template, or where that changes the prompt."""
    if isinstance(prompt, str):
        return None
    before = policy.encode_prompt(prompt)
    turns = [{"role": message.role, "content": message.content} for message in prompt]
    whole = policy.tokenizer.apply_chat_template([*turns, {"role": "assistant", "content": text}], return_dict=False)
    ids = tuple(int(token) for token in whole)  # type: ignore[arg-type]
    after = ids[len(before) :]
    end = next((place for place, token in enumerate(after) if token in policy.terminators), None)
    return None if ids[: len(before)] != before or end is None else after[: end + 1]


def _end_of(policy: Policy) -> int:
    end = policy.tokenizer.eos_token_id
    return end if isinstance(end, int) and end in policy.terminators else min(policy.terminators)


def _refuse_unreadable(policy: Policy, ids: Sequence[int], text: str, where: str) -> None:
    shown = f"{text[:80]!r}{'…' if len(text) > 80 else ''}"
    if policy.terminators.intersection(ids):
        raise DataError(
            f"{where}: the completion {shown} spells a token that ends a completion, in its middle. Remove it: the "
            "terminator is added."
        )
    unknown = policy.tokenizer.unk_token_id
    if unknown is not None and unknown in ids:
        raise DataError(
            f"{where}: the model's tokenizer has no token for a part of the completion {shown}. Use another model, or "
            "write the completion with characters that it knows."
        )
