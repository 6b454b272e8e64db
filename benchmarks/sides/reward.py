"""A reward for speed comparisons: every group has a spread of it, whatever the model can do, and it can be learned."""

from typing import Any


def even_share(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Share of the token ids of each completion that are even."""
    return [sum(token % 2 == 0 for token in ids) / max(1, len(ids)) for ids in completion_ids]
