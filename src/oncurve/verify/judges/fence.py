"""Put a completion behind delimiters that it cannot contain, and take out of it what steers chat models."""

import re
from hashlib import blake2b

_CONTROL = re.compile(
    r"<(?=\|[^|<>\s]{1,40}\|>)|<(?=｜[^<>]{1,40}｜>)|<(?=/?(?:s|start_of_turn|end_of_turn|bos|eos)>)"
    r"|<(?=<SYS>>)|<(?=</SYS>>)|<(?=</?SYS>)|\[(?=/?INST\])",
    re.IGNORECASE,
)
_MAX_ROUNDS = 50


def fence_of(*parts: str) -> str:
    """A delimiter for these texts: 32 hexadecimal digits of their hash.

    A text that contains its own hash cannot be found, so nothing that a policy writes can close the fence; and the
    same texts get the same fence, so that the same completion is judged by the same prompt after a resume.
    """
    digest = blake2b(digest_size=16, person=b"oncurve fence")
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)}:".encode())
        digest.update(encoded)
    return digest.hexdigest()


def fenced(text: str, fence: str) -> str:
    """The text between two lines of the fence, harmless: the fence and its parts are taken out of it.

    Args:
        text: what a policy wrote.
        fence: as ``fence_of`` gives it.
    """
    return f"=== {fence} ===\n{without(defused(text), fence)}\n=== {fence} ==="


def without(text: str, fence: str) -> str:
    """The text without the fence or its verdict mark, also where taking one out would make another."""
    for _ in range(_MAX_ROUNDS):
        if fence not in text and mark_of(fence) not in text:
            return text
        text = text.replace(fence, "").replace(mark_of(fence), "")
    return text.replace(fence[:8], "")


def mark_of(fence: str) -> str:
    """What a judge writes in front of its verdict: ``VERDICT-`` and the first digits of the fence."""
    return f"VERDICT-{fence[:8]}"


def defused(text: str) -> str:
    """The text with control tokens of chat templates broken up, which servers would otherwise read as turns."""
    return _CONTROL.sub(lambda found: f"{found[0]} ", text)
