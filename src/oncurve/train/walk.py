"""Which items of a data set come next: every item once a pass, resumable from one number."""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from oncurve.types import DataError, derive_seed

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[T_co]):
    """Hands out batches; ``cursor`` is its whole state."""

    cursor: int

    def take(self, count: int, /) -> Sequence[T_co]:
        """The next ``count`` items."""


class Walk(Generic[T]):
    """Hands out a finite data set in passes, each in an order of its own that a hash decides.

    A batch never mixes two passes, so no item is in it twice: what is left of a pass and too few for a batch waits for
    the next one, which has another order.

    Args:
        items: the data.
        seed: decides the orders.
    """

    def __init__(self, items: Sequence[T], *, seed: int) -> None:
        self._items = items
        self._seed = seed
        self._pass = -1
        self._order: list[int] = []
        self.cursor = 0
        """Items walked over so far, those that were left out included."""

    def take(self, count: int, /) -> list[T]:
        """The next ``count`` different items.

        Raises:
            DataError: there are not so many.
        """
        size = len(self._items)
        if count > size:
            raise DataError(f"{count} different items are wanted at once, but there are only {size}")
        if self.cursor % size + count > size:
            self.cursor += size - self.cursor % size
        number, start = divmod(self.cursor, size)
        if number != self._pass:
            keys = [derive_seed("walk", self._seed, number, index) for index in range(size)]
            self._pass, self._order = number, sorted(range(size), key=keys.__getitem__)
        self.cursor += count
        return [self._items[index] for index in self._order[start : start + count]]
