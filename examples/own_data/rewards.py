"""A reward function with TRL's signature; it runs in a process of its own, with a deadline.

``completions`` are strings for text prompts, and lists of one assistant message for chat prompts, as in TRL.
"""


def brevity(prompts: list, completions: list, topic: list[str], **columns: list) -> list[float | None]:
    """1 for a short completion that names the topic, 0 for a long one, None (no value) where the topic is missing."""
    scores: list[float | None] = []
    for completion, word in zip(completions, topic, strict=True):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        scores.append(max(0.0, 1.0 - len(text) / 400) if word in text else None)
    return scores
