"""Seeds and splits from hashes.

``seed + index`` makes neighbouring seeds share almost all of their items. A hash of everything that names an item
does not, and it is the same number on every machine and Python version.
"""

from hashlib import blake2b


def derive_seed(*parts: str | int) -> int:
    """Hash named parts to a seed.

    Args:
        parts: what names the item, for example ``("rollout", run_seed, step, task_id, index)``. Order, types and
            the borders between parts all matter.

    Returns:
        An integer in [0, 2**64).
    """
    digest = blake2b(digest_size=8)
    for part in parts:
        kind, data = ("i", str(part)) if isinstance(part, int) else ("s", part)
        encoded = data.encode("utf-8", "surrogatepass")
        digest.update(f"{kind}{len(encoded)}:".encode())
        digest.update(encoded)
    return int.from_bytes(digest.digest(), "big")


def unit_interval(*parts: str | int) -> float:
    """Hash named parts to a float in [0, 1), for example to send an item to a split."""
    return (derive_seed(*parts) >> 11) / 2**53
