"""Limits that clients share, so that none of them can take all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from .errors import OverloadError


class Shares:
    """A limit of which nobody may take more than is left for the others.

    So a single client gets at most half of it, each of two a third, and a new one always finds room (dynamic
    thresholds, Choudhury and Hahne 1998). An amount belongs to a client and, if that is known, to its stream: both
    together may have as much as is left, so that a stream leaves room for the other streams of its client.
    """

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._used_by: Counter[Hashable] = Counter()

    def take(self, amount: int, *owners: Hashable) -> bool:
        """Take an amount, or return False. If nothing is in use, any amount is given."""
        if self.used and amount + sum(self._used_by[owner] for owner in owners) > self._limit - self.used:
            return False
        self._add(amount, owners)
        return True

    def give_back(self, amount: int, *owners: Hashable) -> None:
        """Return an amount to where it was taken from."""
        self._add(-amount, owners)

    def _add(self, amount: int, owners: tuple[Hashable, ...]) -> None:
        self.used += amount
        for owner in owners:
            self._used_by[owner] += amount
            if not self._used_by[owner]:
                del self._used_by[owner]


class Queue:
    """Room for rows that are being read, wait, or are predicted."""

    def __init__(self, max_rows: int) -> None:
        self._shares = Shares(max_rows)

    @contextmanager
    def enter(self, client: str, stream: str | None) -> Iterator[Callable[[int, str | None], None]]:
        """Take a place for a request of which only the header is known, for the length of a block.

        Yields a function that sets its rows and its stream. Both raise an OverloadError if that is not possible.
        """
        rows, owners = 0, tuple[Hashable, ...]()

        def resize(new_rows: int, stream: str | None) -> None:
            nonlocal rows, owners
            self._shares.give_back(rows, *owners)
            rows, owners = 0, (client, (client, stream))
            if not self._shares.take(new_rows, *owners):
                raise OverloadError("the queue is full")
            rows = new_rows

        try:
            resize(1, stream)
            yield resize
        finally:
            self._shares.give_back(rows, *owners)
