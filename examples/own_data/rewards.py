"""A reward function with TRL's signature; it runs in a process of its own, with a deadline."""


def brevity(prompts: list, completions: list[str], topic: list[str], **columns: list) -> list[float | None]:
    """1 for a short completion that names the topic, 0 for a long one, None (no value) where the topic is missing."""
    scores: list[float | None] = []
    for completion, word in zip(completions, topic, strict=True):
        scores.append(max(0.0, 1.0 - len(completion) / 400) if word in completion else None)
    return scores
