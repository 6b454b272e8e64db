"""Two reward functions as people write them, each with its hole. Do not use them; `oncurve audit` says why.

The third bad reward, format-weight.toml, has no function: its hole is a weight.
"""

import re

CLAIM = re.compile(r"=\s*(-?\d+)")


def claimed_result(completions: list[str], target: list[int], **columns: list) -> list[float]:
    """Trusts the work: pays when the last result that the reasoning claims is the target. Nobody adds it up."""
    claims = [CLAIM.findall(text.partition("</think>")[0]) for text in completions]
    return [float(bool(found) and int(found[-1]) == goal) for found, goal in zip(claims, target, strict=True)]


def substring(completions: list[str], target: list[int], **columns: list) -> list[float]:
    """Looks for the target as text, anywhere: 11 is in `4+5+2=11`, in `I want 11`, and in `111` too."""
    return [float(str(goal) in text) for text, goal in zip(completions, target, strict=True)]
