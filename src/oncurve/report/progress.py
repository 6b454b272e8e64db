"""What every loop tells whoever watches, whatever it trains: plain values, no printing."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """A checkpoint is safe on disk."""

    step: int
    """Steps done when it was written."""
    path: Path
